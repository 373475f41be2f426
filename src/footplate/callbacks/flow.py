"""When to log, evaluate, save and stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.outputs import IntervalStrategy, SaveStrategy
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class DefaultFlowCallback(TrainerCallback):
    """Sets the flags of `control` at the intervals that the arguments give.

    `save_strategy="best"` is not handled here: only the evaluation knows whether its metric is the best.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Compute intervals that are given as shares of the run: a loop of the user may not have done so."""
        state.compute_steps(args, state.max_steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Set the flags of strategies that count steps; they also evaluate and save at the last step."""
        step = state.global_step
        is_last = step >= state.max_steps
        if is_last:
            control.should_training_stop = True
        if step == 1 and args.logging_first_step:
            control.should_log = True
        if args.logging_strategy == IntervalStrategy.STEPS and step % state.logging_steps == 0:
            control.should_log = True
        if args.eval_strategy == IntervalStrategy.STEPS and step >= args.eval_delay:
            control.should_evaluate |= is_last or step % state.eval_steps == 0
        if args.save_strategy == SaveStrategy.STEPS:
            control.should_save |= is_last or (state.save_steps > 0 and step % state.save_steps == 0)
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Set the flags of strategies that count epochs."""
        if args.logging_strategy == IntervalStrategy.EPOCH:
            control.should_log = True
        if args.eval_strategy == IntervalStrategy.EPOCH and state.epoch >= args.eval_delay:
            control.should_evaluate = True
        if args.save_strategy == SaveStrategy.EPOCH:
            control.should_save = True
        return control
