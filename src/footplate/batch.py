"""What a batch is: its rows and names, which of them are labels, and what a model answered to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Subset

MAPPING = (dict, Mapping)  # the first is what batches are, and far quicker to tell
LABEL_KEYS = ("label", "labels", "label_ids", "start_positions", "end_positions")
IGNORED_LABEL = -100  # the label that counts for nothing in a loss


def has_length(data: Any) -> bool:
    """Whether `len(data)` gives an answer."""
    return find_length(data) is not None


def find_length(data: Any) -> int | None:
    """How many entries a dataset or a loader says it has."""
    try:
        return len(data)
    except (TypeError, AttributeError, NotImplementedError):  # some libraries raise the latter two
        return None


def is_table(dataset: Any) -> bool:
    """Whether this is a `datasets.Dataset`, which has columns and selects rows without reading them."""
    return hasattr(dataset, "select") and hasattr(dataset, "column_names")


def select_rows(dataset: Any, rows: Sequence[int]) -> Any:
    """A dataset of these rows alone, each read when it is asked for."""
    return dataset.select(rows) if is_table(dataset) else Subset(dataset, rows)


def take_labels(inputs: Any, label_names: Sequence[str]) -> tuple[Any, Any]:
    """Inputs without their labels, and the labels: one as it is, several as a tuple, none as None."""
    if isinstance(inputs, MAPPING):
        names = ["labels"] if "labels" in inputs else [name for name in label_names if name in inputs]
        labels = tuple(inputs[name] for name in names)
        rest = {key: value for key, value in inputs.items() if key not in names}
        return rest, (labels[0] if len(labels) == 1 else labels or None)
    if isinstance(inputs, (tuple, list)) and len(inputs) > 1:
        return inputs[:-1], inputs[-1]
    return inputs, None


def labels_of(inputs: Any, label_names: Sequence[str], has_own_loss: bool = False) -> Any:
    """The labels in a batch: one as it is, several as a tuple, None unless all that are named are there.

    Args:
        inputs: The batch.
        label_names: Which entries are labels.
        has_own_loss: Labels go to a loss function of the user's own: those of a batch without names too.
    """
    if not isinstance(inputs, MAPPING):
        return take_labels(inputs, ())[1] if has_own_loss else None
    names = label_names or (["labels"] if has_own_loss else [])
    labels = [inputs.get(name) for name in names]
    if not labels or any(value is None for value in labels):
        return None
    return labels[0] if len(labels) == 1 else tuple(labels)


def find_labels(inputs: Any, label_names: Sequence[str], has_own_loss: bool = False) -> Any:
    """The labels in a batch by `label_names` or, if there are none, by names that labels usually have."""
    return labels_of(inputs, label_names or known_labels(inputs), has_own_loss)


def known_labels(inputs: Any) -> list[str]:
    """The keys of a batch that are labels by their names, for models whose forward names none."""
    return [name for name in keys_of(inputs) if name in LABEL_KEYS or name.endswith("_labels")]


def entry(batch: Any, name: str) -> Any:
    """One entry of a batch, None where the batch has no names or no such entry."""
    return batch.get(name) if isinstance(batch, MAPPING) else None


def pick(batch: Any, names: Iterable[str]) -> dict[str, Any]:
    """The entries of a batch that have these names."""
    return {name: batch[name] for name in names if entry(batch, name) is not None}


def without(inputs: Any, names: Collection[str]) -> Any:
    """A batch less some of its entries."""
    if names and isinstance(inputs, MAPPING):
        return {key: value for key, value in inputs.items() if key not in names}
    return inputs


def keys_of(batch: Any) -> list[str]:
    """The names in a batch, a sample or a model's outputs; none where it has no names."""
    if isinstance(batch, MAPPING):
        return [str(key) for key in batch]
    return [] if isinstance(batch, (tuple, list, torch.Tensor)) else list(getattr(batch, "__dict__", {}))


def outputs_without_loss(outputs: Any, ignore_keys: Collection[str], has_loss: bool) -> Any:
    """What a model answered besides its loss: the bare value where there is one, else a tuple."""
    answers: Any
    if isinstance(outputs, MAPPING):
        ignored = {*ignore_keys, "loss"} if has_loss else set(ignore_keys)
        answers = [value for key, value in outputs.items() if key not in ignored]
    elif isinstance(outputs, (tuple, list)):
        # a loss function of the user's own leaves the loss out of the tuple
        first_is_loss = has_loss and isinstance(outputs[0], torch.Tensor) and outputs[0].dim() == 0
        answers = tuple(outputs[1:]) if first_is_loss else outputs
    elif hasattr(outputs, "__dataclass_fields__"):
        return outputs_without_loss(dict(vars(outputs)), ignore_keys, has_loss)
    else:
        return outputs
    answers = [answer for answer in answers if answer is not None and not _is_cache(answer)]
    return answers[0] if len(answers) == 1 else tuple(answers)


def ignored_outputs(model: Any) -> list[str]:
    """The keys of a model's outputs that are not predictions, as its configuration says."""
    config = getattr(model, "config", None)
    return [] if config is None else list(getattr(config, "keys_to_ignore_at_inference", ["past_key_values"]))


def _is_cache(answer: Any) -> bool:
    """Whether this is what a model keeps for its next token: not a prediction, and not of tensors alone."""
    return type(answer) is not torch.Tensor and type(answer).__name__.endswith("Cache")
