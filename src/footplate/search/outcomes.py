"""How trials ended, and which of them is the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from operator import le
from typing import Any

COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
MINIMIZE, MAXIMIZE = "minimize", "maximize"


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Args:
        number: Which trial of the search it was.
        state: "complete", "pruned" or "failed".
        params: The values that it chose, by name.
        values: Its objectives at its best evaluation; None without an evaluation.
        step: The update of that evaluation.
        folder: The name of its folder inside that of the search.
        checkpoint: The name of the checkpoint of that evaluation inside the folder; None if there is none.
        seconds: How long it took.
        error: What went wrong, in a line.
        reported: The objectives that were reported, by update.
        run_id: What the backend itself calls it, if it has a name of its own.
    """

    number: int
    state: str
    params: dict[str, Any] = field(default_factory=dict)
    values: list[float] | None = None
    step: int | None = None
    folder: str | None = None
    checkpoint: str | None = None
    seconds: float = 0.0
    error: str | None = None
    reported: dict[str, list[float]] = field(default_factory=dict)
    run_id: str | None = None

    def replace(self, **changes: Any) -> Outcome:
        """The same with other fields."""
        return dataclasses.replace(self, **changes)

    def to_line(self) -> dict[str, Any]:
        """The outcome as a file keeps it."""
        return asdict(self)

    @classmethod
    def from_line(cls, line: dict[str, Any]) -> Outcome:
        """The outcome that a line describes; fields of other versions are left out."""
        known = {entry.name for entry in fields(cls)}
        return cls(**{name: value for name, value in line.items() if name in known})


def is_better(value: float, other: float, direction: str) -> bool:
    """Whether a number is better than another; one that is not a number never is.

    Args:
        value: The number.
        other: What it is compared with.
        direction: "minimize" or "maximize".
    """
    if math.isnan(value) or math.isnan(other):
        return not math.isnan(value)
    return value > other if direction == MAXIMIZE else value < other


def find_best(outcomes: Sequence[Outcome], directions: Sequence[str]) -> list[Outcome]:
    """The best complete trial; with several objectives, all that no other one surpasses.

    Args:
        outcomes: How trials ended.
        directions: "minimize" or "maximize" for each objective.
    """
    complete = [outcome for outcome in outcomes if outcome.state == COMPLETE and outcome.values]
    if len(directions) > 1:
        return _find_front(complete, directions)
    best: Outcome | None = None
    for outcome in complete:
        assert outcome.values
        if best is None or is_better(outcome.values[0], (best.values or [math.nan])[0], directions[0]):
            best = outcome
    return [best] if best is not None else []


def _find_front(outcomes: Sequence[Outcome], directions: Sequence[str]) -> list[Outcome]:
    """The trials that no other one surpasses: none is better by one objective and worse by none."""
    keys = [
        tuple(_rank_key(*pair) for pair in zip(outcome.values or [], directions, strict=True))
        for outcome in outcomes
    ]
    front: list[tuple[tuple[bool, float], ...]] = []
    for key in sorted(set(keys)):  # one that surpasses another comes before it
        if not any(all(map(le, other, key)) for other in front):
            front.append(key)
    found = set(front)
    return [outcome for outcome, key in zip(outcomes, keys, strict=True) if key in found]


def _rank_key(value: float, direction: str) -> tuple[bool, float]:
    """Smaller for a better number, and largest for one that is not a number."""
    if math.isnan(value):
        return True, 0.0
    return False, -value if direction == MAXIMIZE else value
