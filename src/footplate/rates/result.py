"""`LearningRates`: what a sweep of learning rates measured and says."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from footplate.rates.advice import explain_end, explain_problem
from footplate.rates.curve import study
from footplate.rates.text import draw_curve
from footplate.report.files import save_text

WIDTH = 79  # of a line of text
HEIGHT = 620  # of the frame in a notebook, in pixels


@dataclass(frozen=True)
class LearningRates:
    """What `Trainer.find_learning_rate()` measured: print it, show it in a notebook, or `save` it as a page.

    Args:
        rates: The rate of each update, rising.
        losses: The loss of each update, before its step.
        smoothed: The losses without most of what differs from batch to batch.
        suggestion: The rate where the smoothed loss falls fastest, rounded; None where the curve shows none.
        minimum: The rate where the smoothed loss is lowest; None without a clear fall.
        diverges: The rate from which on the loss stays above its start; None if it does not.
        stopped: Why the sweep ended: "complete", "exploded", "loss not finite", "gradients not finite" or
            "no more data".
        problem: Why there is no suggestion, and what to try; empty where there is one.
        current: The rate that is set: `learning_rate`, or that of the first group of your own optimizer.
        factors: The rate of each parameter group, in multiples of `rates`.
        planned: The lowest rate, the highest one, and the number of updates, as they were asked for.
        name: The name of the run.
        seconds: How long it took.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggestion: float | None
    minimum: float | None
    diverges: float | None
    stopped: str
    problem: str
    current: float
    factors: tuple[float, ...]
    planned: tuple[float, float, int]
    name: str
    seconds: float

    @property
    def still_falls(self) -> bool:
        """Whether the loss was lowest at the highest rate, so that the curve is not seen to its end."""
        return self.minimum is not None and self.minimum == self.rates[-1]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_html(self) -> str:
        """The page: one file that needs no network."""
        from footplate.rates.page import build_rates_page

        return build_rates_page(self.to_dict())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page."""
        save_text(self.to_html(), path)

    def _repr_html_(self) -> str:
        from footplate.report.page import frame_page

        return frame_page(self.to_html(), HEIGHT)

    def __repr__(self) -> str:
        return f"LearningRates(suggestion={self.suggestion}, {len(self.rates)} rates)"

    def __str__(self) -> str:
        lowest, highest, num_updates = self.planned
        if self.suggestion is not None:
            lines = [
                f"suggestion  {self.suggestion:g}, where the loss falls fastest; {self.current:g} is set"
            ]
        else:
            lines = [f"suggestion  none: {self.problem}"]
        if self.losses:
            lines.append(f"loss        {self._describe_loss()}")
        lines.append(
            f"tried       {len(self.rates)} of {num_updates} rates from {lowest:g} to {highest:g}, "
            f"{explain_end(self.stopped)}, in {self.seconds:.1f} s"
        )
        if len(set(self.factors)) > 1:
            distinct = ", ".join(f"{factor:.3g}" for factor in dict.fromkeys(self.factors))
            lines.append(f"groups      each keeps its share of the rate: {distinct}")
        lines = [part for line in lines for part in wrap(line)]
        return "\n".join([*lines, *draw_curve(self.rates, self.smoothed, self.suggestion)])

    def _describe_loss(self) -> str:
        """The curve in words."""
        said = [f"{self.smoothed[0]:.4g} at first"]
        if self.minimum is not None:
            lowest = self.smoothed[self.rates.index(self.minimum)]
            said.append(f"{lowest:.4g} at {self.minimum:.2g} (a tenth of that rate: {self.minimum / 10:.2g})")
        if self.still_falls:
            said.append("lowest at the highest rate: a higher one may show more")
        if self.diverges is not None:
            said.append(f"above its start from {self.diverges:.2g} on")
        return ", ".join(said)


def wrap(line: str) -> list[str]:
    """A line of a name and a text, as lines that fit a terminal."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False
    )


def build_result(
    rates: Sequence[float],
    losses: Sequence[float],
    stopped: str,
    current: float,
    factors: Sequence[float],
    planned: tuple[float, float, int],
    name: str,
    seconds: float,
) -> LearningRates:
    """Study a curve, and say what it allows.

    Args:
        rates: The rates that were tried.
        losses: The loss at each of them; only the last may not be finite, and is left out.
        stopped: Why the sweep ended.
        current: The rate that is set.
        factors: The rate of each group, in multiples of `rates`.
        planned: Lowest rate, highest rate, number of updates.
        name: The name of the run.
        seconds: How long it took.
    """
    kept = len(losses) if all(map(math.isfinite, losses[-1:])) else len(losses) - 1
    found = study(losses[:kept], planned[2])

    def rate_at(index: int | None) -> float | None:
        return None if index is None else float(rates[index])

    steepest = rate_at(found.steepest)
    return LearningRates(
        rates=tuple(rates[:kept]),
        losses=tuple(losses[:kept]),
        smoothed=found.smoothed,
        suggestion=None if steepest is None else float(f"{steepest:.2g}"),
        minimum=rate_at(found.lowest),
        diverges=rate_at(found.diverges),
        stopped=stopped,
        problem=explain_problem(found, list(rates), list(losses), stopped, planned) if found.problem else "",
        current=current,
        factors=tuple(factors),
        planned=planned,
        name=name,
        seconds=seconds,
    )
