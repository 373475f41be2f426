"""How trials ended, and which of them is the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
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
        return [one for one in complete if not any(_surpasses(other, one, directions) for other in complete)]
    best: Outcome | None = None
    for outcome in complete:
        assert outcome.values
        if best is None or is_better(outcome.values[0], (best.values or [math.nan])[0], directions[0]):
            best = outcome
    return [best] if best is not None else []


def _surpasses(one: Outcome, other: Outcome, directions: Sequence[str]) -> bool:
    """Whether a trial is better by one objective and worse by none."""
    rows = list(zip(one.values or [], other.values or [], directions, strict=True))
    return any(is_better(*row) for row in rows) and not any(is_better(b, a, way) for a, b, way in rows)
