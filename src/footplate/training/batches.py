"""Work on one batch: call the model with it, split it, count its tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from footplate.batch import MAPPING, entry, take_labels
from footplate.comm import find_batch_size, take_rows
from footplate.training.loss import read_loss
from footplate.training.traits import main_input_name

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


def mark_last(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    """Each item, and whether it is the last; reads one item ahead, unless the iterator does so itself."""
    remaining: Any = iter(items)
    if hasattr(remaining, "is_last"):
        # reading two ahead would change the order in which data and model draw random numbers
        for item in remaining:
            yield item, remaining.is_last
        return
    for item in remaining:
        for following in remaining:
            yield item, False
            item = following
        yield item, True


def call_forward(model: nn.Module, inputs: Any) -> Any:
    """Call the model: a mapping gives keywords, a tuple or list arguments, anything else one argument."""
    if isinstance(inputs, MAPPING):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


def loss_of_unnamed(inputs: Any, outputs: Any, labels: Any) -> tuple[torch.Tensor | None, Any]:
    """Loss and labels of a batch when neither forward nor the user names the labels.

    In a batch with names, the loss is the output named `loss`. In a batch without names, the labels are the
    last entry, and the loss is the first output if it is a scalar.
    """
    if isinstance(inputs, MAPPING):
        loss = read_loss(outputs) if entry(outputs, "loss") is not None else None
        return (loss.mean() if loss is not None else None), labels
    loss = read_loss(outputs)
    if loss is None or loss.dim() > 0:
        return None, None
    return loss, take_labels(inputs, ())[1]


class TokenCounter:
    """Counts the input tokens of batches.

    Args:
        mode: "all", "non_padding", or "no" for none.
        model: Names its main input.
        processing_class: Names the padding, for batches without an attention mask.
    """

    def __init__(self, mode: str | bool, model: Any = None, processing_class: Any = None) -> None:
        self.mode = str(mode)
        self._name = main_input_name(model)
        self._pad_token_id: int | None = getattr(processing_class, "pad_token_id", None)
        self._has_warned = False

    def count(self, inputs: Any) -> int | torch.Tensor | None:
        """Tokens of a batch, on its device; None if nothing is counted or the main input is missing."""
        if self.mode == "no":
            return None
        if entry(inputs, self._name) is None:
            self._warn(f"nothing is counted: a batch has no {self._name!r}. Set main_input_name on the model")
            return None
        if self.mode == "non_padding":
            if "attention_mask" in inputs:
                return _on_host(torch.as_tensor(inputs["attention_mask"]).sum())
            if self._pad_token_id is not None:
                return _on_host(torch.as_tensor(inputs[self._name] != self._pad_token_id).sum())
            self._warn(
                "all tokens are counted, padding too: batches have no attention_mask, and processing_class "
                "has no pad_token_id. Pass a tokenizer as processing_class, or let the collator give a mask"
            )
        return int(inputs[self._name].numel())

    def _warn(self, problem: str) -> None:
        """Say once per run what is not counted as asked for."""
        if not self._has_warned:
            logger.warning("include_num_input_tokens_seen=%r: %s.", self.mode, problem)
        self._has_warned = True


def _on_host(count: torch.Tensor) -> int | torch.Tensor:
    """A count as a number, unless a device would have to be asked for it."""
    return int(count) if count.device.type == "cpu" else count


def split_batch(batch: Any, max_rows: int) -> list[Any]:
    """A batch in pieces of at most `max_rows` rows; entries that are not per row go into every piece."""
    num_rows = find_batch_size(batch) or 1
    starts = range(0, num_rows, max_rows)
    return [take_rows(batch, slice(start, start + max_rows), num_rows) for start in starts]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device or the host ran out of memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    signs = ("out of memory", "CUDNN_STATUS_NOT_SUPPORTED", "can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
