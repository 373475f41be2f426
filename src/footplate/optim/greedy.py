"""A schedule that raises the learning rate while a metric improves, and lowers it otherwise."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from footplate.voice import say

logger = logging.getLogger(__name__)


class StreamingAverage:
    """The mean of the last `window_size` values.

    Args:
        window_size: How many values the mean includes.
    """

    def __init__(self, window_size: int) -> None:
        self.window_size = window_size
        self.values: list[float] = []
        self.sum = 0.0

    def streamavg(self, value: float) -> float:
        """Add a value and return the mean."""
        self.values.append(value)
        self.sum += value
        if len(self.values) > self.window_size:
            self.sum -= self.values.pop(0)
        return self.sum / len(self.values)

    def state_dict(self) -> dict[str, Any]:
        """The values and their sum, as plain data."""
        return {**vars(self), "values": list(self.values)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the values and their sum from `state_dict`."""
        self.window_size = state_dict.get("window_size", self.window_size)
        self.values = list(state_dict.get("values", ()))
        self.sum = state_dict.get("sum", 0.0)


class GreedyLR(LRScheduler):
    """Divides the rate by `factor` after several improvements in a row, multiplies it after several failures.

    Args:
        optimizer: The optimizer whose rates to change.
        mode: "min" if a smaller metric is better, "max" if a larger one is.
        factor: The factor of one change, below 1.
        patience: Improvements (or failures) in a row that do not change the rate yet.
        threshold: How much better than the best a metric must be to count as an improvement.
        threshold_mode: "abs" adds the threshold to the best, "rel" takes it as a share of the best.
        cooldown: Metrics to ignore after a reduction.
        warmup: Metrics to ignore after an increase.
        min_lr: The lowest rate, for all groups or one for each.
        max_lr: The highest rate, for all groups or one for each.
        eps: A change smaller than this is not made.
        verbose: Print each change.
        smooth: Decide by the mean of the last `window_size` metrics.
        window_size: Metrics in that mean.
        reset_start: Reductions at the lowest rate after which rates and counts are reset.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.95,
        patience: int = 10,
        threshold: float = 1e-6,
        threshold_mode: str = "abs",
        cooldown: int = 0,
        warmup: int = 0,
        min_lr: float | list[float] = 1e-3,
        max_lr: float | list[float] = 1.0,
        eps: float = 1e-8,
        verbose: bool = False,
        smooth: bool = False,
        window_size: int = 50,
        reset_start: int = 500,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"factor={factor} must be below 1.0: set it in lr_scheduler_kwargs.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode={mode!r} is not 'min' or 'max': set it in lr_scheduler_kwargs.")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"threshold_mode={threshold_mode!r} is not 'rel' or 'abs': set it in lr_scheduler_kwargs."
            )
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer. Pass one of torch.optim.")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.warmup = warmup
        self.min_lrs = _one_per_group("min_lr", min_lr, optimizer)
        self.max_lrs = _one_per_group("max_lr", max_lr, optimizer)
        self.eps = eps
        self.verbose = verbose
        self.smooth = smooth
        self.window_size = window_size
        self.reset_start_original = reset_start
        self.last_epoch = 0
        self._init_lrs = [group["lr"] for group in optimizer.param_groups]
        self._last_lr = list(self._init_lrs)
        self._reset()
        if any(rate < lowest for rate, lowest in zip(self._init_lrs, self.min_lrs, strict=True)):
            logger.warning(
                f"The learning rates {self._init_lrs} are below min_lr={self.min_lrs}, so the greedy "
                "schedule will never lower them: set a smaller min_lr in lr_scheduler_kwargs."
            )

    def _reset(self) -> None:
        """Reset the best metric and all counts."""
        self.best = math.inf if self.mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.num_good_epochs = 0
        self.cooldown_counter = 0
        self.warmup_counter = 0
        self.reset_start = self.reset_start_original
        self._streaming_avg = StreamingAverage(self.window_size) if self.smooth else None

    def step(self, metrics: float, epoch: int | None = None) -> None:  # type: ignore[override]
        """Count the metric of an evaluation, and change the rates if it is time to.

        Args:
            metrics: The value of the metric.
            epoch: The number of the evaluation; by default one more than the last.
        """
        current = float(metrics)
        if self._streaming_avg is not None:
            current = self._streaming_avg.streamavg(current)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch

        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
        elif self.warmup_counter > 0:
            self.warmup_counter -= 1
        else:
            self._count(current)
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _count(self, current: float) -> None:
        """Count the metric as good or bad, and change the rates if a count is above the patience."""
        if self.is_better(current, self.best):
            self.best = current
            self.num_good_epochs, self.num_bad_epochs = self.num_good_epochs + 1, 0
        else:
            self.num_good_epochs, self.num_bad_epochs = 0, self.num_bad_epochs + 1

        if self.num_good_epochs > self.patience:
            self._increase_rates()
            self.warmup_counter = self.warmup
            self.num_good_epochs = 0
        elif self.num_bad_epochs > self.patience:
            self._reduce_rates()
            self.cooldown_counter = self.cooldown  # also after a reset, as in the original
            self.num_bad_epochs = 0

    def is_better(self, current: float, best: float) -> bool:
        """Whether `current` is better than `best` by more than the threshold."""
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "rel":
            limit = best * (1.0 + sign * self.threshold)
        else:
            limit = best + sign * self.threshold
        return current < limit if self.mode == "min" else current > limit

    def _increase_rates(self) -> None:
        """Raise every rate by one factor, at most to its highest."""
        for index, (group, highest) in enumerate(zip(self.optimizer.param_groups, self.max_lrs, strict=True)):
            rate = float(group["lr"])
            raised = min(rate / self.factor, highest)
            if raised - rate > self.eps:
                self._set_rate(index, raised)
        self.reset_start = self.reset_start_original

    def _reduce_rates(self) -> None:
        """Lower every rate by one factor; reset everything after `reset_start` times at the lowest rate."""
        for index, (group, lowest) in enumerate(zip(self.optimizer.param_groups, self.min_lrs, strict=True)):
            rate = float(group["lr"])
            lowered = max(rate * self.factor, lowest)
            if rate - lowered > self.eps:
                self._set_rate(index, lowered)

        groups = zip(self.optimizer.param_groups, self.min_lrs, strict=True)
        if all(group["lr"] <= lowest for group, lowest in groups):
            self.reset_start -= 1
            if self.reset_start <= 0:
                for index, rate in enumerate(self._init_lrs):
                    self._set_rate(index, rate)
                self._reset()

    def _set_rate(self, index: int, rate: float) -> None:
        """Set the rate of one group, and print it if `verbose`."""
        self.optimizer.param_groups[index]["lr"] = rate
        if self.verbose:
            text = f"Evaluation {self.last_epoch}: learning rate of group {index} is now {rate:.4e}."
            say(text, sys.stdout)  # not print: a full disk must not end training

    def state_dict(self) -> dict[str, Any]:
        """Everything except the optimizer, as plain data."""
        state = {
            name: value for name, value in vars(self).items() if name not in ("optimizer", "_streaming_avg")
        }
        if self._streaming_avg is not None:
            state["_streaming_avg"] = self._streaming_avg.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the state and the optimizer's rates from `state_dict`.

        Args:
            state_dict: What `state_dict()` returned.
        """
        own_names = vars(self).keys() - {"optimizer", "_streaming_avg"}
        vars(self).update({name: value for name, value in state_dict.items() if name in own_names})
        if "_streaming_avg" in state_dict:
            self._streaming_avg = self._streaming_avg or StreamingAverage(self.window_size)
            self._streaming_avg.load_state_dict(state_dict["_streaming_avg"])
        if "_last_lr" in state_dict:
            for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=False):
                group["lr"] = rate


def _one_per_group(name: str, value: float | Sequence[float], optimizer: Optimizer) -> list[float]:
    """The bound `value` as one number for each parameter group."""
    num_groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * num_groups  # type: ignore[list-item]
    if len(value) != num_groups:
        raise ValueError(
            f"{name} has {len(value)} values for {num_groups} parameter groups: "
            f"set one number, or {num_groups} numbers, in lr_scheduler_kwargs."
        )
    return list(value)
