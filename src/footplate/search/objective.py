"""The numbers that a search compares trials by, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from footplate.search.outcomes import MAXIMIZE, MINIMIZE, is_better
from footplate.search.spaces import default_compute_objective

PREFIX = "eval_"


class Evaluated(NamedTuple):
    """The objectives of one evaluation, and the update that it belongs to."""

    values: list[float]
    step: int


class Objective:
    """What a search compares trials by.

    Args:
        compute: The number, or several, from the metrics of an evaluation.
        directions: "minimize" or "maximize" for each of them.
        name: What it is called for people.
        metric: The metric that it reads, if it reads a single one.
    """

    def __init__(
        self,
        compute: Callable[[dict[str, float]], Any],
        directions: Sequence[str],
        name: str,
        metric: str = "",
    ) -> None:
        self.compute, self.directions, self.name, self.metric = compute, list(directions), name, metric

    def read(self, metrics: dict[str, float]) -> list[float]:
        """The objectives of an evaluation; refuses another count than there are directions."""
        found = self.compute(metrics)
        values = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(values) != len(self.directions):
            raise ValueError(
                f"The objective gives {len(values)} number(s), and direction={self.directions} has "
                f"{len(self.directions)}. Give one direction for each number."
            )
        try:
            return [float(value) for value in values]
        except (TypeError, ValueError):
            raise ValueError(
                f"The objective is {found!r}, which is no number. Return a number from compute_objective, or "
                f"set metric_for_best_model to one of {sorted(metrics)}."
            ) from None

    def choose(self, evaluated: Sequence[Evaluated], best_step: int | None) -> Evaluated | None:
        """The evaluation that stands for a trial: its best one, not its last one.

        Args:
            evaluated: The evaluations in order.
            best_step: With several objectives: the update that the run itself calls its best.
        """
        if len(self.directions) > 1:
            marked = [one for one in evaluated if one.step == best_step] or list(evaluated)
            return marked[-1] if marked else None
        best: Evaluated | None = None
        for one in evaluated:
            is_first = best is None or math.isnan(best.values[0])
            if is_first or is_better(one.values[0], best.values[0], self.directions[0]):  # type: ignore[union-attr]
                best = one
        return best

    @property
    def text(self) -> str:
        """The objective in a few words."""
        return f"{' and '.join(f'{way} {self.name}' for way in dict.fromkeys(self.directions))}"


def choose_objective(
    compute: Callable[[dict[str, float]], Any] | None,
    direction: str | Sequence[str] | None,
    metric: str | None,
    greater_is_better: bool | None,
) -> Objective:
    """The objective of a search: the function that was given, else the metric for the best model.

    Args:
        compute: `compute_objective`, if it was given.
        direction: What was given, if anything: "minimize", "maximize", or a list of these.
        metric: `metric_for_best_model`; unset means the loss.
        greater_is_better: Which way of that metric is better.
    """
    directions = check_directions(direction)
    if compute is not None:
        name = getattr(compute, "__name__", type(compute).__name__)
        return Objective(compute, directions or [MINIMIZE], name)
    if metric is None and directions is not None:
        name = "the sum of the metrics of compute_metrics, or eval_loss without them"
        return Objective(lambda metrics: default_compute_objective(metrics), directions, name)
    metric = f"{PREFIX}{(metric or 'loss').removeprefix(PREFIX)}"
    is_greater = not metric.endswith("loss") if greater_is_better is None else greater_is_better
    inferred = [MAXIMIZE if is_greater else MINIMIZE]
    return Objective(lambda metrics: read_metric(metrics, metric), directions or inferred, metric, metric)


def check_directions(direction: str | Sequence[str] | None) -> list[str] | None:
    """The directions as a list; refuses other words."""
    if direction is None:
        return None
    directions = [str(one) for one in ([direction] if isinstance(direction, str) else direction)]
    if not directions or set(directions) - {MINIMIZE, MAXIMIZE}:
        raise ValueError(
            f"direction={direction!r} is not known. Give 'minimize' or 'maximize', or one for each objective."
        )
    return directions


def read_metric(metrics: dict[str, float], name: str) -> float:
    """A metric by its name; an evaluation that has none is told what to change."""
    if name not in metrics:
        raise ValueError(
            f"The search compares trials by {name!r}, which is not among what evaluation gives: "
            f"{sorted(metrics)}. Set metric_for_best_model to one of these, or pass compute_objective."
        )
    return metrics[name]
