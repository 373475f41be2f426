"""Which items a loss is a mean over, and the error for a model without a loss."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import comm
from footplate.batch import IGNORED_LABEL, MAPPING
from footplate.comm import find_batch_size
from footplate.training.traits import declares
from footplate.wrappers import bare_model, forward_parameters

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)


@dataclass
class LabelSmoother:
    """Cross-entropy that spreads a share `epsilon` of the target over all classes.

    Args:
        epsilon: The share that is spread evenly over the classes.
        ignore_index: The label that does not count.
    """

    epsilon: float = 0.1
    ignore_index: int = IGNORED_LABEL

    def __call__(
        self,
        model_output: Any,
        labels: torch.Tensor,
        shift_labels: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        logits = model_output["logits"] if isinstance(model_output, Mapping) else model_output[0]
        if shift_labels:
            logits, labels = logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
        surprise = -nn.functional.log_softmax(logits, dim=-1)
        if labels.dim() == surprise.dim() - 1:
            labels = labels.unsqueeze(-1)
        ignored = labels.eq(self.ignore_index)
        target = surprise.gather(dim=-1, index=labels.clamp(min=0)).masked_fill_(ignored, 0.0)
        wide = torch.promote_types(torch.float32, surprise.dtype)  # half precision would lose the sum
        everything = surprise.sum(dim=-1, keepdim=True, dtype=wide).masked_fill_(ignored, 0.0)
        num_items = num_items_in_batch
        if num_items is None:
            num_items = ignored.numel() - ignored.long().sum()
        if isinstance(num_items, torch.Tensor):
            num_items = num_items.to(target.device)
        target_loss = target.sum() / num_items
        spread_loss = everything.sum() / (num_items * surprise.shape[-1])
        return (1 - self.epsilon) * target_loss + self.epsilon * spread_loss


def find_smoother(epsilon: float, model: nn.Module) -> LabelSmoother | None:
    """The smoother for a share above zero; None, with a warning, if a row may have several classes."""
    if not epsilon:
        return None
    if getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification":
        logger.warning("label_smoothing_factor has no effect on a model for several labels per row.")
        return None
    return LabelSmoother(epsilon=epsilon)


def count_labels(batches: Sequence[Any], shifts_labels: bool, device: torch.device) -> torch.Tensor | None:
    """The number of labels that count in all of `batches`; None if they cannot be counted."""
    if not batches or not isinstance(batches[0], Mapping) or "labels" not in batches[0]:
        return None
    try:
        counts = [_labels_that_count(batch, shifts_labels).ne(IGNORED_LABEL).sum() for batch in batches]
    except (TypeError, AttributeError, KeyError):  # boxes and lists of dicts cannot be counted one by one
        return None
    total = torch.stack(counts).sum() if len(counts) > 1 else counts[0]
    return total.to(device, torch.float32)  # as in the original since 5.23


def count_over_ranks(
    count: torch.Tensor | None, args: TrainingArguments, device: torch.device
) -> torch.Tensor | None:
    """The sum of what ranks counted, if they divide by it together; None if none of them could count."""
    if not args.average_tokens_across_devices:
        return count
    own = [0.0, 0.0] if count is None else [float(count), 1.0]
    total, num_counted = comm.sum_tensor(torch.tensor(own, device=device)).unbind()
    return total if num_counted > 0 else None  # host sync: the ranks have just waited for each other


def _labels_that_count(batch: Mapping[str, Any], shifts_labels: bool) -> torch.Tensor:
    if "shift_labels" in batch:
        labels = batch["shift_labels"]
    else:
        # a causal loss drops the first label of each row: it predicts nothing
        labels = batch["labels"][..., 1:] if shifts_labels else batch["labels"]
    if not isinstance(labels, torch.Tensor):
        raise TypeError("labels of boxes or texts cannot be counted one by one")
    return labels


def count_items(batch: Any, label_names: Sequence[str], shifts_labels: bool) -> int:
    """The number of items in a batch's mean loss: the collator's `num_items`, labels that count, or rows."""
    if isinstance(batch, Mapping):
        if "num_items" in batch:
            return int(torch.as_tensor(batch["num_items"]).sum())
        for name in (*label_names, "labels"):
            labels = batch.get(name)
            if isinstance(labels, torch.Tensor):
                labels = labels[..., 1:] if shifts_labels and labels.dim() > 1 else labels
                # a target of floats has no ignored entries: every number counts
                return labels.numel() if labels.is_floating_point() else int(labels.ne(IGNORED_LABEL).sum())
    num_rows = find_batch_size(batch)
    if num_rows is None:
        raise ValueError(
            f"loss_weighting='items' found nothing to count in a batch of type {type(batch).__name__}. Let "
            "the collator add an entry 'num_items', name the labels in label_names, or set "
            "loss_weighting='batches'."
        )
    return num_rows


def call_compute_loss(
    compute_loss: Callable[..., Any], model: nn.Module, inputs: Any, wants_outputs: bool, num_items: Any
) -> tuple[torch.Tensor, Any]:
    """Loss and outputs from a user's `compute_loss`, which need not take or return all of the newer API."""
    options: dict[str, Any] = {}
    if wants_outputs and declares(compute_loss, "return_outputs"):
        options["return_outputs"] = True
    if num_items is not None and declares(compute_loss, "num_items_in_batch"):
        options["num_items_in_batch"] = num_items
    result = compute_loss(model, inputs, **options)
    loss, outputs = result if isinstance(result, tuple) else (result, None)
    if not isinstance(loss, torch.Tensor):
        raise TypeError(explain_no_tensor(compute_loss, loss))
    return loss, outputs


def explain_no_tensor(function: Callable[..., Any], returned: Any) -> str:
    """The error for a loss function that returned something else than a loss."""
    name = getattr(function, "__qualname__", type(function).__name__)
    if returned is None:
        advice = "is a `return` missing at its end?"
    elif isinstance(returned, (int, float)):
        advice = "leave out .item() or float(): a plain number has no gradients."
    else:
        advice = "return the loss alone or first."
    given = "None" if returned is None else f"a loss of type {type(returned).__name__}"
    pair = ", or (loss, outputs) if return_outputs=True" if declares(function, "return_outputs") else ""
    return f"{name} returned {given}. It must return the loss as a tensor{pair}: {advice}"


def as_scalar(loss: torch.Tensor) -> torch.Tensor:
    """A loss of one value without dimensions; ValueError if it has several values."""
    if loss.numel() == 1:
        return loss.reshape(())
    raise ValueError(
        f"The loss has shape {tuple(loss.shape)}; training needs one number per batch. Return its mean: "
        "loss.mean(), or a loss with reduction='mean' instead of 'none'."
    )


def describe_weighting(is_averaged: bool, is_summed: bool, weighs_rows: bool) -> str | None:
    """How results depend on the sizes of batches with `loss_weighting="batches"`; None if they do not.

    Args:
        is_averaged: Several micro-batches make an update, and their mean losses are averaged.
        is_summed: The model gets the update's item count and does not seem to divide by it.
        weighs_rows: Rows of the evaluation data hold several items each.
    """
    parts = []
    if is_averaged:
        parts.append("an update averages the means of its micro-batches")
    if is_summed:
        parts.append(
            "an update adds up the means of its micro-batches (forward takes num_items_in_batch, unused)"
        )
    if weighs_rows:
        parts.append("eval_loss weighs batches by their rows")
    if not parts:
        return None
    return (
        f"With loss_weighting='batches', {' and '.join(parts)}, so results depend on how samples are "
        "divided into batches. Set loss_weighting='items' to weigh every item the same."
    )


def has_item_labels(batch: Any, label_names: Collection[str]) -> bool:
    """Whether a row of the batch holds several labels (tokens, pixels) instead of one."""
    if not isinstance(batch, Mapping):
        return False
    labels = [batch[name] for name in (*label_names, "labels") if isinstance(batch.get(name), torch.Tensor)]
    return any(label.dim() > 1 and not label.is_floating_point() for label in labels)


def read_loss(outputs: Any) -> torch.Tensor | None:
    """The loss that a model returned, under "loss" or as the first element; None if there is none."""
    if isinstance(outputs, (dict, Mapping)):
        loss = outputs.get("loss")
    elif isinstance(outputs, torch.Tensor):
        loss = outputs if outputs.dim() == 0 else None
    elif hasattr(outputs, "loss"):
        loss = outputs.loss
    elif isinstance(outputs, (tuple, list)):
        loss = outputs[0] if len(outputs) else None
    else:
        loss = None
    return loss if isinstance(loss, torch.Tensor) else None


def explain_failed_forward(
    model: nn.Module, inputs: Any, dropped: Sequence[str], error: Exception
) -> str | None:
    """Why forward cannot take a batch, as far as its kind and names tell; None if they tell nothing.

    Args:
        model: The model whose forward failed.
        inputs: The batch that it was called with.
        dropped: Columns of the dataset that are not in the batch.
        error: What it failed with.
    """
    takes = f"{type(bare_model(model)).__name__}.forward takes {forward_parameters(model)}"
    if inputs is None:
        return "A batch is None: the data_collator returned nothing. Is a `return` missing at its end?"
    if isinstance(inputs, (list, tuple)) and inputs and isinstance(inputs[0], MAPPING):
        return (
            f"A batch is a {type(inputs).__name__} of {len(inputs)} samples: the data_collator returned its "
            "samples as they came. Let it return one dictionary of tensors ({name: torch.stack([row[name] "
            "for row in rows])}), or leave data_collator out."
        )
    if isinstance(error, KeyError) and error.args and error.args[0] in dropped:
        return (
            f"forward looked for {error.args[0]!r}, a column that was dropped because forward does not name "
            f"it: {takes}, and **kwargs names no column. Name it in forward, or set "
            "remove_unused_columns=False."
        )
    problem = find_call_problem(model, inputs)
    if problem is None:
        return None
    if not isinstance(inputs, MAPPING):
        return (
            f"A batch of {len(inputs) if isinstance(inputs, (list, tuple)) else 1} entries does not fit the "
            f"model ({problem}): {takes}. The samples are tuples, which become arguments in their order. Let "
            "forward take all of them and return a loss, pass compute_loss_func (the last entry is then the "
            "labels), or let samples be dictionaries."
        )
    lost = f" The columns {list(dropped)} were dropped because forward does not name them." if dropped else ""
    return (
        f"A batch with the keys {sorted(map(str, inputs))} does not fit the model ({problem}): {takes}."
        f"{lost} Rename columns to the names in forward, or let the data_collator give these names."
    )


def find_call_problem(model: nn.Module, inputs: Any) -> str | None:
    """Why forward cannot be called with a batch, as Python says it; None if it can."""
    signature = inspect.signature(bare_model(model).forward)
    try:
        if isinstance(inputs, MAPPING):
            signature.bind(**inputs)
        else:
            signature.bind(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
    except TypeError as error:
        return str(error)
    return None


def explain_missing_loss(
    dataset_keys: Collection[str],
    batch_keys: Collection[str],
    forward_names: Collection[str],
    output_keys: Collection[str],
    label_names: Collection[str],
    headless: str | None = None,
) -> str:
    """The error for a model that returned no loss: its cause, and what to change."""
    expected = list(label_names) or ["labels"]
    label_like = [key for key in dataset_keys if "label" in key or key in expected or key == "target"]
    lost = [key for key in label_like if key not in batch_keys]
    if headless is not None:
        cause = (
            f"{headless} returns hidden states and takes no labels. Use a model with a head for your task, "
            "such as one of the AutoModelFor... classes, or pass compute_loss_func to Trainer"
        )
    elif any(name in batch_keys for name in expected):
        cause = (
            f"forward received {sorted(set(expected) & set(batch_keys))} and still gave no loss. Let "
            "forward return a loss (a dict with the key 'loss', or the loss first in a tuple), or pass "
            "compute_loss_func to Trainer"
        )
    elif dataset_keys and not label_like:
        cause = (
            f"the dataset has no labels: none of its columns is one of {expected}. Add such a column, or "
            "name the label columns in label_names"
        )
    elif lost and not any(key in forward_names for key in lost):
        rename = [] if set(lost) & set(expected) else [f"rename them to one of {expected}"]
        remedies = [*rename, "let forward take them and return a loss", "pass compute_loss_func to Trainer"]
        cause = (
            f"the column(s) {lost} were dropped because forward does not name them. Either "
            f"{', or '.join(remedies)} (label_names={lost} or keep_columns={lost} keeps them for it)"
        )
    else:
        cause = (
            f"the collator renamed or removed the labels: the batch has none of {expected}. Let the "
            "collator pass them on under that name"
        )
    return (
        f"The model returned no loss: {cause}. Columns of the dataset: {sorted(dataset_keys)}; keys of the "
        f"batch: {sorted(batch_keys)}; parameters of forward: {list(forward_names)}; keys it returned: "
        f"{sorted(output_keys)}."
    )
