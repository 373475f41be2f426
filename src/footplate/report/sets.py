"""Notes of evaluation sets: of each set the latest, the best, and how some numbers went over the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from footplate.report.plain import shorten
from footplate.report.series import Spaced
from footplate.resumed import ResumePoint

MOST_SETS, MOST_KEPT, MOST_BEST = 20, 60, 8
MOST_COUNT = 1 << 53  # larger integers are not exact in a browser
Block = dict[str, Any]  # what one evaluation of a set gave, with "step"


class SetNotes:
    """The notes of all sets, of one kind.

    Args:
        read: The block of an event; None if its values are wrong, as anybody may write into a journal.
        score: What tells the best block if the run itself does not say which one is.
    """

    def __init__(
        self, read: Callable[[Mapping[str, Any]], Block | None], score: Callable[[Block], float]
    ) -> None:
        self._read, self._score = read, score
        self._sets: dict[str, _OneSet] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Add a note; one with wrong values is ignored."""
        name, step = event.get("set"), read_count(event.get("step"))
        if not isinstance(name, str) or step is None:
            return
        name = shorten(name, 100)
        if name not in self._sets and len(self._sets) >= MOST_SETS:
            return
        block = self._read(event)
        if block is not None:
            found = self._sets.setdefault(name, _OneSet())
            found.add({"step": step, **block}, event.get("is_best") is True, self._score)

    def cut(self, point: ResumePoint) -> None:
        """Drop what a resumed run makes again."""
        for one in self._sets.values():
            one.cut(point)
        self._sets = {name: one for name, one in self._sets.items() if one.blocks}

    def items(self) -> list[tuple[str, list[Block], Block | None, bool]]:
        """Of each set its name, its blocks in order, the best, and whether the run itself chose that one."""
        return [(name, one.blocks, one.best, one.is_chosen) for name, one in self._sets.items()]

    def to_plain(self) -> Any:
        """The latest and the best block of each set; None if there is none."""
        found = [
            {"name": name, "latest": blocks[-1], "best": best, "is_chosen": is_chosen}
            for name, blocks, best, is_chosen in self.items()
        ]
        return found or None


def _step_of(block: Block) -> int:
    return int(block["step"])


def _put(blocks: Spaced[Block], block: Block) -> None:
    """Add a block, in the place of an earlier one of the same step.

    An evaluation that was interrupted is made again, and many scripts evaluate once more at the end.
    """
    if blocks.last is not None and blocks.last["step"] >= block["step"]:
        blocks.cut(ResumePoint(block["step"] - 1))
    blocks.add(block)


class _OneSet:
    """The blocks of one set."""

    def __init__(self) -> None:
        self._all: Spaced[Block] = Spaced(MOST_KEPT, _step_of)
        self._chosen: Spaced[Block] = Spaced(MOST_BEST, _step_of)  # those of which the run said so
        self._highest: Spaced[Block] = Spaced(MOST_BEST, _step_of)  # those that were better than all before

    def add(self, block: Block, is_best: bool, score: Callable[[Block], float]) -> None:
        _put(self._all, block)
        if is_best:
            _put(self._chosen, block)
        if self._highest.last is None or score(block) > score(self._highest.last):
            _put(self._highest, block)

    def cut(self, point: ResumePoint) -> None:
        for blocks in (self._all, self._chosen, self._highest):
            blocks.cut(point)

    @property
    def blocks(self) -> list[Block]:
        return self._all.items

    @property
    def is_chosen(self) -> bool:
        return self._chosen.last is not None

    @property
    def best(self) -> Block | None:
        return self._chosen.last if self._chosen.last is not None else self._highest.last


def read_count(value: Any) -> int | None:
    """The value if it is a number of things, else None."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_COUNT
    return value if is_count else None


def read_rows(value: Any, width: int, most: int) -> list[list[Any]] | None:
    """A list of at most so many lists of one width; None if it is something else."""
    if not isinstance(value, list) or len(value) > most:
        return None
    return value if all(isinstance(row, list) and len(row) == width for row in value) else None


def read_counts(value: Any, length: int) -> list[int] | None:
    """A list of so many numbers of things; None if it is something else."""
    if not isinstance(value, list) or len(value) != length:
        return None
    return value if all(read_count(count) is not None for count in value) else None
