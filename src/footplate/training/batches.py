"""What is done with one batch on its way to the model: call, take labels, split, count tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from footplate.comm import find_batch_size, rebuild
from footplate.training.loss import read_loss

Item = TypeVar("Item")

MAPPING = (dict, Mapping)  # the first is what batches are, and far quicker to tell
LABEL_KEYS = ("label", "labels", "label_ids", "start_positions", "end_positions")


def mark_last(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    """Each item, and whether it is the last; reads one ahead."""
    remaining = iter(items)
    for item in remaining:
        for following in remaining:
            yield item, False
            item = following
        yield item, True


def call_forward(model: nn.Module, inputs: Any) -> Any:
    """Call the model: with a mapping as keywords, a tuple or list as arguments, else with the one value."""
    if isinstance(inputs, MAPPING):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


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


def labels_of(inputs: Any, label_names: Sequence[str], has_own_loss: bool) -> Any:
    """The labels in a batch: one as it is, several as a tuple, None unless all that are named are there."""
    if not isinstance(inputs, MAPPING):
        return take_labels(inputs, ())[1] if has_own_loss else None
    names = label_names or (["labels"] if has_own_loss else [])
    if not names or any(inputs.get(name) is None for name in names):
        return None
    labels = tuple(inputs[name] for name in names)
    return labels[0] if len(labels) == 1 else labels


def known_labels(inputs: Any) -> list[str]:
    """The keys of a batch that are labels by their names, for models whose forward names none."""
    return [name for name in keys_of(inputs) if name in LABEL_KEYS or name.endswith("_labels")]


def loss_of_unnamed(inputs: Any, outputs: Any, labels: Any) -> tuple[torch.Tensor | None, Any]:
    """Loss and labels where nobody says which inputs are labels: what outputs call a loss, else begin with.

    A batch without names has its labels last, and a scalar that outputs begin with is then the loss.
    """
    if isinstance(inputs, MAPPING):
        loss = read_loss(outputs) if entry(outputs, "loss") is not None else None
        return (loss.mean() if loss is not None else None), labels
    loss = read_loss(outputs)
    if loss is None or loss.dim() > 0:
        return None, None
    return loss, take_labels(inputs, ())[1]


def entry(batch: Any, name: str) -> Any:
    """One entry of a batch, None where the batch is no mapping or has no such entry."""
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
    """The names in a batch, a sample or a model's outputs; none where it is no mapping."""
    if isinstance(batch, MAPPING):
        return [str(key) for key in batch]
    return [] if isinstance(batch, (tuple, list, torch.Tensor)) else list(getattr(batch, "__dict__", {}))


def outputs_without_loss(outputs: Any, ignore_keys: Collection[str], has_loss: bool) -> Any:
    """What a model answered besides its loss: the bare value where there is one, else a tuple."""
    if isinstance(outputs, MAPPING):
        ignored = {*ignore_keys, "loss"} if has_loss else set(ignore_keys)
        answers: Any = tuple(value for key, value in outputs.items() if key not in ignored)
    elif isinstance(outputs, (tuple, list)):
        # a loss function of the user's own leaves the loss out of the tuple
        first_is_loss = has_loss and isinstance(outputs[0], torch.Tensor) and outputs[0].dim() == 0
        answers = tuple(outputs[1:]) if first_is_loss else outputs
    elif hasattr(outputs, "__dataclass_fields__"):
        return outputs_without_loss(dict(vars(outputs)), ignore_keys, has_loss)
    else:
        return outputs
    answers = tuple(answer for answer in answers if answer is not None and not _is_cache(answer))
    return answers[0] if len(answers) == 1 else answers


def _is_cache(answer: Any) -> bool:
    """Whether this is what a model keeps for its next token: no prediction, and not of tensors alone."""
    return type(answer).__name__.endswith("Cache")


def count_input_tokens(
    inputs: Any, main_input_name: str, mode: str, pad_token_id: int | None
) -> int | torch.Tensor | None:
    """Tokens of a batch, all or without padding; None where the main input is not in it."""
    if not isinstance(inputs, MAPPING) or main_input_name not in inputs:
        return None
    main_input = inputs[main_input_name]
    if mode == "non_padding":
        if "attention_mask" in inputs:
            return torch.as_tensor(inputs["attention_mask"]).sum()
        if pad_token_id is not None:
            return torch.as_tensor(main_input != pad_token_id).sum()
    return int(main_input.numel())


def split_batch(batch: Any, max_rows: int) -> list[Any]:
    """A batch in pieces of at most `max_rows` rows; entries that are not per row go into every piece."""
    num_rows = find_batch_size(batch) or 1
    starts = range(0, num_rows, max_rows)
    return [_rows(batch, slice(start, start + max_rows), num_rows) for start in starts]


def _rows(value: Any, rows: slice, num_rows: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value[rows] if value.dim() > 0 and value.shape[0] == num_rows else value
    if isinstance(value, MAPPING):
        return {key: _rows(entry, rows, num_rows) for key, entry in value.items()}
    if (
        isinstance(value, list)
        and len(value) == num_rows
        and not any(isinstance(v, torch.Tensor) for v in value)
    ):
        return value[rows]
    if isinstance(value, (tuple, list)):
        return rebuild(value, [_rows(entry, rows, num_rows) for entry in value])
    return value


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device or the host ran out of memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    signs = ("out of memory", "CUDNN_STATUS_NOT_SUPPORTED", "can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
