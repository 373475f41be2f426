"""What is measured of one update, as plain values: of rows, of modules, of the update as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

WHOLE_MODEL = "(model)"  # the name of the outermost module, which has none


@dataclass
class ModuleMeasure:
    """One module in one update: what it gave, its own gradients, and how far its own weights moved."""

    name: str
    kind: str  # the name of its class
    low: float | None = None  # of the finite values of its output; None if it gave no floats
    high: float | None = None
    num_nonfinite: int = 0  # values of its output that are NaN or infinite
    rows: list[int] = field(default_factory=list)  # those that these values belong to, counted in the update
    grad_norm: float | None = None  # of its own parameters, before clipping
    weight_norm: float | None = None  # before the update
    update_norm: float | None = None  # of the difference that the update made
    marks: dict[str, str] = field(default_factory=dict)  # hashes, to compare two runs

    @property
    def is_finite(self) -> bool:
        """Whether its output and its gradients are finite."""
        return not self.num_nonfinite and (self.grad_norm is None or math.isfinite(self.grad_norm))

    @property
    def update_ratio(self) -> float | None:
        """The size of the update against that of the weights."""
        if self.update_norm is None or not self.weight_norm:
            return None
        return self.update_norm / self.weight_norm


@dataclass
class RowMeasure:
    """One row of an update."""

    micro_batch: int
    place: int  # within the micro-batch
    number: Any = None  # its index in the dataset; None where it has none
    rank: int = 0
    loss: float | None = None  # of this row alone, without dropout; None if it could not be computed
    nonfinite_inputs: list[str] = field(default_factory=list)  # entries of the batch with NaN or infinity
    nonfinite_in: str | None = None  # the first module whose output for this row is not finite
    shown: dict[str, Any] = field(default_factory=dict)  # input, target, prediction in readable form

    @property
    def name(self) -> str:
        """What people call the row."""
        where = f"micro-batch {self.micro_batch}, place {self.place}"
        where = f"rank {self.rank}, {where}" if self.rank else where
        return f"row {self.number}" if self.number is not None else f"the row at {where}"

    @property
    def is_finite(self) -> bool:
        """Whether nothing about it is NaN or infinite."""
        is_number = self.loss is None or math.isfinite(self.loss)
        return is_number and not self.nonfinite_inputs and self.nonfinite_in is None


@dataclass
class UpdateMeasure:
    """One update: its modules in the order in which they ran, its rows in the order of the batch."""

    loss: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    modules: list[ModuleMeasure] = field(default_factory=list)
    rows: list[RowMeasure] = field(default_factory=list)
    first_nonfinite_gradient: str | None = None  # the module where backward met it first
    nonfinite_weights: str | None = None  # a module whose weights were damaged before the update
    batch_marks: list[str] = field(default_factory=list)  # a hash of each micro-batch

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UpdateMeasure:
        """What `to_dict` gave, as it was."""
        rest = {name: value for name, value in values.items() if name not in ("modules", "rows")}
        modules = [ModuleMeasure(**entry) for entry in values["modules"]]
        return cls(**rest, modules=modules, rows=[RowMeasure(**entry) for entry in values["rows"]])

    def find_first_nonfinite(self) -> ModuleMeasure | None:
        """The first module, in the order of forward, whose output is not finite."""
        return next((module for module in self.modules if module.num_nonfinite), None)


def join_ranks(parts: list[UpdateMeasure]) -> UpdateMeasure:
    """What several ranks measured of one update, in one; gradients and weights are those of the first."""
    whole = parts[0]
    for rank, part in enumerate(parts[1:], start=1):
        num_before = len(whole.rows)
        others = {module.name: module for module in part.modules}
        for module in whole.modules:
            _join_module(module, others.get(module.name), num_before)
        for row in part.rows:
            row.rank = rank
        whole.rows += part.rows
        whole.batch_marks += part.batch_marks
        whole.nonfinite_weights = whole.nonfinite_weights or part.nonfinite_weights
        whole.first_nonfinite_gradient = whole.first_nonfinite_gradient or part.first_nonfinite_gradient
    losses = [part.loss for part in parts if part.loss is not None]
    whole.loss = sum(losses) / len(losses) if losses else None
    return whole


def _join_module(module: ModuleMeasure, other: ModuleMeasure | None, num_rows_before: int) -> None:
    if other is None:
        return
    module.low = smallest((module.low, other.low))
    module.high = largest((module.high, other.high))
    module.num_nonfinite += other.num_nonfinite
    module.rows += [row + num_rows_before for row in other.rows]
    if "output" in module.marks or "output" in other.marks:
        module.marks["output"] = module.marks.get("output", "") + other.marks.get("output", "")


def smallest(values: Iterable[float | None]) -> float | None:
    """The smallest of the numbers that are there."""
    return min(_numbers(values), default=None)


def largest(values: Iterable[float | None]) -> float | None:
    """The largest of the numbers that are there."""
    return max(_numbers(values), default=None)


def _numbers(values: Iterable[float | None]) -> Iterator[float]:
    return (value for value in values if value is not None)
