"""The Trainer's other half: evaluation and prediction."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from footplate import comm
from footplate.checkpoint import rng as rng_files
from footplate.data import loaders
from footplate.evaluation import metrics as metric_tools
from footplate.evaluation.collector import Collector
from footplate.evaluation.memory_limit import parse_memory_limit
from footplate.evaluation.rows import RowColumns
from footplate.evaluation.streaming import StreamingMetrics, check_is_object, is_streaming
from footplate.optim import schedules
from footplate.outputs import EvalLoopOutput, EvalPrediction, PredictionOutput
from footplate.rehearsing import Rehearsing
from footplate.training import batches, traits
from footplate.training.meter import Records
from footplate.training.seed import preserved_generators
from footplate.training.signals import StopRequested

logger = logging.getLogger(__name__)


class Evaluating(Rehearsing):
    """A loop without learning: predict each batch, collect, compute metrics."""

    # what the Trainer brings: its parts ...
    model_wrapped: nn.Module
    eval_dataset: Any
    label_names: list[str]
    compute_loss_func: Callable[..., torch.Tensor] | None
    compute_metrics: Any
    preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None
    can_return_loss: bool
    is_in_train: bool
    model_preparation_time: float | None
    _device: torch.device
    _held_back: set[str]
    _eval_records: Records | None
    _eval_batch_weight: float
    _eval_weight: float
    _is_for_loop: bool
    _is_in_round: bool
    _current_eval_dataset: Any
    _current_eval_name: str | None
    _memory_tracker: Any
    _signals: Any
    # ... and the joints and helpers that are written there
    get_eval_dataloader: Any
    get_test_dataloader: Any
    compute_loss_context_manager: Any
    log: Any
    _prepare_input: Any
    _prepare_inputs: Any
    _wrap_model: Any
    _get_num_items_in_batch: Any
    _call_compute_loss: Any
    _count_items: Any
    _enter_train_mode: Any
    _event: Any

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
        if isinstance(eval_dataset, dict):
            with self._evaluating(eval_dataset, metric_key_prefix):
                return self._evaluate_each(eval_dataset, given, ignore_keys, metric_key_prefix)
        self._memory_tracker.start()
        with self._evaluating(eval_dataset, metric_key_prefix):
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
            self._add_speed(output, start_time, metric_key_prefix)
            traits.call_with_declared(self.log, logs=output.metrics)
            self._end_of_evaluation(output.metrics, is_round_end=not self._is_in_round)
        self._memory_tracker.stop_and_update_metrics(output.metrics)
        return output.metrics

    def _evaluate_each(
        self, datasets: dict[str, Any], given: bool, ignore_keys: list[str] | None, prefix: str
    ) -> dict[str, float]:
        """One round over several sets: the metrics of each under its name, and their joint loss."""
        merged: dict[str, float] = {}
        weighted: list[tuple[float, float]] = []
        self._is_in_round = True
        try:
            for name, dataset in datasets.items():
                metrics = self.evaluate(
                    eval_dataset=dataset if given else name,
                    ignore_keys=ignore_keys,
                    metric_key_prefix=f"{prefix}_{name}",
                )
                merged.update(metrics)
                if f"{prefix}_{name}_loss" in metrics:
                    weighted.append((metrics[f"{prefix}_{name}_loss"], self._eval_weight))
        finally:
            self._is_in_round = False
        total = sum(weight for _, weight in weighted)
        if total:
            joint = {f"{prefix}_loss": sum(loss * weight for loss, weight in weighted) / total}
            merged.update(joint)
            traits.call_with_declared(self.log, logs=joint)
        self._end_of_evaluation(merged, is_round_end=True)
        return merged

    @contextmanager
    def _evaluating(self, dataset: Any, prefix: str) -> Iterator[None]:
        """Know what is being evaluated while it is, for metrics and samples that look at its rows."""
        outer = self._current_eval_dataset, self._current_eval_name
        is_named = isinstance(dataset, str)
        self._current_eval_name = dataset if is_named else None
        self._current_eval_dataset = self.eval_dataset[dataset] if is_named else dataset
        extras = self.callback_handler.extras
        if not self._is_in_round and prefix not in extras["metric_prefixes"]:
            extras["metric_prefixes"] = (*extras["metric_prefixes"], prefix)  # its own heading in trackers
        try:
            yield
        finally:  # an override that calls evaluation_loop by itself must not see the rows of another set
            self._current_eval_dataset, self._current_eval_name = outer

    def _end_of_evaluation(self, metrics: dict[str, float], is_round_end: bool) -> None:
        """Tell the callbacks, after the state knows whether this was the best."""
        if self._is_for_loop and is_round_end:
            self._is_for_loop = False  # an evaluation that a callback asks for decides nothing
            self._determine_best_metric(metrics, None)
        self._event("on_evaluate", metrics=metrics, is_round_end=is_round_end)

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
        with self._evaluating(test_dataset, metric_key_prefix):
            loader = self.get_test_dataloader(test_dataset)
            start_time = time.time()
            output = self.evaluation_loop(
                loader, description="Prediction", ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix
            )
        self._add_speed(output, start_time, metric_key_prefix)
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
        args = self.args
        loss_only = args.prediction_loss_only if prediction_loss_only is None else prediction_loss_only
        stream = self._begin_streaming()
        keeps_batches = (stream is None and not args.batch_eval_metrics) or description == "Prediction"
        keeps_inputs = "inputs" in args.include_for_metrics
        model = self._prepare_for_evaluation()
        self.callback_handler.eval_dataloader = dataloader
        collector = self._build_collector(dataloader)
        metrics: dict[str, Any] = {}
        self._eval_records = Records()
        try:
            for inputs, is_last in batches.mark_last(dataloader):
                num_rows = comm.find_batch_size(inputs)
                num_items = self._count_items(inputs) if self._weighs_items else None
                self._eval_batch_weight = float((num_rows or 1) if num_items is None else num_items)
                loss, logits, labels = self.prediction_step(model, inputs, loss_only, ignore_keys=ignore_keys)
                logits = self._preprocess(logits, labels)
                collector.add(
                    losses=loss,
                    predictions=logits if keeps_batches else None,
                    labels=labels if keeps_batches else None,
                    inputs=self._main_input(inputs) if keeps_inputs else None,
                    num_rows=num_rows,
                    num_items=num_items,
                )
                self._event("on_prediction_step")
                if self._signals.received and self.is_in_train:
                    raise StopRequested
                if logits is None or labels is None:
                    continue
                if stream is not None:
                    stream.update(logits, labels)
                elif args.batch_eval_metrics:
                    metrics = self._compute_batch_metrics(inputs, loss, logits, labels, is_last)
            metrics.update(self._compute_metrics(collector) if stream is None else stream.compute())
            metrics = {**metric_tools.plain_numbers(metrics), **self._eval_records.drain()}
        finally:
            self._eval_records = None

        self._eval_weight = collector.weight
        if collector.loss is not None:
            metrics[f"{metric_key_prefix}_loss"] = collector.loss
        if self.model_preparation_time is not None:
            metrics[f"{metric_key_prefix}_model_preparation_time"] = self.model_preparation_time
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
        has_own_loss = self.compute_loss_func is not None
        names = self.label_names or batches.known_labels(inputs)
        labels = comm.nested_detach(batches.labels_of(inputs, names, has_own_loss))
        return_loss = batches.entry(inputs, "return_loss")
        gives_loss = self.can_return_loss if return_loss is None else return_loss
        names_labels = bool(self.label_names) or has_own_loss
        has_loss = labels is not None if names_labels else bool(gives_loss)
        loss = None
        with torch.no_grad(), self.compute_loss_context_manager():
            if has_loss:
                num_items = (
                    None if self._weighs_items else self._get_num_items_in_batch([inputs], self._device)
                )
                loss, outputs = self._call_compute_loss(model, inputs, True, num_items)
                loss = loss.detach().mean() if loss.dim() else loss.detach()
            else:
                outputs = batches.call_forward(model, batches.without(inputs, self._held_back))
                if not names_labels:  # neither forward nor the user says what a label is; a loss does
                    loss, labels = batches.loss_of_unnamed(inputs, outputs, labels)
                    has_loss = loss is not None
        if prediction_loss_only:
            return loss, None, None
        ignored = traits.ignored_outputs(self.model) if ignore_keys is None else ignore_keys
        logits = batches.outputs_without_loss(outputs, ignored, has_loss)
        return loss, comm.nested_detach(logits), labels

    def _predict_aside(self, inputs: Any) -> tuple[Any, Any]:
        """Answers and labels of a batch; modes, records and generators of the run stay as they are."""
        model, records = self.model_wrapped, self._eval_records
        modes = [(module, module.training) for module in model.modules()]
        self._eval_records = Records()  # a loss may record() something, which is no part of any log
        model.eval()
        try:
            with preserved_generators():
                _, answers, labels = self.prediction_step(model, inputs, False)
        finally:
            self._eval_records = records
            for module, mode in modes:
                module.training = mode
        return answers, labels

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: list[str] | None, skip_scheduler: bool = False
    ) -> dict[str, float]:
        """Evaluation during training; a schedule that follows a metric moves on it."""
        self._is_for_loop = not skip_scheduler
        before = rng_files.capture_rng()
        try:
            metrics = self.evaluate(ignore_keys=ignore_keys_for_eval)
        except StopRequested:  # a resumed run makes this evaluation from its beginning
            rng_files.restore_rng(before)
            undone = ("should_evaluate", "should_save")
            self._position.pending = [flag for flag in undone if getattr(self.control, flag)]
            raise
        self._report_to_hp_search(trial, self.state.global_step, metrics)
        if not skip_scheduler and schedules.follows_metric(self.lr_scheduler):
            self.lr_scheduler.step(
                metric_tools.read_metric(metrics, self.args.metric_for_best_model or "loss")
            )
        return metrics

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Note in the state whether this evaluation is the best so far, and return it."""
        name = self.args.metric_for_best_model
        if name is None:
            return False
        value = metric_tools.read_metric(metrics, name)
        if metric_tools.is_better(value, self.state.best_metric, bool(self.args.greater_is_better)):
            self.state.best_metric, self.state.best_global_step = value, self.state.global_step
        return self.state.best_global_step == self.state.global_step and value == self.state.best_metric

    def _compute_metrics(self, collector: Collector) -> dict[str, Any]:
        """What `compute_metrics` gives for a whole set; nothing where batches are measured one by one."""
        if self.compute_metrics is None or self.args.batch_eval_metrics:
            return {}
        if collector.predictions is None or collector.labels is None:
            return {}
        return metric_tools.check_metrics(self.compute_metrics(self._describe_prediction(collector)))

    def _describe_prediction(self, collector: Collector) -> EvalPrediction:
        """All that was collected, and the rows that it is about."""
        named = self.args.include_for_metrics
        dataset, indices = self._current_eval_dataset, collector.indices
        rows = RowColumns(dataset, indices) if dataset is not None and indices is not None else None
        return EvalPrediction(
            collector.predictions,
            collector.labels,
            inputs=collector.inputs if "inputs" in named else None,
            losses=collector.losses,
            unpacks_losses="loss" in named,
            columns=rows,
            indices=indices,
            dataset_name=self._current_eval_name,
        )

    def _begin_streaming(self) -> StreamingMetrics | None:
        """The metric objects of this evaluation, where `compute_metrics` is such, cleared of the last one."""
        metrics = self.compute_metrics
        check_is_object(metrics)
        return StreamingMetrics(metrics, self._device) if is_streaming(metrics) else None

    def _prepare_for_evaluation(self) -> nn.Module:
        """The model as evaluation calls it: wrapped, dropout off, in half precision where that is asked."""
        if self.is_in_train:
            model = self.model_wrapped
        else:
            start_time = time.time()
            model = self._wrap_model(self.model_wrapped, training=False)
            if self.optimizer is None:
                self.model_preparation_time = round(time.time() - start_time, 4)
            if self.args.fp16_full_eval or self.args.bf16_full_eval:
                model = model.to(torch.float16 if self.args.fp16_full_eval else torch.bfloat16)
        model.eval()
        if callable(getattr(self.optimizer, "eval", None)):
            self.optimizer.eval()
        return model

    def _build_collector(self, dataloader: Any) -> Collector:
        dataset: Any = getattr(dataloader, "dataset", None)
        return Collector(
            num_samples=len(dataset) if loaders.has_length(dataset) else None,
            batch_size=self.args.eval_batch_size,
            concat=self.args.eval_do_concat_batches,
            loss_weighting=self.args.loss_weighting,
            memory_limit=parse_memory_limit(self.args.eval_memory_limit),
            spill_folder=self.args.output_dir,
            find_rows=lambda: loaders.given_rows(dataloader),
        )

    def _main_input(self, inputs: Any) -> Any:
        """What metrics see of a batch: its main input, or a dictionary of that and the kept columns."""
        names = [traits.main_input_name(self.model), *(self.args.keep_columns or ())]
        found = batches.pick(inputs, names)
        return self._prepare_input(found if self.args.keep_columns else next(iter(found.values()), None))

    def _compute_batch_metrics(
        self, inputs: Any, loss: Any, logits: Any, labels: Any, is_last: bool
    ) -> dict[str, Any]:
        """`compute_metrics` on one batch; only its answer to the last one counts."""
        if self.compute_metrics is None:
            return {}
        named = self.args.include_for_metrics
        prediction = EvalPrediction(
            logits,
            labels,
            inputs=inputs if "inputs" in named else None,
            losses=loss if "loss" in named else None,
            dataset_name=self._current_eval_name,
        )
        return self.compute_metrics(prediction, compute_result=is_last) or {}

    def _add_speed(self, output: EvalLoopOutput, start_time: float, prefix: str) -> None:
        """Add runtime and throughput to an evaluation's metrics."""
        start_time += output.metrics.get(f"{prefix}_model_preparation_time", 0.0)
        num_steps = math.ceil(output.num_samples / (self.args.eval_batch_size * self.args.world_size))
        output.metrics.update(metric_tools.speed_metrics(prefix, start_time, output.num_samples, num_steps))

    def _preprocess(self, logits: Any, labels: Any) -> Any:
        """Logits as metrics see them."""
        if logits is None or self.preprocess_logits_for_metrics is None:
            return logits
        return self.preprocess_logits_for_metrics(logits, labels)
