"""A pass over a stream: batches in the order they come, from any position, and how far each reader got."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from footplate import rng
from footplate.data.read_ahead import ReadAhead, hand_out
from footplate.data.shares import Ranks, Turn
from footplate.data.stream_reader import Share, StreamReader, StreamSettings, load_own
from footplate.data.worker_reads import seed_of


class WorkerStream(IterableDataset[Any]):
    """What workers iterate: batches of their part of a stream, each with a note of who read how far."""

    def __init__(self, settings: StreamSettings, shares: list[Share], last_worker: int) -> None:
        self.settings = settings
        self.shares = shares
        self.last_worker = last_worker
        self.epoch = torch.zeros((), dtype=torch.int64)
        self.epoch.share_memory_()  # type: ignore[no-untyped-call]  # for workers that outlive an epoch

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        epoch = int(self.epoch)
        if self.settings.is_training and hasattr(self.settings.dataset, "set_epoch"):
            self.settings.dataset.set_epoch(epoch)
        seed = seed_of(self.settings.seed, epoch, -2 - worker.id)  # below what positions are mixed in with
        share, self.shares[worker.id] = self.shares[worker.id], Share()  # for the pass after this one
        reader = StreamReader(self.settings, share, worker.id, seed)
        if worker.id <= self.last_worker:
            yield None  # had its turn in this round already
        for batch in reader:
            yield worker.id, reader.state(), reader.turn, batch


class StreamPass:
    """One pass over a stream by one reader or several, and how far it got.

    Readers give batches in turn. Each goes on where it was: from its state if the dataset has one, else by
    reading again what it read. An epoch is finished by as many workers as began it, for they shared it out.

    Args:
        settings: What to read, and how.
        num_workers: How many processes read; 0 for this one alone.
        start: The state of an earlier pass to go on from.
        keeps_unused: Whether batches count as used at `settle` only, not when they are handed out.
    """

    def __init__(
        self,
        settings: StreamSettings,
        num_workers: int,
        start: dict[str, Any] | None = None,
        keeps_unused: bool = False,
    ) -> None:
        start = for_ranks(start or {}, settings.ranks)
        self.settings, self._keeps_unused = settings, keeps_unused
        self.num_workers: int = start.get("num_workers", num_workers)
        self.num_batches: int = start.get("num_batches", 0)  # handed out
        if "shares" in start:
            self.shares = [Share(**share) for share in start["shares"]]
            self.last_worker: int = start["last_worker"]
        else:
            num_readers = max(self.num_workers, 1)
            num_samples = start.get("num_samples", 0)
            self.shares, self.last_worker = deal_out(num_samples, settings.round_size, num_readers)
            self.shares[0].head = start.get("head")
        self._start = start
        self._num_samples: int = start.get("num_samples", 0)  # handed out, where this process reads
        # where each batch ends that this process has read and not used, and how many of them were handed out
        self._ends: deque[int] = deque(start.get("ahead_ends", ()))
        self._num_given = 0
        # of each batch that was read and not used: its turn
        self._turns: deque[Turn] = deque(Turn((), 0, 0, weight=w) for w in start.get("ahead_weights", ()))
        self._given_turns: list[Turn] = []
        self._notes: deque[tuple[int, Share, Turn]] = deque()  # of batches taken from workers, not handed out
        self.last_turn: Turn | None = None  # of the batch that was handed out last
        self._start_states: rng.RandomStates = start.get("start_states") or rng.to_plain(rng.capture())
        self._reader = StreamReader(settings, self.shares[0], start_states=self._start_states)
        self._ahead = ReadAhead(
            self._read(), self._note_given, keeps_unused, start, find_place=self._reader.state
        )
        self._used = self._count()
        self._is_rewound = False

    def read_here(self) -> ReadAhead:
        """The batches, read in this process."""
        return self._ahead

    def _read(self) -> Iterator[Any]:
        finish = self.settings.finish
        for batch in self._reader:
            self._ends.append(self._reader.share.num_samples)
            assert self._reader.turn is not None
            self._turns.append(self._reader.turn)
            yield batch if finish is None else finish(batch)

    def _note_given(self) -> None:
        self._num_samples = self._ends[self._num_given]
        self._note_turn(self._turns.popleft())
        self._num_given += 1
        self.num_batches += 1
        if not self._keeps_unused:
            self.settle()

    def _note_turn(self, turn: Turn) -> None:
        self._given_turns.append(turn)
        self.last_turn = turn

    def go_on_with(self, held: Sequence[Any]) -> None:
        """Note the generators that workers of an earlier pass held: a state before any batch has them too."""
        if len(held) == len(self.shares) and not self._start:
            pairs = zip(self.shares, held, strict=True)
            self.shares = [replace(share, held_before=states) for share, states in pairs]
            self._used = self._count()

    def for_workers(self) -> WorkerStream:
        """What to give to the loader whose workers read."""
        return WorkerStream(self.settings, list(self.shares), self.last_worker)

    def take(self, items: Iterator[Any], is_ahead: bool = False) -> Iterator[Any]:
        """The batches that workers read, their notes taken off.

        Args:
            items: What the workers give.
            is_ahead: Take each from them before the one in front of it is handed out.
        """
        return hand_out(self._without_notes(items), self._note_item, is_ahead)

    def _without_notes(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            if item is not None:
                worker, share, turn, batch = item
                self._notes.append((worker, share, turn))
                yield batch

    def _note_item(self) -> None:
        """The next batch of a worker was handed out."""
        self.last_worker, share, turn = self._notes.popleft()
        self._note_turn(turn)
        self.shares[self.last_worker] = share
        self.num_batches += 1
        if not self._keeps_unused:
            self.settle()

    def settle(self) -> None:
        """An update was made of all that was handed out."""
        self._used = self._count()
        for _ in range(self._num_given):
            self._ends.popleft()
        self._num_given = 0
        self._given_turns.clear()
        if self._keeps_unused:
            self._ahead.settle()

    def given_weights(self) -> list[float]:
        """Of each batch since the last `settle`: what its loss is multiplied by."""
        return [turn.weight for turn in self._given_turns]

    @property
    def samples_used(self) -> int:
        """Samples that finished updates have used, over all processes."""
        if self.num_workers > 0:
            return sum(share.num_samples for share in self._used["shares"])
        return int(self._used["num_samples"])

    def rewind(self) -> None:
        """Forget what was read since the last finished update: another process reads it again."""
        self._ahead.rewind()
        self._is_rewound = True

    def _count(self) -> dict[str, Any]:
        """What was handed out so far."""
        counts: dict[str, Any] = {"num_batches": self.num_batches, "num_samples": self._num_samples}
        if self.num_workers > 0:
            counts.update(last_worker=self.last_worker, shares=list(self.shares))
        return counts

    def state(self) -> dict[str, Any]:
        """How far the pass got, counting what was used and not what was read ahead."""
        is_unused = bool(self._start) and self._used["num_batches"] == self._start["num_batches"]
        # what this process has read since belongs to the state, though no update has used it
        if is_unused and (self.num_workers > 0 or self._is_rewound or not self._reader.has_begun):
            return self._start
        state = {**self._used, "num_workers": self.num_workers}
        if self.settings.ranks.count > 1:
            state["ranks"] = [self.settings.ranks.rank, self.settings.ranks.count]
        if self.num_workers > 0:
            state["num_samples"] = sum(share.num_samples for share in state["shares"])
        else:
            state.update(self._ahead.state(), last_worker=self.last_worker, start_states=self._start_states)
            num_ahead = len(state.get("ahead", ()))
            state["ahead_ends"] = list(islice(self._ends, num_ahead))
            turns = islice(chain(self._given_turns, self._turns), num_ahead)
            state["ahead_weights"] = [turn.weight for turn in turns]
            state["shares"] = [
                self._ahead.place or self._find_share([state["num_samples"], *state["ahead_ends"]])
            ]
        return {**state, "shares": [vars(share).copy() for share in state["shares"]]}

    def _find_share(self, ends: list[int]) -> Share:
        """Where the reader goes on: after the last of `ends`, by reading again if it has read further."""
        if self._is_rewound or self._reader.share.num_samples != ends[-1]:
            return replace(self._reader.share, num_samples=ends[-1], stream=None, has_ended=False)
        return self._reader.state()


def for_ranks(state: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """A state without what this process had read ahead, if another number of processes goes on."""
    is_same = list(state.get("ranks", (0, 1))) == [ranks.rank, ranks.count]
    if is_same or state.get("num_workers", 0) > 0:
        return state
    # the reader stood behind those batches: it finds the place before them by reading again
    left_out = ("shares", "last_worker", "ahead", "ahead_ends", "ahead_states", "ahead_weights")
    kept = {name: value for name, value in state.items() if name not in left_out}
    head = next((share.get("head") for share in state.get("shares", ())), None)
    return kept if head is None else {**kept, "head": head}


def deal_out(num_samples: int, batch_size: int, num_readers: int) -> tuple[list[Share], int]:
    """The shares of readers that took turns until so many samples were given, and who was the last."""
    rounds, rest = divmod(num_samples, batch_size * num_readers)
    shares = []
    for reader in range(num_readers):
        of_last_round = min(max(rest - reader * batch_size, 0), batch_size)
        shares.append(Share(rounds * batch_size + of_last_round, [[0, batch_size]]))
    return shares, (rest + batch_size - 1) // batch_size - 1


def load_end(dataset: Any, state: dict[str, Any]) -> None:
    """Leave a dataset as an earlier pass left it: a stream of the user's own may go on from there."""
    if state.get("num_workers") == 0:
        load_own(dataset, state["shares"][0]["stream"])
