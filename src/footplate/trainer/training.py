"""Training itself: a run, an epoch, an update, each on its own screen."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import comm, rng
from footplate.arguments import TrainingArguments
from footplate.callbacks.facts import describe_start, format_start
from footplate.callbacks.handler import REPORT_EVENTS, STEP_EVENTS
from footplate.checkpoint.publish import load_loader_state
from footplate.checkpoint.ranks import load_rank
from footplate.checkpoint.rotation import find_foreign_folders
from footplate.distributed.failures import FailureWatch
from footplate.evaluation import metrics as metric_tools
from footplate.optim import groups, schedules
from footplate.outputs import TrainOutput
from footplate.trainer.data import Data
from footplate.trainer.model_note import note_model
from footplate.trainer.preparing import Preparing, find_saved_state
from footplate.trainer.rehearsing import Rehearsing, rehearse, rehearse_fully
from footplate.trainer.run import EVAL_ON_START, Stage
from footplate.trainer.saving import Saving, prepare_first_save
from footplate.trainer.sharing import finish_pushes
from footplate.trainer.starting import find_checkpoint, make_run, own_folder
from footplate.trainer.stepping import Stepping, describe_weighting
from footplate.training import batches, checks, patches, traits
from footplate.training.meter import as_norm
from footplate.training.plan import choose_extension
from footplate.training.signals import StopRequested, ignore_children
from footplate.voice import show_block

if TYPE_CHECKING:
    from footplate.instruments.profile import Profile
    from footplate.rates.result import LearningRates
    from footplate.samples.hardest import HardestRows
    from footplate.training.findings import CheckReport

logger = logging.getLogger(__name__)


class Training(Preparing, Data, Stepping, Rehearsing, Saving):
    """The loop, on the parts that it calls."""

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        *,
        extend_to_epochs: float | None = None,
        extend_to_steps: int | None = None,
        extend_policy: str = "stretch",
        **kwargs: Any,
    ) -> TrainOutput:
        """Train, from the start or from a checkpoint.

        Args:
            resume_from_checkpoint: A checkpoint's folder; True for the newest intact one of the run that
                saved last in `args.output_dir`; "auto" for that if there is one, else the start.
            trial: The trial of a hyperparameter search.
            ignore_keys_for_eval: Keys of the model's outputs to leave out of evaluation.
            extend_to_epochs: Go on from the last checkpoint past the planned end, to so many epochs.
            extend_to_steps: The same, to so many updates.
            extend_policy: What the schedule does then: "stretch", "hold" or "restart".
        """
        extension = choose_extension(
            self.args, extend_to_epochs, extend_to_steps, kwargs.pop("extend_to", None), extend_policy
        )
        wanted = kwargs.pop("model_path", None) or resume_from_checkpoint or extension is not None
        if kwargs:
            raise TypeError(f"train() takes no {', '.join(map(repr, kwargs))}.")
        self._hp_search_setup(trial)  # first: the folder and the run are made of its settings
        folder = os.path.abspath(self._get_output_dir(trial))
        if self.args.rehearsal == "full":
            rehearse_fully(self, resumes=bool(wanted))
        with ExitStack() as stack:
            lock = own_folder(self, stack, folder)
            checkpoint = find_checkpoint(self, wanted, folder)
            self._memory_tracker.start()
            self._current_run = run = make_run(self, lock, checkpoint, extension)
            run.saves.foreign_folders = find_foreign_folders(folder)
            self.is_in_train = True
            try:
                self._prepare_model_for_run(trial, checkpoint)
                noise = patches.embedding_noise(self.model, self.neftune_noise_alpha)
                compiles = run.compiles or nullcontext()
                with run.signals, FailureWatch(), run.hang, rng.holding(run.generators), noise, compiles:
                    result: TrainOutput = traits.call_with_declared(
                        self._inner_training_loop,
                        batch_size=self._train_batch_size,
                        args=self.args,
                        resume_from_checkpoint=checkpoint,
                        trial=trial,
                        ignore_keys_for_eval=ignore_keys_for_eval,
                    )
            finally:
                self.is_in_train = False
                run.step_data.release()
                run.saves.join()
            if run.signals.received:
                run.signals.leave()
            return result

    def check(self) -> CheckReport:
        """Try what `train()` will do: the largest batch, evaluation, saving, disk. It leaves no trace."""
        from footplate.trainer.checking import check_trainer  # what a run has no use for

        return check_trainer(self)

    def find_learning_rate(
        self, lowest: float = 1e-7, highest: float = 10.0, num_updates: int = 100
    ) -> LearningRates:
        """Make updates while the learning rate rises, and suggest one by their losses. It leaves no trace.

        Args:
            lowest: The rate of the first update.
            highest: The rate of the last update, unless the loss explodes before.
            num_updates: How many updates to make: more of them show more where losses differ much by batch.
        """
        from footplate.trainer.rate_finding import find_rates  # what a run has no use for

        return find_rates(self, lowest, highest, num_updates)

    def find_hardest_rows(
        self, count: int = 20, dataset: Any = None, max_rows: int | None = None
    ) -> HardestRows:
        """The rows with the largest losses, in readable form, and how the losses of all rows lie.

        One pass with dropout off; model, optimizer, random numbers and log stay as they are. Each row has the
        loss that `compute_loss` gives for that row alone. With several processes, all must call this.

        Args:
            count: How many rows to show.
            dataset: Another dataset than the one to train on; `data_collator` makes its batches too.
            max_rows: Rows to look at, at equal distances. Default: all; 10,000 where each must go through
                the model alone; the first 10,000 of a stream.
        """
        from footplate.trainer.hardest import find_hardest  # what a run has no use for

        return find_hardest(self, count, dataset, max_rows)

    def profile(
        self, num_updates: int = 20, warmup: int = 5, *, trace: str | None = None, modules: bool = False
    ) -> Profile:
        """Time some real updates and say where the time of one goes. It leaves no trace.

        Args:
            num_updates: Updates to time.
            warmup: Updates before them, which are not timed.
            trace: A file for what torch's profiler saw, for a viewer.
            modules: Time forward by module too.
        """
        from footplate.trainer.profiling import profile_trainer  # what a run has no use for

        return profile_trainer(self, num_updates, warmup, trace=trace, modules=modules)

    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: TrainingArguments | None = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """A whole run: prepare, epochs, results."""
        loader = self.get_train_dataloader()
        saved = find_saved_state(resume_from_checkpoint)
        plan = self._plan_run(loader, saved)
        self._begin_run(plan, loader, saved)
        model = self._prepare_for_training(loader, resume_from_checkpoint)
        # the first optimizer of a process imports for seconds, which is not the run's time
        self._current_run.plan = plan = dataclasses.replace(plan, start_time=time.time())
        rehearse(self, model, loader, ignore_keys_for_eval)
        facts = describe_start(self.args, self.state, self.model, plan, loader, resume_from_checkpoint)
        show_block(logger, format_start(facts), is_drawn=not self.args.disable_tqdm)
        self._event("on_train_begin", plan=plan, resumed_from=resume_from_checkpoint)
        note_model(self)
        hears = self.callback_handler.hears
        self._current_run.accord.find_listeners(hears(STEP_EVENTS), hears(REPORT_EVENTS), self.control)
        try:
            if resume_from_checkpoint is not None:
                self._resume_position(resume_from_checkpoint, model, trial, ignore_keys_for_eval)
            elif self.args.eval_on_start:
                self._evaluate(trial, ignore_keys_for_eval, skip_scheduler=True)
            if self._current_run.has_updates_left:
                for epoch in range(plan.start.epoch, plan.num_epochs):
                    self._event("on_epoch_begin")
                    self._current_run.accord.on_report(self.control)
                    self._run_epoch(model, epoch, trial, ignore_keys_for_eval)
                    if self.control.should_training_stop:
                        break
            # a signal since the last update: what comes now takes long
            if self._current_run.accord.poll_stop(at_once=True):
                raise StopRequested
        except StopRequested:
            self._current_run.note_stop(self.control)
            with ignore_children():
                self._save_checkpoint(model, trial)
                self._current_run.saves.join()
            comm.barrier()  # a rank that ends before the checkpoint is sealed would take the others with it
        except Exception as error:
            # a signal to the whole group of processes may have ended a worker first
            if not self._seal_after(error, model, trial) or not self._current_run.signals.received:
                raise
        return self._finish_training()

    def _seal_after(self, error: Exception, model: nn.Module, trial: Any) -> bool:
        """Seal the last whole update before an error of the user's code ends the run; False if it was not."""
        run, step = self._current_run, self.state.global_step
        if not self.args.save_on_error or self.args.save_strategy == "no" or step == run.plan.first_step:
            return False
        if not run.accord.is_alone:  # other ranks are inside an update, and their generators with them
            return False
        if run.stage is Stage.ENDING:
            run.undone = ["on_step_end"]
        elif run.stage is Stage.BETWEEN:
            flags = ("should_log", "should_evaluate", "should_save")
            run.undone = [flag for flag in flags if getattr(self.control, flag)]
        run.note_stop(self.control)
        try:
            with ignore_children():
                run.give_up_update()
                if run.saves.sealed_step != step or run.undone:
                    self._save_checkpoint(model, trial)
                return run.saves.report_sealed(step, error)
        except Exception as failure:
            logger.error("After %s no checkpoint could be written: %s", type(error).__name__, failure)
            return False

    def _resume_position(
        self, checkpoint: str, model: nn.Module, trial: Any, ignore_keys: list[str] | None
    ) -> None:
        """Go to the point where the checkpoint was written, and finish what was interrupted there."""
        run = self._current_run
        self._load_rng_state(checkpoint)
        own = load_rank(checkpoint, self.args.process_index, self.args.world_size)
        if own is not None:
            run.meter.restore(own["sums"])
        place = load_loader_state(checkpoint) if own is None else own["loader"]
        run.feed.resume(None if self.args.ignore_data_skip else place)
        undone = run.take_undone()
        if EVAL_ON_START in undone:
            self._evaluate(trial, ignore_keys, skip_scheduler=True)
        elif undone:
            for name in undone:
                if name.startswith("on_"):
                    self._event(name)
                else:
                    setattr(self.control, name, True)
            self._report(model, trial, run.feed.epoch, ignore_keys)
        run.resume_stop(self.control)
        run.feed.random_states = rng.capture()

    def _run_epoch(self, model: nn.Module, epoch: int, trial: Any, ignore_keys: list[str] | None) -> None:
        """One pass over the loader. Each turn is one update: accumulate, clip, step, report."""
        run, plan, feed = self._current_run, self._current_run.plan, self._current_run.feed
        epoch_iterator = feed.start_epoch(epoch)
        ends_at_once, run.ends_epoch = run.ends_epoch, False
        for size in () if ends_at_once else plan.update_sizes(feed.batches_done):
            run.begin_reading(self.state.global_step)
            micro_batches, num_items = traits.call_positional(
                self.get_batch_samples, epoch_iterator, size, self._device
            )
            run.stopwatch.lap("data")
            if feed.is_at_end(micro_batches):  # the stream ended sooner than its length promised
                if feed.batches_done == 0:
                    checks.report_no_batch(self.state.global_step)
                    self.control.should_training_stop = True
                break
            if self.state.global_step == plan.first_step:
                describe_weighting(self, micro_batches[0], plan)
                run.generators.name_late()
            self._event("on_step_begin")
            run.stopwatch.lap("callbacks")
            if not self._accumulate(model, micro_batches, num_items):
                break  # a callback ended the run in the middle of an update
            norm = self._clip_grad_norm(model) if self.args.max_grad_norm else None
            run.grad_norm = as_norm(self._get_grad_norm(model, grad_norm=norm))
            self._event("on_pre_optimizer_step")
            # a loss scaler must see every step: it refuses those that overflow by itself
            accepted = self._strategy.is_scaled or run.accepts_update(
                self.args.on_nonfinite, self.state.global_step + 1
            )
            if accepted:
                run.step(self.optimizer)
            try:
                self._event("on_optimizer_step")
            finally:  # the weights have changed: whatever a callback raises, this update counts
                run.learning_rate = self._get_learning_rate()  # of this update, before the schedule moves on
                if self.args.param_groups:
                    run.group_rates = groups.named_rates(self.optimizer)
                if accepted and not self._strategy.step_was_skipped:
                    schedules.advance(self.lr_scheduler)
                run.finish_update(self.state, epoch, micro_batches)
                run.tell_modules()
            run.stopwatch.lap("optimizer")
            run.stage = Stage.BETWEEN
            self._event("on_step_end")
            run.step_data.release()
            if self.state.global_step == plan.first_step + 1:
                prepare_first_save(self)
            tell_seals(self)
            run.accord.on_update(self.control, run.clock.should_save() or run.saves.retry())
            self._report(model, trial, epoch, ignore_keys)
            if run.accord.should_stop:
                raise StopRequested
            if self.control.should_epoch_stop or self.control.should_training_stop:
                break

        run.stage, feed.is_over = Stage.BETWEEN, True
        self._event("on_epoch_end")
        tell_seals(self)
        run.accord.on_epoch_end(self.control)
        self._report(model, trial, epoch, ignore_keys)

    def _report(self, model: nn.Module, trial: Any, epoch: int, ignore_keys: list[str] | None) -> None:
        """Let the last joint of an update do what the callbacks asked for."""
        run, control, joint = self._current_run, self.control, self._maybe_log_save_evaluate
        run.stopwatch.lap("callbacks")
        is_asked = control.should_log or control.should_evaluate or control.should_save
        if not is_asked and getattr(joint, "__func__", None) is _OWN_REPORT:
            return  # it would do nothing
        traits.call_with_declared(
            joint,
            tr_loss=run.meter.loss,
            grad_norm=run.grad_norm,
            model=model,
            trial=trial,
            epoch=epoch,
            ignore_keys_for_eval=ignore_keys,
            start_time=run.plan.start_time,
            learning_rate=run.learning_rate,
        )
        if not traits.is_ours(joint):
            run.accord.on_report(self.control)

    def _accumulate(self, model: nn.Module, loaded: list[Any], num_items: Any) -> bool:
        """Add up the gradients of one update; False where a callback asked to stop half-way."""
        run = self._current_run
        may_undo = run.micro_batches.enabled or self.args.on_nonfinite != "warn"
        run.begin_update(self.state.global_step, len(loaded), may_undo)
        while True:
            micro_batches = run.micro_batches.cut(loaded)
            goes_on = True
            try:
                goes_on = self._accumulate_once(model, micro_batches, num_items)
            except StopRequested:
                run.give_up_update()
                raise
            except (RuntimeError, MemoryError) as error:
                if not run.micro_batches.shrink(error, micro_batches):
                    raise
            if run.micro_batches.agree():
                self._strategy.finish_gradients(run.parameters)
                run.measure_gradients(self.state.global_step + 1)
                return goes_on
            run.undo_update()
            self.state.train_batch_size = run.micro_batches.max_rows

    def _accumulate_once(self, model: nn.Module, micro_batches: list[Any], num_items: Any) -> bool:
        run = self._current_run
        run.num_micro_batches = len(micro_batches)
        step: Any = self.training_step
        extra: tuple[Any, ...] = (num_items,)
        every = self.args.torch_empty_cache_steps
        if not traits.takes_positional(step, 3):  # from before 4.46, when the accelerator divided the loss
            extra = ()
            self.accelerator.gradient_accumulation_steps = len(micro_batches)
        weights = run.feed.weights()
        for index, (inputs, is_last) in enumerate(batches.mark_last(micro_batches)):
            run.is_last_micro_batch = is_last
            run.batch_weight = weights[index] if weights else 1.0
            if self._accelerator is not None:  # libraries count updates by its flag
                self._accelerator.gradient_state._set_sync_gradients(is_last)
            with self._strategy.accumulate(model, sync=is_last):
                result: Any = step(model, inputs, *extra)
            run.stopwatch.lap("backward")
            run.meter.add(result[0] if isinstance(result, tuple) else result)
            run.meter.flos += self.floating_point_ops(inputs)
            self._track_num_input_tokens(inputs)
            if every is not None and self.state.global_step % every == 0:
                torch.cuda.empty_cache()
            if not is_last:
                self._event("on_substep_end")
                if run.accord.is_interrupted:
                    raise StopRequested
                stops = self.control.should_epoch_stop or self.control.should_training_stop
                if stops and run.accord.is_alone:  # several ranks agree on it after the update
                    return False
        return True

    def _clip_grad_norm(self, model: nn.Module) -> torch.Tensor:
        """Clip the gradients to `args.max_grad_norm` and return their norm before that."""
        return self._strategy.clip_grad_norm(self._current_run.parameters, self.args.max_grad_norm)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The norm of the gradients to log; measured here if nothing was clipped."""
        if grad_norm is None:
            return self._strategy.clip_grad_norm(self._current_run.parameters, None)
        return grad_norm

    def _track_num_input_tokens(self, inputs: Any) -> None:
        """Count the input tokens of a micro-batch."""
        self._current_run.meter.add_tokens(self._current_run.tokens.count(inputs))

    def _maybe_log_save_evaluate(
        self,
        tr_loss: torch.Tensor,
        grad_norm: Any = None,
        model: Any = None,
        trial: Any = None,
        epoch: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        start_time: float | None = None,
        learning_rate: float | None = None,
    ) -> None:
        """Do what the control asks for: log, evaluate, save."""
        run = self._current_run
        if isinstance(grad_norm, nn.Module):  # super() called in the order of before 4.38, without a norm
            model, trial, epoch, ignore_keys_for_eval = grad_norm, model, trial, epoch
            grad_norm = run.grad_norm
        if self.control.should_log and self.state.global_step > run.meter.last_logged_step:
            if tr_loss is not run.meter.loss:
                run.meter.take_over(tr_loss)
            num_updates = self.state.global_step - run.meter.last_logged_step
            logs = run.meter.drain(self.state.global_step, run.stopwatch.so_far(), grad_norm)  # host sync
            run.compare_ranks(num_updates)
            if not self.state.is_hyper_param_search:  # a trial's settings are not those of its script
                run.hints.look(
                    logs, self.state.log_history, self.state.global_step, run.meter.first_nonfinite
                )
            logs["learning_rate"] = learning_rate if learning_rate is not None else self._get_learning_rate()
            logs.update(run.group_rates)
            train_metrics = metric_tools.plain_numbers(run.window.compute(self.compute_metrics))
            logs.update(metric_tools.prefix_keys(train_metrics, "train"))
            self.store_flos()
            traits.call_with_declared(self.log, logs=logs, start_time=start_time)
            run.accord.on_report(self.control)

        metrics = None
        if self.control.should_evaluate:
            metrics = self._evaluate(trial, ignore_keys_for_eval)
            run.stopwatch.lap("evaluation")
            run.accord.on_report(self.control)
            is_best = self._determine_best_metric(metrics, trial)
            if self.args.save_strategy == "best":
                self.control.should_save = is_best
            elif is_best and self.args.load_best_model_at_end:
                self.control.should_save = True  # saved when measured, whatever the schedule of saves

        if self.control.should_save:
            traits.call_with_declared(self._save_checkpoint, model=model, trial=trial, metrics=metrics)
            run.stopwatch.lap("saving")
            self._event("on_save")
            run.accord.on_report(self.control)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add epoch and step, keep the entry in the history and hand it to the callbacks.

        Args:
            logs: What to log; the epoch is added to it.
            start_time: When training began, for tokens per second.
        """
        run, state = self._current_run, self.state
        logs["epoch"] = state.epoch
        if self.args.include_num_input_tokens_seen != "no":
            state.num_input_tokens_seen += run.meter.drain_tokens()
            logs["num_input_tokens_seen"] = state.num_input_tokens_seen
            if start_time is not None:
                num_tokens = state.num_input_tokens_seen - run.num_tokens_before
                logs.update(metric_tools.speed_metrics("train", start_time, num_tokens=num_tokens))
        state.log_history.append({**logs, "step": state.global_step})
        self._event("on_log", logs=logs, seconds=run.stopwatch.drain(), **run.take_rank_times())

    def _finish_training(self) -> TrainOutput:
        """Results of the run, and the best model where that is asked for."""
        run, plan, step = self._current_run, self._current_run.plan, self.state.global_step
        train_loss = run.meter.mean_loss(step)
        num_steps = step - plan.first_step
        num_samples = plan.num_train_samples * num_steps / max(plan.max_steps, 1)
        metrics = metric_tools.speed_metrics("train", plan.start_time, num_samples, num_steps)
        self.store_flos()
        metrics["total_flos"], metrics["train_loss"] = self.state.total_flos, train_loss
        self._memory_tracker.stop_and_update_metrics(metrics, stage="train")
        traits.call_with_declared(self.log, logs=metrics)
        error = run.saves.finish(step)
        hand_out_seals(self)
        run.saves.check_last(error)
        comm.barrier()  # only now the best checkpoint is there for all ranks
        best = self.state.best_model_checkpoint
        if self.args.load_best_model_at_end and best is not None and not run.signals.received:
            self._load_best_model()
        if self.args.hardest_rows:
            from footplate.trainer.hardest_at_end import show_hardest

            show_hardest(self)
        self._event("on_train_end", stopped_by=run.accord.stop_reason if step < plan.max_steps else None)
        finish_pushes(self)
        return TrainOutput(step, train_loss, metrics)


_OWN_REPORT = Training._maybe_log_save_evaluate


def tell_seals(trainer: Training) -> None:
    """Report a write that failed, and tell the callbacks of checkpoints that are whole by now."""
    trainer._current_run.saves.poll()
    hand_out_seals(trainer)


def hand_out_seals(trainer: Training) -> None:
    """Tell the callbacks, and then the Hub, of each checkpoint that is whole since the last call."""
    for seal in trainer._current_run.saves.sealed():
        trainer._event("on_seal", **seal)
        if trainer.args.push_to_hub:
            trainer._push_from_checkpoint(seal["checkpoint"])
