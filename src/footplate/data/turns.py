"""Batches as they are handed out: whose turn each is, which one is the last, and what Accelerate is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

from footplate.data.shares import Ranks, Turn

if TYPE_CHECKING:
    from footplate.data.loader import Loader


class WithTurns:
    """Batches of any loader, each with how it is shared with other processes; None where it is not.

    A batch is read ahead only if nobody else knows which one is the last: Accelerate cuts what it gathers at
    the end of a pass, and would take the batch before the last for it.

    Args:
        loader: Where they come from.
    """

    def __init__(self, loader: Any) -> None:
        self._batches, self._loader = iter(loader), loader
        self._is_shared = is_shared(loader)
        self._is_prepared = is_prepared(loader)
        self._reads_ahead = not self._is_prepared and not hasattr(self._batches, "is_last")
        self._ahead: deque[tuple[Any, Turn | None]] = deque()

    def __iter__(self) -> Iterator[tuple[Any, Turn | None]]:
        if not self._is_shared and not self._reads_ahead and not self._ahead:
            return zip(self._batches, repeat(None))  # the usual pass of one process
        return self

    def __next__(self) -> tuple[Any, Turn | None]:
        item = self._ahead.popleft() if self._ahead else self._read()
        if self._reads_ahead:
            try:
                self._ahead.append(self._read())
            except StopIteration:
                self._reads_ahead = False
        return item

    def _read(self) -> tuple[Any, Turn | None]:
        batch = next(self._batches)
        if not self._is_shared:
            return batch, None
        turn: Turn | None = getattr(self._batches, "last_turn", None) or self._loader.last_turn
        return batch, turn

    @property
    def is_last(self) -> bool:
        """Whether no batch comes after the one handed out last."""
        if self._is_prepared:
            return bool(self._loader.end_of_dataloader)
        known: bool | None = getattr(self._batches, "is_last", None)
        return not self._ahead if known is None else known


class Announced:
    """Batches of which Accelerate is told when they begin and end, for its `gather_for_metrics`.

    Args:
        batches: Where they come from.
        loader: Whose they are; it holds what Accelerate asks for.
    """

    def __init__(self, batches: Iterator[Any], loader: Loader) -> None:
        self._loader = loader
        self._items = _Items(batches, loader)
        self.last_turn: Turn | None = None  # of the batch that was handed out last
        loader.end_of_dataloader, loader.remainder = False, -1
        loader.gradient_state._add_dataloader(loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        loader = self._loader
        try:
            batch, self.last_turn = next(self._items)
        except StopIteration:
            loader.gradient_state._remove_dataloader(loader)
            raise
        loader.end_of_dataloader = self.is_last
        if loader.end_of_dataloader and self.last_turn is not None:
            loader.remainder = self.last_turn.num_round % (loader.total_batch_size or 1)
        return batch

    @property
    def is_last(self) -> bool:
        """Whether no batch comes after the one handed out last."""
        return self._items.is_last


class _Items(WithTurns):
    """The same for an iterator of a loader."""

    def __init__(self, batches: Iterator[Any], loader: Loader) -> None:
        self._batches, self._loader = batches, loader
        self._is_shared, self._is_prepared = True, False
        self._reads_ahead = not hasattr(batches, "is_last")
        self._ahead = deque()


def is_shared(loader: Any) -> bool:
    """Whether several processes share out the batches of a loader in turn."""
    ranks = getattr(loader, "ranks", None)
    return isinstance(ranks, Ranks) and ranks.count > 1


def is_prepared(loader: Any) -> bool:
    """Whether Accelerate shares out the batches of a loader, and knows where it ends."""
    is_ours = isinstance(getattr(loader, "ranks", None), Ranks)
    return not is_ours and hasattr(loader, "end_of_dataloader")
