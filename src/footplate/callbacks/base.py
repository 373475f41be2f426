"""The events of a run, and the class that listens to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class TrainerCallback:
    """Looks at a run from inside, and steers it through `control`.

    Define the events you need; one that is not defined costs nothing. This is when each of them is called:

        Trainer(...)                                        on_init_end
        train()                                             on_train_begin
            for each epoch                                  on_epoch_begin
                for each update                             on_step_begin
                    for each micro-batch
                        forward, backward
                        unless it is the last               on_substep_end
                    clip the gradients                      on_pre_optimizer_step
                    optimizer.step()                        on_optimizer_step
                    move the schedule, clear the gradients
                    global_step += 1                        on_step_end
                    if control.should_log                   on_log
                    if control.should_evaluate
                        for each batch                      on_prediction_step
                        report the metrics                  on_log
                        note the best metric                on_evaluate
                    if control.should_save                  on_save
                    when its checkpoint is whole on disk    on_seal, after this update or a later one
                    if control.should_epoch_stop or control.should_training_stop: leave the epoch
                                                            on_epoch_end, then log, evaluate, save as above
                if control.should_training_stop: leave the run
            report the whole run                            on_log
                                                            on_train_end
        predict()
            for each batch                                  on_prediction_step
                                                            on_predict
        push_to_hub()                                       on_push_begin

    Every event receives `args`, `state` and `control` by position. Change the flags of `control` to log,
    evaluate, save or stop; a control that is returned replaces the current one. All else comes by keyword:
    name what you need and let `**kwargs` take the rest.

        model                 the model being trained
        processing_class      tokenizer, image processor or the like; also under its old name, tokenizer
        optimizer             the optimizer, from on_train_begin on
        lr_scheduler          the schedule, from on_train_begin on
        train_dataloader      the loader of this run
        eval_dataloader       the loader of the evaluation or prediction under way, or of the last one
        trainer               the Trainer itself
        inputs outputs loss   the last micro-batch, what the model answered, and its loss: on_substep_end,
                              on_pre_optimizer_step, on_optimizer_step, on_step_end
        metrics               on_evaluate, on_predict
        is_round_end          on_evaluate: whether `metrics` holds all eval sets of this round
        logs                  on_log
        seconds               on_log: where the time went since the last log, by part of the loop
        samples source        on_samples: what the model says about a few rows, and where they are from
        checkpoint            on_seal: the folder, and as checkpoint_step the update it was saved at
        run_id                the name of the run, which a resume keeps
        metric_prefixes       what keys of evaluations and predictions begin with

    Set `wants_step_data = False` in a callback that hears step events but looks at neither inputs, outputs
    nor loss: where no callback wants them, the loop lets go of them early and saves the memory.
    """

    wants_step_data: bool = True
    may_be_several: bool = False  # two of a class are no mistake

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The Trainer is built."""
        return None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Training is about to start; model, optimizer and schedule are ready."""
        return None

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Training is over and the best model, if asked for, is loaded."""
        return None

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An epoch is about to start."""
        return None

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An epoch is over."""
        return None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The micro-batches of an update are there, none is computed yet."""
        return None

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The gradient of a micro-batch is added and another one follows in the same update."""
        return None

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The gradients are complete and clipped, the weights still old."""
        return None

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The weights are new, the gradients still there."""
        return None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An update is done and counted; the flags set here are obeyed right after."""
        return None

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An evaluation is done; `metrics` has its result and `state.best_metric` counts it already."""
        return None

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **kwargs: Any,
    ) -> TrainerControl | None:
        """A prediction is done; `metrics` has its result."""
        return None

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """A checkpoint is saved."""
        return None

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Something is logged; `logs` has it."""
        return None

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """A batch of an evaluation or prediction is done."""
        return None

    def on_seal(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """A checkpoint is whole on disk; with background saving, some updates after `on_save`."""
        return None

    def on_samples(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """`SampleCallback` has rows to show; `samples` has them."""
        return None

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The model is about to be pushed to the Hub."""
        return None
