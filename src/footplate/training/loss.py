"""Which items a loss is a mean over, and what to say when there is no loss."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from footplate.comm import find_batch_size

logger = logging.getLogger(__name__)

IGNORED_LABEL = -100


@dataclass
class LabelSmoother:
    """Cross-entropy that leaves a share `epsilon` of the target to all classes.

    Args:
        epsilon: The share spread evenly over the classes.
        ignore_index: The label that counts for nothing.
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
        num_items = (
            ignored.numel() - ignored.long().sum() if num_items_in_batch is None else num_items_in_batch
        )
        if isinstance(num_items, torch.Tensor):
            num_items = num_items.to(target.device)
        target_loss = target.sum() / num_items
        spread_loss = everything.sum() / (num_items * surprise.shape[-1])
        return (1 - self.epsilon) * target_loss + self.epsilon * spread_loss


def find_smoother(epsilon: float, model: nn.Module) -> LabelSmoother | None:
    """The smoother for a share above zero; none, and a warning, where a row may have several classes."""
    if not epsilon:
        return None
    if getattr(getattr(model, "config", None), "problem_type", None) == "multi_label_classification":
        logger.warning("label_smoothing_factor has no effect on a model for several labels per row.")
        return None
    return LabelSmoother(epsilon=epsilon)


def count_labels(batches: Sequence[Any], shifts_labels: bool, device: torch.device) -> torch.Tensor | None:
    """Labels that count in all of `batches`, or None where there are none that can be counted."""
    if not batches or not isinstance(batches[0], Mapping) or "labels" not in batches[0]:
        return None
    try:
        counts = [_labels_that_count(batch, shifts_labels).ne(IGNORED_LABEL).sum() for batch in batches]
    except (TypeError, AttributeError, KeyError):  # boxes, lists of dicts: nothing to count one by one
        return None
    return torch.stack(counts).sum().to(device) if len(counts) > 1 else counts[0].to(device)


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
    """Items that a batch's mean loss is over: the collator's `num_items`, labels that count, or rows."""
    if isinstance(batch, Mapping):
        if "num_items" in batch:
            return int(torch.as_tensor(batch["num_items"]).sum())
        for name in (*label_names, "labels"):
            labels = batch.get(name)
            if isinstance(labels, torch.Tensor):
                labels = labels[..., 1:] if shifts_labels and labels.dim() > 1 else labels
                # a target of floats has no ignored entries: every number of it counts
                return labels.numel() if labels.is_floating_point() else int(labels.ne(IGNORED_LABEL).sum())
    num_rows = find_batch_size(batch)
    if num_rows is None:
        raise ValueError(
            f"loss_weighting='items' found nothing to count in a batch of type {type(batch).__name__}. Let "
            "the collator add an entry 'num_items', name the labels in label_names, or use "
            "loss_weighting='default'."
        )
    return num_rows


def describe_weighting(is_averaged: bool, is_summed: bool, weighs_rows: bool) -> str | None:
    """One line on where the default makes a result depend on how batches are cut, or None.

    Args:
        is_averaged: Several micro-batches make an update, and their mean losses are averaged.
        is_summed: They are handed the update's item count and do not seem to divide by it.
        weighs_rows: Evaluation meets rows that hold several items each.
    """
    parts = []
    if is_averaged:
        parts.append("an update averages the means of its micro-batches")
    if is_summed:
        parts.append(
            "an update adds up the means of its micro-batches (forward takes num_items_in_batch unused)"
        )
    if weighs_rows:
        parts.append("eval_loss weighs batches by their rows")
    if not parts:
        return None
    return (
        f"With loss_weighting='default', {' and '.join(parts)}, so results depend on how batches are cut. "
        "Set loss_weighting='items' to weigh every item the same."
    )


def has_item_labels(batch: Any, label_names: Collection[str]) -> bool:
    """Whether a row of the batch holds several labels (tokens, pixels) instead of one."""
    if not isinstance(batch, Mapping):
        return False
    labels = [batch[name] for name in (*label_names, "labels") if isinstance(batch.get(name), torch.Tensor)]
    return any(label.dim() > 1 and not label.is_floating_point() for label in labels)


def read_loss(outputs: Any) -> torch.Tensor | None:
    """The loss in what a model returned: under "loss", else the first element; None when there is none."""
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


def explain_missing_loss(
    dataset_keys: Collection[str],
    batch_keys: Collection[str],
    forward_names: Collection[str],
    output_keys: Collection[str],
    label_names: Collection[str],
    headless: str | None = None,
) -> str:
    """Why a model returned no loss: which of the four causes it is, and what to change."""
    expected = list(label_names) or ["labels"]
    label_like = [key for key in dataset_keys if "label" in key or key in expected or key == "target"]
    lost = [key for key in label_like if key not in batch_keys]
    if headless is not None:
        cause = (
            f"{headless} gives hidden states and takes no labels. Use a model with a head for your task, "
            "such "
            "as one of the AutoModelFor... classes, or pass compute_loss_func to Trainer"
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
