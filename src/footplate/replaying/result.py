"""`Replay`: what a replay found, as plain values and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from footplate.instruments.compare import Difference
from footplate.instruments.measures import ModuleMeasure, RowMeasure, UpdateMeasure
from footplate.replaying import text


@dataclass
class Mismatch:
    """A logged value that came out otherwise."""

    step: int
    key: str
    logged: Any
    found: Any


@dataclass
class Replay:
    """One update of a run, made again; printed, it tells what happened."""

    run: str  # the folder
    step: int
    checkpoint: str | None  # where it went on from; None for the start
    first_step: int  # the updates done by then
    seconds: float
    update: UpdateMeasure
    compared_steps: list[int] = field(default_factory=list)  # of the logs that were compared
    mismatches: list[Mismatch] = field(default_factory=list)
    before: list[tuple[int, float, float]] = field(default_factory=list)  # step, loss, gradient norm
    changed: list[str] = field(default_factory=list)  # what differs from the run that wrote the checkpoint
    error: str | None = None  # what ended the update
    notes: list[str] = field(default_factory=list)
    other: str | None = None  # the run it was compared with
    differences: list[Difference] | None = None

    @property
    def is_same(self) -> bool | None:
        """Whether every log up to this update came out the same to the last bit; None if there is none."""
        return not self.mismatches if self.compared_steps else None

    @property
    def rows(self) -> list[RowMeasure]:
        """The rows of the update, in the order of the batch."""
        return self.update.rows

    @property
    def modules(self) -> list[ModuleMeasure]:
        """The modules, in the order in which they ran."""
        return self.update.modules

    @property
    def loss(self) -> float | None:
        """The loss of the update."""
        return self.update.loss

    @property
    def grad_norm(self) -> float | None:
        """The norm of its gradients."""
        return self.update.grad_norm

    @property
    def learning_rate(self) -> float | None:
        """The learning rate that it used."""
        return self.update.learning_rate

    @property
    def first_nonfinite(self) -> ModuleMeasure | None:
        """The first module whose output, or else whose gradient, is not finite; None if all are."""
        found = self.update.find_first_nonfinite()
        name = self.update.first_nonfinite_gradient
        by_gradient = (module for module in self.modules if module.name == name)
        by_norm = (module for module in reversed(self.modules) if not module.is_finite)
        return found or next(by_gradient, None) or next(by_norm, None)

    @property
    def nonfinite_rows(self) -> list[RowMeasure]:
        """The rows of which something is not finite."""
        return [row for row in self.rows if not row.is_finite]

    @property
    def exit_code(self) -> int:
        """0 if it came out as logged, or if nothing was logged; 1 otherwise."""
        return 1 if self.mismatches else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {**asdict(self), "update": self.update.to_dict()}

    def __str__(self) -> str:
        return self.describe()

    def describe(self, all_rows: bool = False, all_modules: bool = False) -> str:
        """What was found, as text.

        Args:
            all_rows: Show every row, not only those with the largest loss.
            all_modules: Show every module, not only those with the largest gradients.
        """
        lines = [text.describe_origin(self), text.describe_verdict(self)]
        if self.error is not None:
            lines.append(f"The update ended with {self.error}")
        lines += ["", text.describe_update(self.update)]
        lines += [*text.describe_nonfinite(self), *text.describe_way(self)]
        if self.differences is not None:
            lines += ["", *text.describe_differences(self)]
        lines += ["", text.show_rows(self.rows, all_rows), "", text.show_modules(self.modules, all_modules)]
        lines += ["", *self.notes] if self.notes else []
        return "\n".join(lines)


def compare_logs(
    logged: Mapping[int, Mapping[str, Any]], found: list[dict[str, Any]], first_step: int, step: int
) -> tuple[list[int], list[Mismatch]]:
    """The steps that both logged after `first_step` and up to `step`, and the values that differ."""
    steps, mismatches = [], []
    for entry in found:
        at = int(entry.get("step", 0))
        if "loss" not in entry or not first_step < at <= step or at not in logged:
            continue
        steps.append(at)
        for key in text.COMPARED:
            if key in entry and key in logged[at] and repr(float(entry[key])) != repr(float(logged[at][key])):
                mismatches.append(Mismatch(at, key, logged[at][key], entry[key]))
    return steps, mismatches
