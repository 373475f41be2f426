"""A run knows how far it has got in its data, whatever gives the batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from footplate import rng
from footplate.data.feed import Feed, describe_fill, find_state, start_at
from footplate.data.loader import Loader
from footplate.data.order import RandomOrder
from footplate.data.shares import DIVIDE, FILL, Ranks
from numbered import Numbers, Stream, flat_ids


class Plain:
    """A loader that can only start at the beginning, and draws a number when it does."""

    def __init__(self, num_batches: int = 4) -> None:
        self.num_batches = num_batches
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Any:
        torch.rand(())
        return iter([{"x": torch.full((2,), float(k))} for k in range(self.num_batches)])


class Stateful(Plain):
    """A loader that says where it is and goes there."""

    start = 0

    def state_dict(self) -> dict[str, Any]:
        return {"start": self.start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["start"]

    def __iter__(self) -> Any:
        batches = list(super().__iter__())[self.start :]
        self.start = 0
        return iter(batches)


def values(batches: Any) -> list[float]:
    return [float(batch["x"][0]) for batch in batches]


def test_an_epoch_is_counted_from_its_start():
    feed = Feed(Plain())
    batches = feed.start_epoch(0)
    feed.advance([next(batches), next(batches)])
    assert (feed.epoch, feed.batches_done, feed.samples_done) == (0, 2, 4)
    assert values(feed.start_epoch(1)) == [0, 1, 2, 3]
    assert (feed.epoch, feed.batches_done, feed.samples_done) == (1, 0, 0)
    assert feed.loader.epochs == [0, 1]


def test_a_resumed_epoch_goes_on_after_what_was_used():
    feed = Feed(Plain(), epoch=2, samples_done=4, batches_done=2, is_begun=True)
    assert values(feed.start_epoch(2)) == [2, 3]
    assert (feed.epoch, feed.batches_done) == (2, 2)
    assert values(feed.start_epoch(3)) == [0, 1, 2, 3]


def test_an_epoch_that_was_not_begun_starts_at_its_beginning():
    assert values(Feed(Plain(), epoch=2).start_epoch(2)) == [0, 1, 2, 3]


def test_a_loader_with_a_state_goes_to_its_place_by_itself():
    feed = Feed(Stateful(), epoch=0, samples_done=2, batches_done=1, is_begun=True)
    feed.resume({"start": 3})
    assert feed.state() == {"start": 3}
    assert values(feed.start_epoch(0)) == [3]


def test_a_state_that_the_loader_cannot_take_is_left_aside():
    feed = Feed(Plain(), epoch=0, samples_done=2, batches_done=1, is_begun=True)
    feed.resume({"start": 3})
    assert values(feed.start_epoch(0)) == [1, 2, 3]


def test_starting_a_resumed_epoch_leaves_the_random_states_of_the_checkpoint():
    """Starting a loader draws a number, and the run that wrote the checkpoint had drawn it already."""
    with rng.scoped(seed=1):
        states = rng.capture()
        expected = float(torch.rand(()))
        torch.rand(7)
        feed = Feed(Plain(), epoch=0, samples_done=2, batches_done=1, is_begun=True)
        feed.random_states = states
        feed.start_epoch(0)
        assert float(torch.rand(())) == expected
        feed.start_epoch(1)  # a fresh epoch draws its number as ever
        rng.restore(states)
        torch.rand(2)
        following = float(torch.rand(()))
        rng.restore(states)
        torch.rand(())
        feed.start_epoch(2)
        assert float(torch.rand(())) == following


def test_the_state_of_a_foreign_loader_is_that_before_an_unfinished_update():
    feed = Feed(Stateful())
    feed.start_epoch(0)
    feed.loader.start = 1
    feed.begin_update()
    feed.loader.start = 3
    assert feed.state() == {"start": 1}
    feed.advance([])
    assert feed.state() == {"start": 3}


def test_a_shuffled_loader_of_the_users_own_is_resumed_in_its_order():
    def build() -> Feed:
        return Feed(DataLoader(Numbers(), batch_size=4, shuffle=True))

    with rng.scoped(seed=1):
        first = build()
        batches = first.start_epoch(0)
        seen = flat_ids([next(batches), next(batches)])
        state, states = first.state(), rng.capture()
        rest = flat_ids(batches)
        rng.seed_all(9)
        second = Feed(first.loader, 0, samples_done=8, batches_done=2, is_begun=True)
        second.resume(state)
        second.random_states = states
        assert flat_ids(second.start_epoch(0)) == rest
        assert sorted(seen + rest) == list(range(23))


def test_a_loader_without_a_state_has_none():
    assert find_state(Plain()) is None
    assert find_state(None) is None


def test_an_error_inside_a_state_dict_surfaces():
    class Broken(Plain):
        def state_dict(self) -> dict[str, Any]:
            return self.no_such_attribute

    with pytest.raises(AttributeError, match="no_such_attribute"):
        find_state(Broken())


def test_a_pass_starts_late_by_seeking_or_else_by_reading_past(caplog):
    dataset, order = Numbers(), RandomOrder(23, 0)
    assert flat_ids(start_at(Loader(dataset, batch_size=4, sampler=order), 8, 2)) == order.indices(0)[8:]
    assert len(dataset.read) == 15
    assert not caplog.records
    assert flat_ids(start_at(Loader(Stream(), batch_size=4), 8, 2)) == list(range(8, 23))
    assert flat_ids(start_at(DataLoader(Numbers(), batch_size=4), 8, 2)) == list(range(8, 23))
    assert "DataLoader cannot seek: reading and dropping 2 batches" in caplog.text


@pytest.mark.parametrize(("num_rows", "is_said"), [(12, False), (13, True)])
def test_rows_that_fill_the_last_round_are_named(num_rows, is_said):
    rows = list(range(num_rows))
    loader = Loader(rows, batch_size=3, ranks=Ranks(0, 2, FILL))
    notice = describe_fill(loader)
    assert (notice is not None) == is_said
    if is_said:
        assert "5 rows from its start" in notice
    assert describe_fill(Loader(rows, batch_size=3, ranks=Ranks(0, 2, DIVIDE))) is None
    assert describe_fill(Loader(rows, batch_size=3)) is None
