"""Rates that rise from update to update, given to an optimizer whose groups keep their proportions."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import torch

MIN_UPDATES, MAX_UPDATES = 10, 10_000
WEIGHT = 0.8  # of what was before, in the running mean of the losses
TIMES = 3.0  # how far above the lowest mean a loss explodes, in sizes of the loss


def list_rates(lowest: float, highest: float, num_updates: int) -> list[float]:
    """The rate of each update: from `lowest` to `highest`, each by the same factor above the one before."""
    check_range(lowest, highest, num_updates)
    span = math.log(highest / lowest)
    between = [lowest * math.exp(span * index / (num_updates - 1)) for index in range(1, num_updates - 1)]
    return [float(lowest), *between, float(highest)]


def check_range(lowest: float, highest: float, num_updates: int) -> None:
    """Refuse a range that no rates can be taken from."""
    for name, rate in (("lowest", lowest), ("highest", highest)):
        is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
        if not is_number or not 1e-30 <= rate <= 1e30:
            raise ValueError(f"{name}={rate!r} is no learning rate to try: give a number from 1e-30 to 1e30.")
    if not lowest < highest:
        raise ValueError(
            f"lowest={lowest:g} is not below highest={highest:g}. The rate rises from one to the other: give "
            "lowest=1e-7 and highest=10, for example."
        )
    is_whole = isinstance(num_updates, int) and not isinstance(num_updates, bool)
    if not is_whole or not MIN_UPDATES <= num_updates <= MAX_UPDATES:
        raise ValueError(
            f"num_updates={num_updates!r} must be a whole number from {MIN_UPDATES} to {MAX_UPDATES}: with "
            "fewer, the curve has too few points to find a rate in; 100 is a good number."
        )


class RisingRate:
    """Sets the rate of an optimizer; groups with other rates keep their proportions.

    Args:
        optimizer: The optimizer, with the rates of the run in its groups.
        setting: The setting `learning_rate`. Rates are meant for it where a group has it, and else for the
            first group with a rate above 0.
    """

    def __init__(self, optimizer: Any, setting: float) -> None:
        self._groups = list(optimizer.param_groups)
        # a schedule has lowered "lr" to what its warm-up begins with
        bases = [_as_number(group.get("initial_lr", group["lr"])) for group in self._groups]
        if any(base is None for base in bases):
            raise ValueError(
                f"{_name_of(optimizer)} has a parameter group without a learning rate: it finds rates by "
                "itself, and there is none to look for. Adafactor takes rates with relative_step=False."
            )
        known = [float(base) for base in bases if base is not None]
        positive = [base for base in known if base > 0]
        if not positive:
            raise ValueError(
                f"The learning rate is 0 in every parameter group of {_name_of(optimizer)}. Groups keep "
                "their proportions while the rate rises: set learning_rate to a positive number."
            )
        is_set = any(math.isclose(base, setting) for base in positive)
        self.current = float(setting) if is_set else positive[0]
        self.factors = [base / self.current for base in known]

    def set(self, rate: float) -> None:
        """Let the next update use `rate`."""
        for group, factor in zip(self._groups, self.factors, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor


class Explosion:
    """Notices that a loss goes far beyond where it was, by its running mean without the bias of its start."""

    def __init__(self) -> None:
        self._mean = self._total = 0.0
        self._lowest = math.inf
        self._size = 0.0
        self._first: deque[float] = deque(maxlen=MIN_UPDATES)

    def has_come(self, loss: float) -> bool:
        """Whether the loss of one more update is an explosion."""
        self._mean = WEIGHT * self._mean + (1 - WEIGHT) * loss
        self._total = WEIGHT * self._total + (1 - WEIGHT)
        mean = self._mean / self._total
        if len(self._first) < MIN_UPDATES // 2:
            self._first.append(loss)
            self._size = max(map(abs, self._first))
        self._lowest = min(self._lowest, mean)
        return mean > self._lowest + TIMES * max(self._size, abs(self._lowest))


def _as_number(rate: Any) -> float | None:
    return None if rate is None else float(rate)


def _name_of(optimizer: Any) -> str:
    return type(getattr(optimizer, "optimizer", optimizer)).__name__  # without Accelerate's wrapper
