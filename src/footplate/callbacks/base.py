"""The events of a run, and the base class of callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class TrainerCallback:
    """Observes a run, and steers it through `control`.

    Define the events you need; an event that you do not define costs nothing. This is when each is called:

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
                                                            on_evaluate
                        with several sets, after the last   on_round_end
                        note the best metric
                    if control.should_save                  on_save
                    once its checkpoint is complete         on_seal, after this update or a later one
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
    evaluate, save or stop; a control that is returned replaces the current one. Everything else comes by
    keyword: name what you need and let `**kwargs` take the rest.

        model                 the model being trained
        processing_class      tokenizer, image processor or similar; also under its old name, tokenizer
        optimizer             the optimizer, from on_train_begin on
        lr_scheduler          the schedule, from on_train_begin on
        train_dataloader      the loader of this run
        eval_dataloader       the loader of the current evaluation or prediction, or of the last one
        trainer               the Trainer itself
        predictor             reads and predicts rows without a change in the run: `samples.Predictor`
        inputs outputs loss   the last micro-batch, the outputs of the model, and its loss: on_substep_end,
                              on_pre_optimizer_step, on_optimizer_step, on_step_end
        metrics               on_evaluate, on_predict; on_round_end: those of all sets and their joint loss
        is_best best_metric   on_evaluate, on_round_end: whether this evaluation is a new best, and the best
                              value with it; `state.best_metric` is still the best before this evaluation
        is_round_end          on_evaluate: False for one of several sets, after which on_round_end follows
        logs                  on_log
        seconds               on_log: where the time went since the last log, by part of the loop
        samples source        on_samples: rows with the model's predictions, and where the rows are from
        kind values           on_note: what was measured, and its values
        note                  a function `(kind, **values)` that keeps such a note and tells all callbacks
        checkpoint            on_seal: the folder, and as checkpoint_step the update it was saved at
        plan                  on_train_begin: the numbers of this run, `training.plan.TrainingPlan`
        resumed_from          on_train_begin: the checkpoint that it resumes from, or None
        evaluation_prefix     on_prediction_step: what the metrics of this evaluation begin with
        run_id                the name of the run, which a resume keeps
        metric_prefixes       the prefixes that metrics of evaluations and predictions have

    Set `wants_step_data = True` in a callback that uses inputs, outputs or loss. Without such a callback
    they are None: compute_loss is not asked for outputs, and the memory of the batch is freed early.
    """

    wants_step_data: bool = False
    may_be_several: bool = False  # True: no warning if a second one of this class is added

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The Trainer is built."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Training is about to start; model, optimizer and schedule are ready."""

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Training is over and the best model, if asked for, is loaded."""

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An epoch is about to start."""

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An epoch is over."""

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The micro-batches of an update are loaded; nothing is computed yet."""

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The gradient of a micro-batch is added; the next micro-batch of the same update follows."""

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The gradients are complete and clipped; the weights are not changed yet."""

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The weights are changed; the gradients are not cleared yet."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An update is done and counted; flags of `control` that are set here take effect right after."""

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """A set is evaluated; `metrics` has its result, which `state.best_metric` does not include yet."""

    def on_round_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """All of several sets are evaluated; `metrics` has the results of all of them."""

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **kwargs: Any,
    ) -> TrainerControl | None:
        """A prediction is done; `metrics` has its result."""

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """A checkpoint is saved."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """An entry is logged; `logs` holds it."""

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """A batch of an evaluation or prediction is done."""

    def on_seal(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """A checkpoint is complete on disk; with background saving, some updates after `on_save`."""

    def on_samples(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """`SampleCallback` shows rows; `samples` holds them."""

    def on_note(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """Something was measured that is no metric; `kind` says what, `values` hold it."""

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl | None:
        """The model is about to be pushed to the Hub."""
