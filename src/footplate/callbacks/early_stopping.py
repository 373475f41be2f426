"""Stop a run whose metric no longer improves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.outputs import IntervalStrategy
from footplate.state import ExportableState, TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)


class EarlyStoppingCallback(TrainerCallback, ExportableState):
    """Stops when `metric_for_best_model` has not improved for a number of evaluation rounds in a row.

    The count is saved with each checkpoint, so a resumed run stops at the same step as a run without
    interruption; one that was about to stop makes no further update. A round with several eval sets counts
    once. `check_metric_value` counts: override it for a rule of your own.

    Args:
        early_stopping_patience: Rounds without improvement after which the run stops.
        early_stopping_threshold: An improvement must be larger than this to count as one.
    """

    def __init__(
        self, early_stopping_patience: int = 1, early_stopping_threshold: float | None = 0.0
    ) -> None:
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold or 0.0
        self.early_stopping_patience_counter = 0
        self._is_counted = False  # a set of the round under way had the metric
        self._has_warned = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check the settings; reset the count, or stop at once if the run that is resumed had to stop."""
        if args.metric_for_best_model is None:
            raise ValueError(
                "EarlyStoppingCallback watches metric_for_best_model, which is None. Set it to a metric that "
                'evaluation gives, for example metric_for_best_model="loss".'
            )
        if args.eval_strategy == IntervalStrategy.NO:
            raise ValueError(
                'EarlyStoppingCallback needs evaluations while training, but eval_strategy="no". '
                'Set eval_strategy to "steps" or "epoch".'
            )
        if not args.load_best_model_at_end:
            logger.warning(
                "EarlyStoppingCallback is used without load_best_model_at_end=True: training will end with "
                "the last weights, not with the best ones."
            )
        self._is_counted = self._has_warned = False
        if state.global_step == 0:
            self.early_stopping_patience_counter = 0
        elif self._stop_if_needed(control) and state.global_step < state.max_steps:
            logger.warning(
                "EarlyStoppingCallback had stopped this run at step %d, after %d evaluation(s) without "
                "improvement, so no update is made. To go on, set early_stopping_patience to more than that, "
                "or remove the callback.",
                state.global_step,
                self.early_stopping_patience_counter,
            )

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Count the evaluation, and stop the run after too many without improvement."""
        is_set_of_round = kwargs.get("is_round_end") is False
        value = self._find(args, metrics or {}, is_expected=not is_set_of_round)
        if value is not None:
            self._is_counted = is_set_of_round
            self._count(args, state, control, value)

    def on_round_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Count a round by the joint loss of its sets, unless the metric was that of one set."""
        is_counted, self._is_counted = self._is_counted, False
        value = None if is_counted else self._find(args, metrics or {}, is_expected=True)
        if value is not None:
            self._count(args, state, control, value)

    def check_metric_value(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metric_value: float
    ) -> None:
        """Set the counter to zero on an improvement over `state.best_metric`, else add one."""
        best, gain = state.best_metric, 0.0
        if best is not None:
            gain = metric_value - best if args.greater_is_better else best - metric_value
        if best is None or gain > max(self.early_stopping_threshold, 0.0):  # NaN is never a gain
            self.early_stopping_patience_counter = 0
        else:
            self.early_stopping_patience_counter += 1

    def _count(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, value: float
    ) -> None:
        self.check_metric_value(args, state, control, value)
        self._stop_if_needed(control)

    def _stop_if_needed(self, control: TrainerControl) -> bool:
        is_over = self.early_stopping_patience_counter >= self.early_stopping_patience
        control.should_training_stop |= is_over
        return is_over

    def _find(self, args: TrainingArguments, metrics: dict[str, float], is_expected: bool) -> float | None:
        """The watched metric; None, with a warning where it is expected, if the evaluation has none."""
        name = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        # a callback may evaluate something else under its own prefix
        is_expected = is_expected and any(key.startswith("eval_") for key in metrics)
        if name not in metrics and is_expected and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "EarlyStoppingCallback watches %r, which is not among what evaluation gives: %s. Set "
                "metric_for_best_model to one of these, or return %r from compute_metrics.",
                name,
                sorted(metrics),
                name.removeprefix("eval_"),
            )
        return metrics.get(name)

    def state(self) -> dict[str, Any]:
        """Patience, threshold and count."""
        return {
            "args": {
                "early_stopping_patience": self.early_stopping_patience,
                "early_stopping_threshold": self.early_stopping_threshold,
            },
            "attributes": {"early_stopping_patience_counter": self.early_stopping_patience_counter},
        }
