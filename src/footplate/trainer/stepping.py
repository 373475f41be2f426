"""One step of the Trainer: forward, loss, backward, and what is counted and kept of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import nn

from footplate import batch as batch_tools
from footplate import rng
from footplate.data import columns
from footplate.evaluation import metrics as metric_tools
from footplate.trainer.api import TrainerApi
from footplate.training import batches, traits
from footplate.training import loss as losses
from footplate.training.modes import enter_training
from footplate.training.plan import TrainingPlan
from footplate.wrappers import forward_parameters

logger = logging.getLogger(__name__)


class Stepping(TrainerApi):
    """From a micro-batch to gradients."""

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward of one micro-batch. An override returns the loss, detached."""
        run = self._current_run
        if not model.training:  # an evaluation came between
            enter_training(model, self.optimizer)
        run.record_factor = share = self._share_of_update(inputs, num_items_in_batch)
        # with several ranks, all must take part in backward
        if share == 0.0 and run.accord.is_alone:  # the mean over no items is not a number, and adds nothing
            return torch.zeros((), device=self._device)
        context, inputs = self._prepare_context_parallel_inputs(model, inputs)
        with context():
            inputs = self._prepare_inputs(inputs)
            wants_outputs = self.args.train_metrics_batches > 0 or self.callback_handler.wants_step_data
            seen = dict(inputs) if wants_outputs and isinstance(inputs, Mapping) else inputs
            with self.compute_loss_context_manager():
                loss, outputs = losses.call_compute_loss(
                    self.compute_loss,
                    model,
                    inputs,
                    wants_outputs,
                    None if self.args.weighs_items else num_items_in_batch,
                )
            if wants_outputs:
                run.step_data.keep(seen, outputs, loss)
            if self.args.train_metrics_batches and outputs is not None:
                labels = batch_tools.labels_of(seen, self.label_names, callable(self.compute_loss_func))
                ignored = batch_tools.ignored_outputs(self.model)
                logits = batch_tools.outputs_without_loss(outputs, ignored, has_loss=True)
                logits = metric_tools.preprocess(self.preprocess_logits_for_metrics, logits, labels)
                run.window.add(logits, labels)
            if loss.dim():
                loss = losses.as_scalar(loss)
            if share == 0.0:
                loss = loss.nan_to_num() * 0.0
            elif self.args.weighs_items:
                loss = loss * share
            elif share != 1.0:
                loss = loss / run.num_micro_batches  # its bits are not those of a product
                loss = loss if run.batch_weight == 1.0 else loss * run.batch_weight
            run.stopwatch.lap("forward")
            # LOMO steps inside backward and must be told its rate
            options = {"learning_rate": self._get_learning_rate()} if "lomo" in self.args.optim else {}
            self._strategy.backward(loss, **options)
            return loss.detach()

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of a micro-batch, and the model's outputs if asked for. Override for your own loss."""
        labels = None
        smooths = self.label_smoother is not None and "labels" in inputs
        if smooths or callable(self.compute_loss_func):
            inputs, labels = batch_tools.take_labels(inputs, self.label_names)
        forward_inputs = batch_tools.without(inputs, self._held_back)
        if self.model_accepts_loss_kwargs and num_items_in_batch is not None:
            forward_inputs = {**forward_inputs, "num_items_in_batch": num_items_in_batch}
        try:
            outputs = batches.call_forward(model, forward_inputs)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            explain_forward(self, forward_inputs, error)
            raise
        loss: torch.Tensor | None
        if callable(self.compute_loss_func):
            options = (
                {"num_items_in_batch": num_items_in_batch} if takes_item_count(self.compute_loss_func) else {}
            )
            loss = self.compute_loss_func(outputs, labels, **options)
            if not isinstance(loss, torch.Tensor):
                raise TypeError(losses.explain_no_tensor(self.compute_loss_func, loss))
        elif labels is not None and self.label_smoother is not None:
            shifts = traits.is_causal_lm(self.model)
            loss = self.label_smoother(
                outputs, labels, shift_labels=shifts, num_items_in_batch=num_items_in_batch
            )
        else:
            loss = losses.read_loss(outputs)
        if loss is None:
            explain_no_loss(self, inputs, outputs)
        if num_items_in_batch is not None and shares_item_count(self):
            loss = loss * self.args.world_size  # DDP divides by it, and the item count has done so already
        return (loss, outputs) if return_outputs else loss

    def _share_of_update(self, inputs: Any, num_items: Any) -> float:
        """What the loss of a micro-batch is multiplied by, to be its share of the update's."""
        if self.args.weighs_items:
            items = losses.count_items(inputs, self.label_names, self._items_are_shifted)
            counted = items * self.args.world_size if self._current_run.batch_weight else 0
            return counted / max(int(num_items), 1)  # DDP divides by the number of ranks
        is_scaled = self.loss_is_scaled_for_ga
        if is_scaled is None:
            is_told = num_items is not None and takes_item_count(self.compute_loss)
            is_scaled = (self.model_accepts_loss_kwargs and is_told) or scales_loss(self.compute_loss_func)
        weight = self._current_run.batch_weight
        if is_scaled:
            return float(weight > 0.0)  # its items count, however many other ranks have
        return weight / self._current_run.num_micro_batches

    def record(self, name: str, value: torch.Tensor | float) -> None:
        """Log an extra scalar with the next log, averaged as the loss is; in an evaluation, with its metrics.

        Args:
            name: The key in the log.
            value: A number or a scalar tensor, which is not read before the log is.
        """
        run, evaluation = self._current_run, self._current_evaluation
        if evaluation is not None and evaluation.records is not None:
            evaluation.record(name, value)
        else:
            run.meter.record(name, value, run.record_factor, self.state.global_step)

    def floating_point_ops(self, inputs: Any) -> float:
        """Operations of forward and backward on a batch, if the model can count its parameters; else 0."""
        run = self._current_run
        if run.num_flos_parameters is None:
            run.num_flos_parameters = traits.count_flos_parameters(self.model)
        if run.num_flos_parameters == 0 or not isinstance(inputs, Mapping):
            return 0
        name = traits.main_input_name(self.model)
        if name not in inputs:
            return 0
        return float(6 * inputs[name].numel() * run.num_flos_parameters)


def describe_weighting(trainer: Stepping, batch: Any, plan: TrainingPlan) -> None:
    """Warn where the default makes a result depend on how batches are cut."""
    if trainer.args.weighs_items:
        return
    is_split = plan.accumulation > 1 and not scales_loss(trainer.compute_loss_func)
    is_told = trainer.model_accepts_loss_kwargs and takes_item_count(trainer.compute_loss)
    by_model = is_told and trainer.compute_loss_func is None
    notice = losses.describe_weighting(
        is_averaged=is_split and not by_model,
        is_summed=is_split and by_model and traits.leaves_num_items_unused(trainer.model),
        weighs_rows=trainer.eval_dataset is not None and losses.has_item_labels(batch, trainer.label_names),
    )
    if notice is not None:
        logger.warning(notice)


def shares_item_count(trainer: Stepping) -> bool:
    """Whether the number of items that a loss is divided by is that of all ranks together."""
    args = trainer.args
    is_counted = trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None
    is_shared = args.average_tokens_across_devices and args.world_size > 1
    return is_shared and is_counted and trainer._current_evaluation is None


def takes_item_count(function: Callable[..., Any] | None) -> bool:
    """Whether a loss is told the items of the update, to divide by them."""
    return function is not None and traits.declares(function, "num_items_in_batch")


def scales_loss(compute_loss_func: Any) -> bool:
    """Whether the user's loss is already that of the whole update: by a function that is told its items, or
    by an override of compute_loss, for which libraries pass something that cannot be called."""
    if callable(compute_loss_func):
        return takes_item_count(compute_loss_func)
    return compute_loss_func is not None


def explain_forward(trainer: TrainerApi, inputs: Any, error: Exception) -> None:
    """Raise with advice if forward failed on a batch that does not fit it."""
    dataset = trainer.train_dataset if trainer.is_in_train else trainer.eval_dataset
    report_failed_forward(trainer.model, inputs, dataset, trainer.label_names, error)


def explain_no_loss(trainer: TrainerApi, inputs: Any, outputs: Any) -> NoReturn:
    """Raise: the model gave no loss for a batch."""
    dataset = trainer.train_dataset if trainer.is_in_train else trainer.eval_dataset
    names = (columns.names_of(dataset), trainer.label_names)
    raise ValueError(explain_missing_loss(trainer.model, inputs, outputs, *names))


def report_failed_forward(
    model: nn.Module, inputs: Any, dataset: Any, label_names: list[str], error: Exception
) -> None:
    """Raise with advice if forward failed because a batch does not fit it; warn if columns were dropped."""
    with rng.scoped():  # what is saved because of this error must not know that a row was read
        names = columns.names_of(dataset)
    present = {*batch_tools.keys_of(inputs), *label_names, *batch_tools.LABEL_KEYS}
    dropped = [name for name in names if name not in present]
    problem = losses.explain_failed_forward(model, inputs, dropped, error)
    if problem is not None:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(problem) from error
    unset = [name for name in forward_parameters(model) if name not in present]
    if dropped and isinstance(inputs, Mapping):
        logger.warning(
            "forward failed on a batch with the keys %s. If it needs one of the columns %s: they were "
            "dropped because forward does not name them (it got nothing for %s). Rename columns, name them "
            "in forward, or set remove_unused_columns=False.",
            sorted(batch_tools.keys_of(inputs)),
            dropped,
            unset,
        )


def explain_missing_loss(
    model: nn.Module, inputs: Any, outputs: Any, dataset_keys: list[str], label_names: list[str]
) -> str:
    """What to say when a model gave no loss: what went in, what came out, and what forward takes."""
    return losses.explain_missing_loss(
        dataset_keys=dataset_keys,
        batch_keys=list(batch_tools.pick(inputs, batch_tools.keys_of(inputs))),
        forward_names=forward_parameters(model),
        output_keys=batch_tools.keys_of(outputs),
        label_names=label_names,
        headless=type(model).__name__ if traits.has_no_head(model) else None,
    )
