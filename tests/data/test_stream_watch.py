"""A stream whose random numbers no resume can repeat is named when its first batch is read."""

from __future__ import annotations

import queue
import random
import threading
from typing import Any

import datasets
import pytest

from footplate.data import Loader, stream_watch
from numbered import Stream

datasets.disable_progress_bars()


@pytest.fixture(autouse=True)
def forget():
    stream_watch._warn.cache_clear()


def noise(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"], "noise": random.random()}


def many(samples: dict[str, Any]) -> dict[str, Any]:
    return {"x": samples["x"], "noise": [random.random() for _ in samples["x"]]}


def table(first: int = 0) -> Any:
    rows = {"x": list(range(first, first + 12))}
    return datasets.Dataset.from_dict(rows).to_iterable_dataset(num_shards=2)


def pair(change: Any) -> Any:
    return datasets.interleave_datasets([table().map(change), table(100).map(change)])


STREAMS = {
    "inside interleave": (lambda: pair(noise), "interleave_datasets() reads ahead from, in threads"),
    "before shuffle": (lambda: table().map(noise).shuffle(seed=1, buffer_size=5), "shuffle() reads ahead"),
    "by the batch": (lambda: table().map(many, batched=True, batch_size=5), "batched=True"),
    "last": (lambda: pair(dict).map(noise), None),
    "not random": (lambda: pair(dict), None),
    "joined": (lambda: datasets.concatenate_datasets([table().map(noise), table(9).map(noise)]), None),
}


def first_batch(dataset: Any, **settings: Any) -> Any:
    return next(iter(Loader(dataset, is_training=True, batch_size=3, collate_fn=list, **settings)))


@pytest.mark.parametrize("kind", STREAMS)
def test_a_random_map_that_something_reads_ahead_from_is_named(kind, caplog):
    build, expected = STREAMS[kind]
    first_batch(build())
    assert (expected in caplog.text) if expected else "random numbers" not in caplog.text


class Prefetching(Stream):
    """Reads in a thread."""

    def __init__(self, draws: bool) -> None:
        super().__init__(12)
        self.draws = draws

    def __iter__(self) -> Any:
        samples: queue.Queue[Any] = queue.Queue(2)

        def fill() -> None:
            for sample in super(Prefetching, self).__iter__():
                if self.draws:
                    random.random()
                samples.put(sample)

        threading.Thread(target=fill, name="filling", daemon=True).start()
        for _ in range(12):
            yield samples.get()


class Placed(Prefetching):
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (Prefetching(True), "Prefetching draws random numbers and reads in threads of its own (filling)"),
        (Placed(False), "Placed reads ahead in threads of its own (filling)"),
        (Prefetching(False), None),
    ],
    ids=["random", "with a state", "neither"],
)
def test_a_stream_with_threads_of_its_own_is_named_where_they_matter(stream, expected, caplog):
    first_batch(stream)
    assert (expected in caplog.text) if expected else "threads" not in caplog.text


def test_it_is_said_once(caplog):
    for _ in range(2):
        first_batch(pair(noise))
    assert caplog.text.count("reads ahead from") == 1
