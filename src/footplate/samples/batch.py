"""Some rows of a batch: the inputs, the labels and the predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch

from footplate.batch import entry, known_labels
from footplate.comm import find_batch_size, take_rows
from footplate.samples.text import TextReader, describe

Row = dict[str, Any]


@dataclass(frozen=True)
class SampleBatch:
    """Rows of a batch, the model that predicted them, and the reader of their tokens.

    Args:
        inputs: The batch: a mapping, a tuple or a tensor.
        labels: One tensor, a tuple of several, or None.
        predictions: The outputs of the model without the loss: a tensor, or a tuple of several.
        model: The model without wrappers.
        reader: Turns ids into text.
        label_names: Entries of the inputs that are labels, besides those with the usual names.
    """

    inputs: Any
    labels: Any
    predictions: Any
    model: Any = None
    reader: TextReader = field(default_factory=TextReader)
    label_names: Sequence[str] = ()

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return find_batch_size(self.inputs) or find_batch_size(self.predictions) or 0

    @property
    def answers(self) -> list[torch.Tensor]:
        """The tensors among the predictions, in their order."""
        return tensors_in(self.predictions)

    @property
    def scores(self) -> torch.Tensor | None:
        """The first answer if it holds scores or values for each row, else None."""
        first = next(iter(self.answers), None)
        return first if is_float(first) and first.ndim > 0 else None

    @property
    def model_name(self) -> str:
        """The name of the model's class; in many libraries it tells the task."""
        return type(self.model).__name__

    def setting(self, name: str) -> Any:
        """A setting of the model's config, or None."""
        return getattr(getattr(self.model, "config", None), name, None)

    def entry(self, name: str) -> Any:
        """An entry of the batch, or None."""
        return entry(self.inputs, name)

    def label_name(self, index: int) -> str:
        """The name of a class in the model's config, else its number."""
        names = self.setting("id2label") or {}
        return str(names.get(index, names.get(str(index), index)))

    def is_attended(self, row: int) -> torch.Tensor:
        """Which tokens of a row are not padding."""
        mask, ids = self.entry("attention_mask"), self.entry("input_ids")
        if mask is not None and mask.shape == ids.shape:
            return torch.as_tensor(mask[row]).bool()
        padding = getattr(self.reader.tokenizer, "pad_token_id", None)
        return torch.ones_like(ids[row], dtype=torch.bool) if padding is None else ids[row] != padding

    def input_text(self, row: int, with_special: bool = False) -> Any:
        """The input of a row in readable form: text, a few numbers, or the shape of many."""
        ids = self.entry("input_ids")
        if isinstance(ids, torch.Tensor) and ids.ndim == 2:
            return self.reader.text(ids[row][self.is_attended(row)], with_special)
        return self._describe_input(row)

    def _describe_input(self, row: int) -> Any:
        part = take_rows(self.inputs, row, self.num_rows)
        if isinstance(part, (tuple, list)):
            part = part[:-1] if len(part) > 1 and self.labels is not None else part
            part = {str(index): value for index, value in enumerate(part)}
        if not isinstance(part, Mapping):
            return describe(part)
        hidden = {*self.label_names, *known_labels(part)}
        shown = {
            name: describe(value)
            for name, value in part.items()
            if value is not None and name not in hidden and "mask" not in name
        }
        if len(shown) == 1 and not isinstance(next(iter(part.values())), Mapping):
            return next(iter(shown.values()))
        return ", ".join(f"{name}={value}" for name, value in shown.items())

    def row(self, index: int) -> tuple[Any, Any, Any]:
        """Inputs, labels and predictions of one row."""
        inputs, labels, predictions = (
            take_rows(value, index, self.num_rows) for value in (self.inputs, self.labels, self.predictions)
        )
        return inputs, labels, predictions


def tensors_in(predictions: Any) -> list[torch.Tensor]:
    """The tensors among the predictions, in their order."""
    values = predictions if isinstance(predictions, (tuple, list)) else [predictions]
    return [value for value in values if isinstance(value, torch.Tensor)]


def make_row(shown: Any, target: Any, prediction: Any) -> Row:
    """A row to show; if there is a target, with `correct`."""
    row = {"input": shown, "target": target, "prediction": prediction}
    return row if target is None else {**row, "correct": target == prediction}


def is_float(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether this is a tensor of scores or values."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def is_integer(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether this is a tensor of ids or classes."""
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()
