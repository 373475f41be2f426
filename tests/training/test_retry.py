"""After memory ran out: smaller pieces of the same update, or a smaller batch size."""

from __future__ import annotations

import gc

import pytest
import torch
from transformers.trainer_utils import find_executable_batch_size as original

from footplate.training.retry import MicroBatches, find_executable_batch_size

FULL = RuntimeError("CUDA out of memory.")


@pytest.fixture(scope="module", autouse=True)
def _quick_garbage_collection():
    """The original collects garbage at every try: 0.2 s each, unless what is imported stands aside."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def rows(*sizes):
    return [{"x": torch.arange(size)} for size in sizes]


def sizes(pieces):
    return [len(piece["x"]) for piece in pieces]


def test_switched_off_it_hands_batches_through_and_never_retries():
    micro_batches = MicroBatches(enabled=False, max_rows=2)
    loaded = rows(8, 8)
    assert micro_batches.cut(loaded) is loaded
    assert not micro_batches.shrink(FULL, loaded)


def test_each_lack_of_memory_halves_the_pieces_until_one_row():
    micro_batches, loaded, seen = MicroBatches(enabled=True), rows(9, 4), []
    pieces = micro_batches.cut(loaded)
    while micro_batches.shrink(FULL, pieces):
        pieces = micro_batches.cut(loaded)
        seen.append(sizes(pieces))
    assert seen == [[4, 4, 1, 4], [2, 2, 2, 2, 1, 2, 2], [1] * 13]


def test_the_size_that_fits_is_kept_for_the_next_update():
    micro_batches = MicroBatches(enabled=True)
    assert micro_batches.shrink(FULL, micro_batches.cut(rows(8)))
    assert sizes(micro_batches.cut(rows(8, 3))) == [4, 4, 3]
    assert MicroBatches(enabled=True, max_rows=4).cut(rows(8))[1]["x"].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("out of memory")], ids=repr)
def test_other_errors_are_not_retried(error):
    micro_batches = MicroBatches(enabled=True)
    assert not micro_batches.shrink(error, micro_batches.cut(rows(8)))
    assert micro_batches.max_rows is None


def test_a_retry_says_which_size_it_goes_on_with(caplog):
    micro_batches = MicroBatches(enabled=True)
    assert micro_batches.shrink(FULL, micro_batches.cut(rows(8)))
    assert "micro-batches of 8: continuing with 4" in caplog.text
    assert "auto_find_batch_size" in caplog.text


def sizes_tried(decorator, starting_batch_size, limit, num_calls=2):
    tried = []

    @decorator(starting_batch_size=starting_batch_size, auto_find_batch_size=True)
    def run(batch_size, name, factor=1):
        tried.append(batch_size)
        if batch_size > limit:
            raise FULL
        return name, batch_size * factor

    return [run("run", factor=2) for _ in range(num_calls)], tried


@pytest.mark.parametrize(("start", "limit"), [(128, 128), (100, 60), (128, 1), (7, 3), (1, 1)])
def test_sizes_tried_are_those_of_the_original(start, limit):
    found, expected = (sizes_tried(find, start, limit) for find in (find_executable_batch_size, original))
    assert found == expected


def test_where_not_even_one_row_fits_it_says_so_as_the_original():
    for find in (find_executable_batch_size, original):
        with pytest.raises(RuntimeError, match="No executable batch size found"):
            sizes_tried(find, 8, 0)


def test_an_error_of_another_kind_comes_through():
    @find_executable_batch_size(auto_find_batch_size=True)
    def run(batch_size):
        raise KeyError(batch_size)

    with pytest.raises(KeyError, match="128"):
        run()


@pytest.mark.parametrize("find", [find_executable_batch_size, original])
def test_without_the_switch_the_function_is_called_once_with_the_first_size(find):
    def run(name, batch_size):
        return name, batch_size

    assert find(run, starting_batch_size=16)("run") == ("run", 16)
