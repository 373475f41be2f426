"""How the Trainer evaluates and predicts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import batch as batch_tools
from footplate import comm, rng
from footplate.arguments import TrainingArguments
from footplate.data.loader import given_rows
from footplate.data.turns import WithTurns, is_prepared, is_shared
from footplate.evaluation import metrics as metric_tools
from footplate.evaluation.memory_limit import parse_memory_limit
from footplate.optim import schedules
from footplate.outputs import EvalLoopOutput, PredictionOutput
from footplate.state import KeptStates
from footplate.trainer.api import TrainerApi
from footplate.trainer.data import Data
from footplate.trainer.evaluation import BatchMetrics, BatchResult, Evaluation
from footplate.trainer.run import EVAL_ON_START
from footplate.trainer.stepping import Stepping, explain_forward, explain_no_loss
from footplate.training import batches, modes, tracing, traits
from footplate.training import loss as losses
from footplate.training.meter import Records
from footplate.training.modes import enter_evaluation
from footplate.training.plain_step import PlainStep, leave_to_joint
from footplate.training.signals import StopRequested

if TYPE_CHECKING:
    from footplate.evaluation.collector import Collector

PREPARATION_TIMES = ("model_preparation_time", "jit_compilation_time")  # not counted as evaluation


class Evaluating(TrainerApi):
    """A loop without learning: predict each batch, collect, compute metrics."""

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Metrics on an evaluation set, or on each of several.

        Args:
            eval_dataset: Another dataset than the Trainer's own, or several by name.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: What every key begins with.
        """
        given = eval_dataset is not None
        eval_dataset = eval_dataset if given else self.eval_dataset
        with self._evaluating(eval_dataset, metric_key_prefix) as evaluation:
            if isinstance(eval_dataset, dict):
                return self._evaluate_each(evaluation, given, ignore_keys)
            self._memory_tracker.start()
            loader = self.get_eval_dataloader(eval_dataset)
            start_time = time.time()
            output = self.evaluation_loop(
                loader,
                description="Evaluation",
                # without metrics nobody would look at the rest
                prediction_loss_only=True if self.compute_metrics is None else None,
                ignore_keys=ignore_keys,
                metric_key_prefix=metric_key_prefix,
            )
            add_speed(output, start_time, metric_key_prefix, self.args)
            traits.call_with_declared(self.log, logs=output.metrics)
            is_round_end = not evaluation.is_in_round
            best = preview_best(self, evaluation, output.metrics)
            note_answers(self, evaluation, output, time.time() - start_time, best["is_best"])
            self._event("on_evaluate", metrics=output.metrics, is_round_end=is_round_end, **best)
        self._memory_tracker.stop_and_update_metrics(output.metrics)
        return output.metrics

    def _evaluate_each(
        self, evaluation: Evaluation, given: bool, ignore_keys: list[str] | None
    ) -> dict[str, float]:
        """One round over several sets: the metrics of each under its name, and their joint loss."""
        prefix = evaluation.prefix
        merged: dict[str, float] = {}
        weighted: list[tuple[float, float]] = []
        for name, dataset in evaluation.dataset.items():
            evaluation.is_asking = True
            metrics = self.evaluate(
                eval_dataset=dataset if given else name,
                ignore_keys=ignore_keys,
                metric_key_prefix=f"{prefix}_{name}",
            )
            merged.update(metrics)
            if f"{prefix}_{name}_loss" in metrics:
                weighted.append((metrics[f"{prefix}_{name}_loss"], evaluation.weight))
        total = sum(weight for _, weight in weighted)
        if total:
            merged[f"{prefix}_loss"] = sum(loss * weight for loss, weight in weighted) / total
        self._event("on_round_end", metrics=merged, **preview_best(self, evaluation, merged))
        return merged

    @contextmanager
    def _evaluating(self, dataset: Any = None, prefix: str = "eval") -> Iterator[Evaluation]:
        """Make the `Evaluation` that metrics, samples and `record` look at until the block ends."""
        outer = self._current_evaluation
        name = dataset if isinstance(dataset, str) else None
        dataset = self.eval_dataset[name] if name is not None else dataset
        self._current_evaluation = evaluation = Evaluation(dataset, name, prefix, outer)
        extras = self.callback_handler.extras
        extras["evaluation_prefix"] = prefix  # names the set on bars and lines
        if not evaluation.is_in_round and prefix not in extras["metric_prefixes"]:
            extras["metric_prefixes"] = (*extras["metric_prefixes"], prefix)  # its own heading in trackers
        try:
            yield evaluation
        finally:  # an override that calls evaluation_loop by itself must not see the rows of another set
            self._current_evaluation = outer
            if outer is not None:
                outer.weight = evaluation.weight

    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Predictions on a dataset, and metrics where it has labels.

        Args:
            test_dataset: What to predict on.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: What every key of the metrics begins with.
        """
        self._memory_tracker.start()
        with self._evaluating(test_dataset, metric_key_prefix) as evaluation:
            loader = self.get_test_dataloader(test_dataset)
            start_time = time.time()
            output = self.evaluation_loop(
                loader, description="Prediction", ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix
            )
        add_speed(output, start_time, metric_key_prefix, self.args)
        note_answers(self, evaluation, output, time.time() - start_time)
        self._event("on_predict", metrics=output.metrics)
        self._memory_tracker.stop_and_update_metrics(output.metrics)
        return PredictionOutput(output.predictions, output.label_ids, output.metrics)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """One pass over a loader without learning: predict each batch, collect, compute metrics."""
        if self._current_evaluation is None:  # called by itself, without evaluate() or predict()
            with self._evaluating(None, metric_key_prefix):
                return Evaluating.evaluation_loop(
                    self, dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
                )
        args, evaluation = self.args, self._current_evaluation
        loss_only = args.prediction_loss_only if prediction_loss_only is None else prediction_loss_only
        by_batch = BatchMetrics(self.compute_metrics, args, self._device)
        keeps_batches = not by_batch.are_used or description == "Prediction"
        keeps_input = "inputs" in args.include_for_metrics
        model = self._prepare_for_evaluation(dataloader)
        shares = is_shared(dataloader)
        gather = vars(self).pop("gather_function", None)  # one that was set holds for one pass
        is_own = gather is None and args.world_size > 1 and not shares  # a loader of the user's own
        self.callback_handler.eval_dataloader = dataloader
        collector = build_collector(dataloader, args, self._current_run.anchor(str(args.output_dir)))
        evaluation.records, weighs_items = Records(), args.weighs_items
        plain = settle_step(self, loss_only, ignore_keys) or leave_to_joint
        try:
            for inputs, turn in (turns := WithTurns(dataloader)):
                num_rows = comm.find_batch_size(inputs)
                if is_own:
                    gather, is_own = choose_gather(self, dataloader, inputs), False
                num_items = count_items(self, inputs) if weighs_items else None
                evaluation.weigh_batch(num_rows, num_items, turn)
                loss, logits, labels = plain(model, inputs) or self.prediction_step(
                    model, inputs, loss_only, ignore_keys=ignore_keys
                )
                logits = metric_tools.preprocess(self.preprocess_logits_for_metrics, logits, labels)
                main = self._prepare_input(main_input(self.model, inputs, args)) if keeps_input else None
                result = BatchResult(num_rows, loss, logits, labels, main)
                if turn is not None or gather is not None:
                    result = result.join(gather) if turn is None else result.keep_own(turn)
                collect(collector, result, keeps_batches, num_items)
                self._event("on_prediction_step")
                if evaluation.is_repeatable and self._current_run.accord.poll_stop():
                    raise StopRequested
                if by_batch.are_used:
                    by_batch.update(inputs, result, evaluation.name, turns.is_last, turn)
            if shares:
                collector.merge_ranks(to_all=args.metrics_on == "every_rank")
            metrics, mean_loss, evaluation.weight = measure_once(self, by_batch, collector)
            metrics = {**metric_tools.plain_numbers(metrics), **evaluation.records.drain()}
        finally:
            evaluation.records = None

        times = {name: getattr(self, name) for name in PREPARATION_TIMES}
        for name, value in {"loss": mean_loss, **times}.items():
            if value is not None:
                metrics[f"{metric_key_prefix}_{name}"] = value
        metrics = metric_tools.prefix_keys(metrics, metric_key_prefix)
        return EvalLoopOutput(collector.predictions, collector.labels, metrics, collector.num_samples)

    def prediction_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The 4.x name of `evaluation_loop`."""
        return self.evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        )

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[torch.Tensor | None, Any, Any]:
        """Loss, logits and labels of one batch, each None where there is none or it is not asked for."""
        inputs = self._prepare_inputs(inputs)
        has_own_loss = callable(self.compute_loss_func)
        labels = comm.nested_detach(batch_tools.find_labels(inputs, self.label_names, has_own_loss))
        return_loss = batch_tools.entry(inputs, "return_loss")
        gives_loss = self.can_return_loss if return_loss is None else return_loss
        names_labels = bool(self.label_names) or has_own_loss
        has_loss = labels is not None if names_labels else bool(gives_loss)
        loss = None
        with torch.no_grad(), self.compute_loss_context_manager():
            if has_loss:
                num_items = (
                    None if self.args.weighs_items else self._get_num_items_in_batch([inputs], self._device)
                )
                context, inputs = self._prepare_context_parallel_inputs(model, inputs)
                with context():
                    loss, outputs = losses.call_compute_loss(
                        self.compute_loss, model, inputs, True, num_items
                    )
                loss = comm.nested_detach(loss.mean() if loss.dim() else loss)
            else:
                outputs = batches.call_forward(model, batch_tools.without(inputs, self._held_back))
                if not names_labels:  # neither forward nor the user says what a label is; a loss does
                    loss, labels = batches.loss_of_unnamed(inputs, outputs, labels)
                    has_loss = loss is not None
        if prediction_loss_only:
            return loss, None, None
        ignored = find_ignored(self) if ignore_keys is None else ignore_keys
        logits = batch_tools.outputs_without_loss(outputs, ignored, has_loss)
        return loss, comm.nested_detach(logits), labels

    def _predict_without_side_effects(self, inputs: Any) -> tuple[Any, Any]:
        """Answers and labels of a batch; modes, records and random states of the run stay as they are."""
        model = self.model_wrapped
        with modes.evaluating(model), rng.scoped(), self._evaluating() as evaluation:
            evaluation.records = Records()  # a loss may record() something, which belongs in no log
            _, answers, labels = self.prediction_step(model, inputs, False)
        return answers, labels

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: list[str] | None, skip_scheduler: bool = False
    ) -> dict[str, float]:
        """Evaluation during training; a schedule that follows a metric moves on it."""
        kept = set(self._eval_dataloaders)
        before, num_logs = rng.capture(), len(self.state.log_history)
        from footplate.integrations.base import TrackerCallback  # a run without evaluations has no need of it

        # trackers are told of the world outside, which cannot be put back
        callbacks = (one for one in self.callback_handler.callbacks if not isinstance(one, TrackerCallback))
        flags, states = copy(self.control), KeptStates(callbacks)
        try:
            with self._evaluating() as asked:
                asked.is_asking, asked.is_repeatable, asked.is_scheduled = True, True, not skip_scheduler
                metrics = self.evaluate(ignore_keys=ignore_keys_for_eval)
        except Exception:  # a resumed run makes this evaluation from its beginning
            rng.restore(before)
            for key in self._eval_dataloaders.keys() - kept:
                # to start its workers draws a number, so it starts them again
                del self._eval_dataloaders[key]
            del self.state.log_history[num_logs:]
            states.put_back()
            self.control = flags
            undone = [flag for flag in ("should_evaluate", "should_save") if getattr(flags, flag)]
            self._current_run.undone = [EVAL_ON_START] if skip_scheduler else undone
            raise
        self._report_to_hp_search(trial, self.state.global_step, metrics)
        if not skip_scheduler and schedules.follows_metric(self.lr_scheduler):
            self.lr_scheduler.step(
                metric_tools.read_metric(metrics, self.args.metric_for_best_model or "loss")
            )
        return metrics

    def _compute_metrics(self, collector: Collector) -> dict[str, Any]:
        """What `compute_metrics` gives for a whole set."""
        if self.compute_metrics is None or collector.predictions is None or collector.labels is None:
            return {}
        assert self._current_evaluation is not None
        prediction = self._current_evaluation.describe(collector, self.args.include_for_metrics)
        return metric_tools.check_metrics(self.compute_metrics(prediction))

    def _prepare_for_evaluation(self, dataloader: Any = None) -> nn.Module:
        """The model as evaluation calls it: wrapped, dropout off, in half precision where that is asked."""
        if self.is_in_train:
            enter_evaluation(
                self.model_wrapped, self.optimizer
            )  # the wrapper too: training asks it for its mode
            model = self._strategy.for_evaluation(self.model_wrapped)
        else:
            start_time = time.time()
            model = self._wrap_model(self.model_wrapped, training=False)
            if self.optimizer is None:
                self.model_preparation_time = round(time.time() - start_time, 4)
            if self.args.fp16_full_eval or self.args.bf16_full_eval:
                model = model.to(torch.float16 if self.args.fp16_full_eval else torch.bfloat16)
        enter_evaluation(model, self.optimizer)
        if dataloader is not None and tracing.is_wanted(self.args):
            start_time = time.time()
            model = self.torch_jit_model_eval(model, dataloader, training=False)
            self.jit_compilation_time = round(time.time() - start_time, 4)
        return model


# prediction_step and what it calls, as they are before anybody can put something in their place
_OWN_STEP: dict[str, Any] = {
    "prediction_step": Evaluating.prediction_step,
    "compute_loss": Stepping.compute_loss,
    "compute_loss_context_manager": TrainerApi.compute_loss_context_manager,
    "autocast_smart_context_manager": TrainerApi.autocast_smart_context_manager,
    "_prepare_inputs": Data._prepare_inputs,
    "_prepare_input": TrainerApi._prepare_input,
    "_prepare_context_parallel_inputs": TrainerApi._prepare_context_parallel_inputs,
    "_get_num_items_in_batch": TrainerApi._get_num_items_in_batch,
}


def settle_step(trainer: Evaluating, loss_only: bool, ignore_keys: list[str] | None) -> PlainStep | None:
    """What `prediction_step` does where neither a joint nor a setting asks for more; None where one does."""
    args = trainer.args
    has_own_loss = trainer.compute_loss_func is not None or trainer.label_smoother is not None
    told = trainer.model_accepts_loss_kwargs or args.weighs_items  # forward or the loss is told of items
    is_alone = args.world_size == 1 and trainer._device.type == "cpu"
    if has_own_loss or told or not is_alone or not trainer.label_names:
        return None
    kind, own = type(trainer), vars(trainer)
    if any(getattr(kind, name) is not method or name in own for name, method in _OWN_STEP.items()):
        return None
    ignored = find_ignored(trainer) if ignore_keys is None else ignore_keys
    explain = partial(explain_forward, trainer), partial(explain_no_loss, trainer)
    return PlainStep(trainer.label_names, trainer._held_back, ignored, loss_only, *explain)


def find_ignored(trainer: Evaluating) -> list[str]:
    """The keys of the model's outputs to leave out, looked up once in an evaluation."""
    evaluation = trainer._current_evaluation
    if evaluation is None:
        return batch_tools.ignored_outputs(trainer.model)
    if evaluation.ignored_outputs is None:
        evaluation.ignored_outputs = batch_tools.ignored_outputs(trainer.model)
    return evaluation.ignored_outputs


def gather_padded(accelerator: Any, tensors: Any) -> Any:
    """The rows of all processes, padded to the same width, without those that fill the last batch."""
    padded = accelerator.pad_across_processes(tensors, dim=1, pad_index=batch_tools.IGNORED_LABEL)
    return accelerator.gather_for_metrics(padded)


def choose_gather(trainer: Evaluating, dataloader: Any, first_batch: Any) -> Callable[[Any], Any] | None:
    """What joins the results of all processes; None if each of them reads all rows of a user's loader."""
    if not is_prepared(dataloader) and comm.is_same_everywhere(first_batch):
        return None
    return partial(gather_padded, trainer.accelerator)


def count_items(trainer: Evaluating, inputs: Any) -> int:
    """The items of a batch that its mean loss is over."""
    return losses.count_items(inputs, trainer.label_names, trainer._items_are_shifted)


def collect(collector: Collector, result: BatchResult, keeps_batches: bool, num_items: Any) -> None:
    """Add a batch to what is collected, if any of its rows counts here."""
    if result.num_rows != 0:
        collector.add(
            losses=result.loss,
            predictions=result.logits if keeps_batches else None,
            labels=result.labels if keeps_batches else None,
            inputs=result.inputs,
            num_rows=result.num_rows,
            num_items=num_items,
        )


def measure_once(
    trainer: Evaluating, by_batch: BatchMetrics, collector: Collector
) -> tuple[dict[str, Any], float | None, float]:
    """Metrics, mean loss and weight of a set, the same on all ranks: they decide by them."""
    if trainer.args.metrics_on == "first_rank" and not by_batch.need_all_ranks:
        metrics = comm.ask_first(lambda: measure(trainer, by_batch, collector))
    else:
        metrics = measure(trainer, by_batch, collector)
    found: tuple[dict[str, Any], float | None, float]
    found = comm.broadcast_object((metrics, collector.loss, collector.weight))
    return found


def measure(trainer: Evaluating, by_batch: BatchMetrics, collector: Collector) -> dict[str, Any]:
    """The metrics of a whole set; if they fail in an evaluation of the loop, what they were given is kept."""
    evaluation = trainer._current_evaluation
    assert evaluation is not None
    try:
        return by_batch.compute() if by_batch.are_used else trainer._compute_metrics(collector)
    except Exception as error:
        args = trainer.args
        keeps = args.save_on_error and args.should_save and not by_batch.are_used
        if keeps and evaluation.is_repeatable:
            from footplate.evaluation.rescue import rescue_predictions

            rescue_predictions(
                trainer._current_run.anchor(str(args.output_dir)),
                evaluation.prefix,
                trainer.state.global_step,
                error,
                predictions=collector.predictions,
                label_ids=collector.labels,
                indices=collector.indices,
            )
        raise


def preview_best(trainer: Evaluating, evaluation: Evaluation, metrics: dict[str, float]) -> dict[str, Any]:
    """What callbacks are told of the best; the state itself changes when they have been told."""
    args, best = trainer.args, metric_tools.Best(trainer.state.best_metric, False)
    if evaluation.is_scheduled:
        best = metric_tools.preview_best(
            metrics, args.metric_for_best_model, best.value, bool(args.greater_is_better)
        )
    return {"is_best": best.is_new, "best_metric": best.value}


def note_answers(
    trainer: Evaluating, evaluation: Evaluation, output: EvalLoopOutput, seconds: float, is_best: bool = False
) -> None:
    """Tell callbacks on the first rank, and so the report, what the metrics do not say of the answers."""
    if not trainer.args.report or not trainer.is_world_process_zero():
        return
    from footplate.trainer.noting import describe_answers  # loaded with the first evaluation

    kind, values = describe_answers(trainer, evaluation, output, seconds)
    if values is not None:
        values = {"set": evaluation.prefix, "is_best": is_best, **values}
        trainer._event("on_note", kind=kind, values=values)


def build_collector(dataloader: Any, args: TrainingArguments, spill_folder: str) -> Collector:
    """What gathers the results of one pass over a loader."""
    from footplate.evaluation.collector import Collector  # loaded with the first evaluation

    num_samples = batch_tools.find_length(getattr(dataloader, "dataset", None))
    shares = is_shared(dataloader)
    return Collector(
        num_samples=num_samples,
        num_here=None if not num_samples or not shares else -(-num_samples // args.world_size),
        batch_size=args.eval_batch_size,
        concat=args.eval_do_concat_batches,
        loss_weighting=args.loss_weighting,
        finite_only=args.logging_nan_inf_filter,
        memory_limit=parse_memory_limit(args.eval_memory_limit),
        spill_folder=spill_folder,
        find_rows=lambda: given_rows(dataloader),
    )


def main_input(model: nn.Module, inputs: Any, args: TrainingArguments) -> Any:
    """What metrics see of a batch: its main input, or a dictionary of that and the kept columns."""
    found = batch_tools.pick(inputs, [traits.main_input_name(model), *(args.keep_columns or ())])
    return found if args.keep_columns else next(iter(found.values()), None)


def add_speed(output: EvalLoopOutput, start_time: float, prefix: str, args: TrainingArguments) -> None:
    """Add runtime and throughput to an evaluation's metrics."""
    for name in PREPARATION_TIMES:
        start_time += output.metrics.get(f"{prefix}_{name}", 0.0)
    num_steps = math.ceil(output.num_samples / (args.eval_batch_size * args.world_size))
    output.metrics.update(metric_tools.speed_metrics(prefix, start_time, output.num_samples, num_steps))
