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

    The best value and the count are saved with each checkpoint, so a resumed run stops at the same step as a
    run without interruption. A round with several eval sets counts once; a round before the first step does
    not count.

    Args:
        early_stopping_patience: Rounds without improvement after which the run stops.
        early_stopping_threshold: An improvement must be larger than this to count as one.
    """

    wants_step_data = False

    def __init__(
        self, early_stopping_patience: int = 1, early_stopping_threshold: float | None = 0.0
    ) -> None:
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold or 0.0
        self.early_stopping_patience_counter = 0
        self.best_value: float | None = None
        self.last_counted_step: int | None = None
        self._is_metric_seen = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check the settings, and reset the count unless the run is resumed."""
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
        if state.global_step == 0:
            self.early_stopping_patience_counter = 0
            self.best_value = None
            self.last_counted_step = None
        elif self.best_value is None:  # the checkpoint has no state of this callback, or it was not loaded
            self.best_value = state.best_metric

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        is_round_end: bool = False,
        **kwargs: Any,
    ) -> None:
        """Count the round, and stop the run after too many rounds without improvement."""
        metrics = metrics or {}
        name = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        if name not in metrics:
            if is_round_end and not self._is_metric_seen:
                check_round(name, metrics)
            return
        self._is_metric_seen = True
        if state.global_step in (0, self.last_counted_step):
            return
        self.last_counted_step = state.global_step
        self._count(float(metrics[name]), bool(args.greater_is_better))
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def _count(self, value: float, greater_is_better: bool) -> None:
        """Set the counter to zero on an improvement, else add one; keep the best value."""
        worst = float("-inf") if greater_is_better else float("inf")
        is_first = self.best_value is None
        best = worst if self.best_value is None else self.best_value
        is_better = value > best if greater_is_better else value < best  # always False for NaN
        if is_first or (is_better and abs(value - best) > self.early_stopping_threshold):
            self.early_stopping_patience_counter = 0
        else:
            self.early_stopping_patience_counter += 1
        # also below the threshold: else small improvements would add up to one that counts
        self.best_value = value if is_better else best

    def state(self) -> dict[str, Any]:
        """Patience and threshold, the count, the best value, and the step of the last counted round."""
        return {
            "args": {
                "early_stopping_patience": self.early_stopping_patience,
                "early_stopping_threshold": self.early_stopping_threshold,
            },
            "attributes": {
                "early_stopping_patience_counter": self.early_stopping_patience_counter,
                "best_value": self.best_value,
                "last_counted_step": self.last_counted_step,
            },
        }


def check_round(name: str, metrics: dict[str, float]) -> None:
    """Raise if the metrics of an evaluation round do not include the watched one."""
    # a callback may evaluate something else under its own prefix, where the watched metric is not expected
    if any(key.startswith("eval_") for key in metrics):
        raise ValueError(
            f"EarlyStoppingCallback watches {name!r}, which is not among what evaluation gives: "
            f"{sorted(metrics)}. Set metric_for_best_model to one of these, or return "
            f"{name.removeprefix('eval_')!r} from compute_metrics."
        )
