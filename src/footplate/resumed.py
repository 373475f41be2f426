"""What stays of a run's records when the run resumes: it makes everything after that point again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

Record = TypeVar("Record")


class ResumePoint(NamedTuple):
    """Where a run starts or resumes.

    Args:
        step: The updates done by then; 0 at the start.
        num_logs: The logs made by then; None if that is not known.
    """

    step: int
    num_logs: int | None = None

    @property
    def is_start(self) -> bool:
        """Whether the run has done nothing yet, so that no record can be its own."""
        return not self.step and not self.num_logs

    def keeps(self, step: float, log_number: int | None = None) -> bool:
        """Whether a record of this step stays; of a log, its number among the logs decides if it is known."""
        if log_number is not None and self.num_logs is not None:
            return log_number <= self.num_logs  # a checkpoint may lie between two logs of the same step
        return step <= self.step

    def keep(self, records: Iterable[Record], step_of: Callable[[Record], float]) -> list[Record]:
        """The records that stay."""
        return [record for record in records if self.keeps(step_of(record))]

    def count_kept(self, steps: Sequence[int]) -> int:
        """How many records stay, given their steps in rising order; fast even if there are many."""
        return bisect_right(steps, self.step)
