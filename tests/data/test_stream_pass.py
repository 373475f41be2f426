"""Streams: from any position by state, by skip or by reading again, in one process or several."""

from __future__ import annotations

import random
import time
from itertools import chain
from operator import itemgetter

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info

from footplate.data.loader import Loader
from footplate.data.stream_pass import deal_out
from footplate.data.stream_reader import Share, keeps_place
from numbered import (
    SizedStream,
    Stream,
    contents,
    flat_ids,
    generator_states,
    noise,
    random_collate,
    run_interrupted,
)

datasets.disable_progress_bars()


class NoisyStream(Stream):
    """Samples with augmentation, in another order in each epoch, told by `set_epoch`."""

    def __iter__(self):
        for sample in super().__iter__():
            yield {"x": sample["x"] + 100 * (self.epoch or 0), "noise": torch.tensor(noise())}


class GlobalShuffle(Stream):
    """Shuffles on the global generators when a pass opens."""

    def __iter__(self):
        return self.give(np.random.permutation(list(map(itemgetter("x"), super().__iter__()))).tolist())

    def give(self, indices):
        for index in indices:
            yield {"x": index, "noise": torch.rand(2)}


class GlobalBuffer(GlobalShuffle):
    """Shuffles on as it goes: only workers, whose generators are seeded by position, can repeat that."""

    def give(self, indices):
        waiting = []
        for sample in super().give(indices):
            waiting.append(sample)
            if len(waiting) == 5:
                yield waiting.pop(random.randrange(5))
        yield from waiting


class Stateful(NoisyStream):
    """A stream that keeps its place, and begins anew after its end; workers take turns."""

    def __init__(self, num_samples=23):
        super().__init__(num_samples)
        self.position = 0
        self.passes = 0

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first + self.position * step, self.num_samples, step):
            self.position += 1
            self.num_read += 1
            yield {"x": index + 100 * self.passes, "noise": torch.tensor(noise())}
        self.position = 0
        self.passes += 1

    def state_dict(self):
        return {"position": self.position, "passes": self.passes}

    def load_state_dict(self, state):
        self.position, self.passes = state["position"], state["passes"]


class SizedStateful(Stateful):
    def __len__(self):
        return self.num_samples


class Skipping(Stream):
    """A stream that can leave out its first samples."""

    start = 0

    def skip(self, count):
        skipped = Skipping(self.num_samples)
        skipped.start = count
        return skipped

    def __iter__(self):
        for index in range(self.start, self.num_samples):
            yield {"x": index, "noise": torch.tensor(noise())}


class SkippingInPlace(Skipping):
    def skip(self, count):
        self.start = count

    def __iter__(self):
        yield from super().__iter__()
        self.start = 0


def numbers(shards):
    for shard in shards:
        for index in range(6):
            yield {"x": 6 * shard + index}


def table():
    return datasets.IterableDataset.from_generator(numbers, gen_kwargs={"shards": [0, 1, 2, 3]})


def augmented(rows):
    """Random numbers come last: what reads ahead of itself would draw them at another time after a resume."""
    return rows.map(lambda row: {"noise": [random.random(), np.random.rand()]})


PIPELINES = {
    "table": lambda: augmented(table()),
    "formatted": lambda: augmented(table()).with_format("torch"),
    "filtered": lambda: augmented(table().filter(lambda row: row["x"] % 5 != 0)),
    "mapped by the batch": lambda: augmented(
        table().map(lambda rows: {"y": rows["x"]}, batched=True, batch_size=3)
    ),
    "interleaved": lambda: augmented(
        datasets.interleave_datasets([table(), table()], probabilities=[0.3, 0.7], seed=1)
    ),
    "shuffled": lambda: augmented(table().shuffle(seed=3, buffer_size=5)),
    "shuffled and formatted": lambda: augmented(table().shuffle(seed=3, buffer_size=5)).with_format("torch"),
}
STREAMS = {
    "no help": NoisyStream,
    "sized": lambda: SizedStream(24),
    "global shuffle": GlobalShuffle,
    "global buffer": GlobalBuffer,
    "stateful": Stateful,
    "sized and stateful": SizedStateful,
    "sized and stateful, in whole batches": lambda: SizedStateful(24),
    "skip": Skipping,
    "skip in place": SkippingInPlace,
    **PIPELINES,
}


def build(stream, batch_size=4, num_workers=0, **settings):
    return Loader(
        STREAMS[stream](),
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=random_collate,
        is_training=True,
        shows_progress=False,
        **settings,
    )


def run(builds, stops, num_epochs=2):
    seen = run_interrupted(builds, stops, num_epochs)
    return [{**batch, "dropout": drawn} for batch, drawn in seen]


def again(stream, **settings):
    while True:
        yield lambda: build(stream, **settings)


@pytest.mark.parametrize("stream", [name for name in STREAMS if name != "global buffer"])
def test_a_run_resumed_again_and_again_sees_what_a_straight_one_sees(stream):
    straight = run(again(stream), [])
    assert len(straight) >= 10
    for stops in ([1], [3, 2, 1], [6, 1], [5, 4]):
        assert run(again(stream), stops) == straight, stops


@pytest.mark.parametrize(
    "stream", ["no help", "global shuffle", "global buffer", "stateful", "table", "shuffled"]
)
def test_workers_go_on_where_each_of_them_was(stream):
    straight = run(again(stream, num_workers=2), [])
    assert len({str(batch) for batch in straight}) == len(straight) >= 10
    for stops in ([3, 2], [1, 5]):
        assert run(again(stream, num_workers=2), stops) == straight, stops


def test_workers_whose_parts_end_at_different_times_keep_their_turns():
    class Uneven(NoisyStream):
        def __iter__(self):
            worker = get_worker_info()
            for index in range([9, 2, 5][worker.id]):
                yield {"x": 100 * worker.id + index}

    def make():
        return Loader(Uneven(), batch_size=2, num_workers=3, shows_progress=False, is_training=True)

    def every(stops):
        return run(iter([make] * (len(stops) + 1)), stops, num_epochs=1)

    straight = every([])
    assert [batch["x"][0] // 100 for batch in straight] == [0, 1, 2, 0, 2, 0, 2, 0, 0]
    for stop in range(1, len(straight)):
        assert every([stop]) == straight


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 1)])
@pytest.mark.parametrize("stream", ["no help", "stateful", "shuffled"])
def test_an_epoch_is_finished_by_as_many_workers_as_began_it(stream, before, after):
    begun = run(again(stream, num_workers=before), [], num_epochs=1)
    builds = [lambda: build(stream, num_workers=before), lambda: build(stream, num_workers=after)]
    mixed = run(iter(builds), [3])
    assert mixed[: len(begun)] == begun
    if stream != "stateful":  # it counts its passes, and workers count only their own
        after_it = [batch["x"] for batch in run(again(stream, num_workers=after), [])]
        assert [batch["x"] for batch in mixed[len(begun) :]] == after_it[len(begun) - len(mixed) :]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("stream", ["no help", "stateful", "table", "shuffled"])
def test_another_batch_size_goes_on_at_the_right_sample(stream, num_workers):
    sizes = [4, 3, 5]
    builds = [lambda size=size: build(stream, batch_size=size, num_workers=num_workers) for size in sizes]
    seen = [index for batch in run(iter(builds), [2, 1], num_epochs=1) for index in batch["x"]]
    straight = [index for batch in run(again(stream, num_workers=num_workers), [], 1) for index in batch["x"]]
    assert sorted(seen) == sorted(straight)
    if num_workers == 0:
        assert seen == straight


def test_a_stream_that_draws_from_the_global_generators_survives_another_batch_size():
    builds = [lambda: build("global shuffle", batch_size=4), lambda: build("global shuffle", batch_size=6)]
    whole = run(iter(builds), [2], num_epochs=1)
    builds = [builds[0], builds[1], builds[1]]
    assert run(iter(builds), [2, 1], num_epochs=1) == whole
    assert sorted(index for batch in whole for index in batch["x"]) == list(range(23))


def test_a_state_saves_reading(caplog):
    for make, num_read in ((Stateful, 3), (NoisyStream, 23)):
        loader = Loader(make(), batch_size=4, shows_progress=False, is_training=True)
        share = {"num_samples": 20, "batch_sizes": [[0, 4]], "has_ended": False}
        state = {"epoch": 0, "num_samples": 20, "num_batches": 5, "num_workers": 0, "last_worker": 0}
        stream = {"position": 20, "passes": 0} if make is Stateful else None
        loader.load_state_dict({**state, "shares": [{**share, "stream": stream}]})
        assert len(flat_ids(loader)) == 3
        assert loader.dataset.num_read == num_read
    assert [record.message for record in caplog.records] == [
        "NoisyStream has neither a state nor skip() that leads to sample 20: reading and dropping what is "
        "before it."
    ]


def test_what_is_read_past_is_not_collated():
    collated = []
    loader = Loader(
        Stream(), batch_size=4, collate_fn=lambda rows: collated.append(len(rows)), shows_progress=False
    )
    loader.seek(20)
    assert len(list(loader)) == 1
    assert collated == [3]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_reading_past_shows_rate_and_time_to_go_when_it_takes_long(num_workers, capfd):
    class Slow(Stream):
        def __iter__(self):
            for sample in super().__iter__():
                time.sleep(1.3 / 20)
                yield sample

    num_seen = 20 * max(num_workers, 1)
    loader = Loader(Slow(num_seen + 4), batch_size=4, num_workers=num_workers)
    loader.seek(num_seen)
    assert len(flat_ids(loader)) == 4
    shown = capfd.readouterr().err
    assert "Reading past" in shown
    assert "samples/s" in shown
    assert shown.count("\n") == 1  # one of several workers is enough


def test_reading_past_leaves_training_undisturbed():
    torch.manual_seed(0)
    loader = Loader(NoisyStream(), batch_size=4, collate_fn=len, shows_progress=False, is_training=True)
    loader.seek(23)
    iterator = iter(loader)
    before = generator_states()
    assert list(iterator) == []
    assert generator_states() == before


def test_the_state_is_that_of_what_was_handed_out():
    loader = build("stateful", num_workers=2)
    iterator = iter(loader)
    for count in range(1, 4):
        next(iterator)
        state = loader.state_dict()
        assert state["num_samples"] == 4 * count
        assert [share["num_samples"] for share in state["shares"]] == [
            4 * ((count + 1) // 2),
            4 * (count // 2),
        ]
        places = [share["stream"] and share["stream"]["position"] for share in state["shares"]]
        assert places == [4 * ((count + 1) // 2), 4 * (count // 2) or None]
    del iterator


def test_an_evaluation_pays_for_no_state():
    class Counted(Stateful):
        num_asked = 0

        def state_dict(self):
            self.num_asked += 1
            return super().state_dict()

    loader = Loader(Counted(), batch_size=4)
    list(loader)
    assert loader.dataset.num_asked == 0


def test_a_state_that_no_checkpoint_can_hold_is_made_up_for_by_reading(caplog):
    class Opaque(Stateful):
        def state_dict(self):
            return {"position": np.int64(self.position), "passes": 0}

    def make():
        return Loader(Opaque(), batch_size=4, shows_progress=False, is_training=True)

    straight = run(iter([make]), [], num_epochs=1)
    assert run(iter([make] * 3), [2, 1], num_epochs=1) == straight
    assert "numpy.int64" in caplog.text


def test_a_pass_after_a_resumed_one_begins_at_the_beginning():
    for stream in ("table", "formatted"):
        loader = build(stream)
        iterator = iter(loader)
        next(iterator)
        loader.load_state_dict(loader.state_dict())
        rest = flat_ids(loader)
        loader.set_epoch(0)
        assert len(flat_ids(loader)) == len(rest) + 4 == 24


def test_a_stream_with_less_than_before_ends_and_says_so(caplog):
    loader = Loader(Stream(6), batch_size=4, shows_progress=False)
    loader.seek(20)
    assert flat_ids(loader) == []
    assert "ended before sample 20" in caplog.text


class Once:
    """An iterator that must not be asked after its end."""

    def __init__(self, num_samples):
        self.left = num_samples

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        assert self.left >= -1
        if self.left < 0:
            raise StopIteration
        return {"x": self.left}


@pytest.mark.parametrize("is_sized", [False, True])
@pytest.mark.parametrize("num_samples", [5, 6])
def test_a_stream_that_ended_is_not_asked_again(num_samples, is_sized):
    class Short(SizedStream if is_sized else Stream):
        def __iter__(self):
            return Once(self.num_samples)

    for drop_last in (False, True):
        loader = Loader(Short(num_samples), batch_size=3, drop_last=drop_last)
        assert len(list(loader)) == (1 if drop_last and num_samples == 5 else 2)


def test_a_stream_with_a_length_runs_to_its_end_though_nobody_asks_for_more():
    loader = build("sized and stateful, in whole batches")
    iterator = iter(loader)
    for _ in range(6):
        next(iterator)
    assert loader.dataset.state_dict() == {"position": 0, "passes": 1}
    assert loader.state_dict()["shares"][0]["has_ended"]
    loader.load_state_dict(loader.state_dict())
    assert flat_ids(loader) == []


def test_a_stream_that_is_longer_than_it_says_gives_all_it_has():
    class Liar(Stateful):
        def __len__(self):
            return 8

    def make():
        return Loader(Liar(), batch_size=4, is_training=True, shows_progress=False)

    assert flat_ids(make()) == list(range(23))
    first = make()
    iterator = iter(first)
    next(iterator), next(iterator)
    second = make()
    second.load_state_dict(first.state_dict())
    assert flat_ids(second) == list(range(8, 23))


def test_each_worker_draws_its_own_numbers_and_each_epoch_others():
    loader = build("no help", num_workers=2)
    drawn = [value for _ in range(2) for batch in loader for row in batch["noise"] for value in row.tolist()]
    assert len(set(drawn)) == len(drawn)


def test_workers_that_outlive_an_epoch_learn_of_the_next():
    loader = build("no help", num_workers=2, persistent_workers=True)
    epochs = [sorted(index // 100 for index in flat_ids(loader)) for _ in range(2)]
    assert epochs == [[0] * 23, [1] * 23]


@pytest.mark.parametrize("num_samples", range(0, 30))
def test_samples_are_dealt_out_in_turns(num_samples):
    shares, last = deal_out(num_samples, 4, 3)
    owners = [(index // 4) % 3 for index in range(num_samples)]
    assert [share.num_samples for share in shares] == [owners.count(reader) for reader in range(3)]
    is_whole_round = num_samples % 12 == 0
    assert last == (-1 if is_whole_round else owners[-1])


def test_a_checkpoint_without_shares_is_resumed_by_turns():
    straight = run(again("no help", num_workers=2), [], num_epochs=1)
    loader = build("no help", num_workers=2)
    loader.seek(12)
    rest = [{**batch, "dropout": None} for batch in straight[3:]]
    assert [{**batch, "dropout": None} for batch in contents(loader)] == rest


def test_the_batches_of_a_share_are_those_that_were_read():
    share = Share(10).with_batch_size(4)
    assert share.with_batch_size(4) is share
    share = Share(10, [[0, 4]]).with_batch_size(3)
    assert share.batch_sizes == [[0, 4], [10, 3]]
    assert list(Share(15, share.batch_sizes).batches()) == [(0, 4), (4, 4), (8, 2), (10, 3), (13, 2)]
    assert list(chain(Share(0, [[0, 4]]).batches())) == []


def test_only_a_shuffle_buffer_makes_a_stream_of_datasets_lose_its_place():
    lost = {name for name, make in PIPELINES.items() if not keeps_place(make())}
    assert lost == {"shuffled", "shuffled and formatted"}
    assert not keeps_place(datasets.interleave_datasets([table(), PIPELINES["shuffled"]()]))
    assert keeps_place(Stateful())
    assert not keeps_place(Stream())
