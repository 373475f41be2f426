"""A few rows of a batch to look at: what went in, what was wanted, what came out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from footplate.comm import find_batch_size, rebuild

Row = dict[str, Any]

IGNORED_LABEL = -100
LABEL_NAMES = ("labels", "label", "label_ids", "start_positions", "end_positions")
SHOWN_NUMBERS = 8  # a longer vector is shown by its shape


class TextReader:
    """Turns token ids into text with whatever tokenizer there is; without one, into numbers.

    Args:
        processing_class: A tokenizer, a processor that holds one, something else, or None.
    """

    def __init__(self, processing_class: Any = None) -> None:
        self.tokenizer = getattr(processing_class, "tokenizer", processing_class)
        self._decode: Callable[..., str] | None = getattr(self.tokenizer, "decode", None)
        parameters = inspect.signature(self._decode).parameters if callable(self._decode) else ()
        self._can_skip = "skip_special_tokens" in parameters or "kwargs" in parameters

    @property
    def vocabulary_size(self) -> int | None:
        """How many tokens the tokenizer knows, if there is one that says so."""
        return len(self.tokenizer) if hasattr(self.tokenizer, "__len__") else None

    def text(self, ids: Any, with_special: bool = False) -> str:
        """The text of a row of ids; labels that do not count are left out."""
        numbers = [number for number in _numbers(ids) if number >= 0]
        if self._decode is None:
            return " ".join(map(str, numbers))
        options = {"skip_special_tokens": not with_special} if self._can_skip else {}
        return str(self._decode(numbers, **options)).strip()

    def tokens(self, ids: Any) -> list[str]:
        """Each token of a row by itself."""
        numbers = _numbers(ids)
        if hasattr(self.tokenizer, "convert_ids_to_tokens"):
            return [str(token) for token in self.tokenizer.convert_ids_to_tokens(numbers)]
        return [self.text([number]) for number in numbers]


@dataclass(frozen=True)
class SampleBatch:
    """Rows of a batch, the model that answered, and what reads its tokens.

    Args:
        inputs: The batch: a mapping, a tuple or a tensor.
        labels: One tensor, a tuple of several, or None.
        predictions: What the model answered besides its loss: a tensor, or a tuple of several.
        model: The model inside all wrappers.
        reader: Makes text of ids.
        label_names: Entries of the inputs that are labels.
    """

    inputs: Any
    labels: Any
    predictions: Any
    model: Any = None
    reader: TextReader = field(default_factory=TextReader)
    label_names: Sequence[str] = LABEL_NAMES

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return find_batch_size(self.inputs) or find_batch_size(self.predictions) or 0

    @property
    def answers(self) -> list[torch.Tensor]:
        """The tensors among the predictions, in their order."""
        values = self.predictions.values() if isinstance(self.predictions, Mapping) else self.predictions
        values = values if isinstance(values, (tuple, list)) else [values]
        return [value for value in values if isinstance(value, torch.Tensor)]

    @property
    def scores(self) -> torch.Tensor | None:
        """The first answer, if it is one of scores or values with rows."""
        first = next(iter(self.answers), None)
        return first if is_float(first) and first is not None and first.ndim > 0 else None

    @property
    def model_name(self) -> str:
        """The model's class, which says the task in many libraries."""
        return type(self.model).__name__

    def setting(self, name: str) -> Any:
        """A setting of the model's config, or None."""
        return getattr(getattr(self.model, "config", None), name, None)

    def entry(self, name: str) -> Any:
        """An entry of the batch, or None."""
        return self.inputs.get(name) if isinstance(self.inputs, Mapping) else None

    def label_name(self, index: int) -> str:
        """What the model's config calls a class."""
        names = self.setting("id2label") or {}
        return str(names.get(index, names.get(str(index), index)))

    def is_attended(self, row: int) -> torch.Tensor:
        """Which tokens of a row are no padding."""
        mask, ids = self.entry("attention_mask"), self.entry("input_ids")
        if mask is not None and mask.shape == ids.shape:
            return torch.as_tensor(mask[row]).bool()
        padding = getattr(self.reader.tokenizer, "pad_token_id", None)
        return torch.ones_like(ids[row], dtype=torch.bool) if padding is None else ids[row] != padding

    def input_text(self, row: int, with_special: bool = False) -> Any:
        """The input of a row as a person reads it: text, a few numbers, or the shape of many."""
        ids = self.entry("input_ids")
        if isinstance(ids, torch.Tensor) and ids.ndim == 2:
            return self.reader.text(ids[row][self.is_attended(row)], with_special)
        return self._describe_input(row)

    def _describe_input(self, row: int) -> Any:
        part = row_of(self.inputs, row, self.num_rows)
        if isinstance(part, (tuple, list)):
            part = part[:-1] if len(part) > 1 and self.labels is not None else part
            part = {str(index): value for index, value in enumerate(part)}
        if not isinstance(part, Mapping):
            return describe(part)
        shown = {
            name: describe(value)
            for name, value in part.items()
            if value is not None and name not in {*self.label_names, *LABEL_NAMES} and "mask" not in name
        }
        if len(shown) == 1 and not isinstance(next(iter(part.values())), Mapping):
            return next(iter(shown.values()))
        return ", ".join(f"{name}={value}" for name, value in shown.items())

    def row(self, index: int) -> tuple[Any, Any, Any]:
        """Inputs, labels and predictions of one row."""
        inputs, labels, predictions = (
            row_of(value, index, self.num_rows) for value in (self.inputs, self.labels, self.predictions)
        )
        return inputs, labels, predictions


def take_rows(value: Any, num_rows: int) -> Any:
    """The first rows of everything in a batch, cut from the graph; what has no rows stays whole."""
    size = find_batch_size(value)

    def take(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return item.detach()[:num_rows] if item.ndim and item.shape[0] == size else item.detach()
        if isinstance(item, Mapping):
            return {name: take(part) for name, part in item.items()}
        if isinstance(item, (tuple, list)):
            is_column = isinstance(item, list) and len(item) == size and not _holds_tensors(item)
            return item[:num_rows] if is_column else rebuild(item, [take(part) for part in item])
        return item

    return take(value)


def row_of(value: Any, row: int, size: int) -> Any:
    """One row of everything in a batch of `size` rows."""
    if isinstance(value, Mapping):
        return {name: row_of(part, row, size) for name, part in value.items()}
    if isinstance(value, torch.Tensor):
        return value[row] if value.ndim and value.shape[0] == size else value
    if isinstance(value, (tuple, list)):
        if isinstance(value, list) and len(value) == size and not _holds_tensors(value):
            return value[row]
        return rebuild(value, [row_of(part, row, size) for part in value])
    return value


def answers_of(outputs: Any, ignored: Sequence[str] = ()) -> Any:
    """What a model answered besides its loss: the bare value where there is one, else a tuple."""
    if hasattr(outputs, "__dataclass_fields__") and not isinstance(outputs, Mapping):
        outputs = vars(outputs)
    if isinstance(outputs, Mapping):
        answers = [value for name, value in outputs.items() if name not in {*ignored, "loss"}]
    elif isinstance(outputs, (tuple, list)):
        is_loss_first = len(outputs) > 1 and isinstance(outputs[0], torch.Tensor) and outputs[0].ndim == 0
        answers = list(outputs[1:] if is_loss_first else outputs)
    else:
        return outputs
    answers = [value for value in answers if value is not None]
    return answers[0] if len(answers) == 1 else tuple(answers)


def labels_of(inputs: Any, label_names: Sequence[str]) -> Any:
    """The labels in a batch: one as it is, several as a tuple, None where there are none."""
    if isinstance(inputs, Mapping):
        names = [name for name in label_names or LABEL_NAMES if inputs.get(name) is not None]
        labels = tuple(inputs[name] for name in names)
        return labels[0] if len(labels) == 1 else labels or None
    return inputs[-1] if isinstance(inputs, (tuple, list)) and len(inputs) > 1 else None


def describe(value: Any) -> Any:
    """A value in short: a number, a few numbers, or the type and shape of many."""
    if isinstance(value, (tuple, list)) and _holds_tensors(value):
        return ", ".join(str(describe(part)) for part in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={describe(part)}" for name, part in value.items())
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim == 0:
        return value.item()  # host sync
    if value.ndim == 1 and len(value) <= SHOWN_NUMBERS:
        return " ".join(_short(number) for number in value.tolist())
    return f"{str(value.dtype).removeprefix('torch.')} {'x'.join(map(str, value.shape))}"


def make_row(shown: Any, target: Any, prediction: Any) -> Row:
    """A row to show; where the target is known, with a verdict."""
    row = {"input": shown, "target": target, "prediction": prediction}
    return row if target is None else {**row, "correct": target == prediction}


def plain_row(row: Row) -> Row:
    """A row whose values are text, numbers, truth values or None, as JSON and trackers take them."""
    return {str(name): plain_value(value) for name, value in row.items()}


def plain_value(value: Any) -> Any:
    """A value as text or number."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        value = value.tolist()  # host sync
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no NaN
    return value if value is None or isinstance(value, (str, int)) else str(value)


def is_float(value: Any) -> bool:
    """Whether this is a tensor of scores or values."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def is_integer(value: Any) -> bool:
    """Whether this is a tensor of ids or classes."""
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _short(number: Any) -> str:
    return f"{number:.4g}" if isinstance(number, float) else str(number)


def _holds_tensors(values: Sequence[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in values)


def _numbers(ids: Any) -> list[int]:
    return [int(number) for number in (ids.tolist() if hasattr(ids, "tolist") else ids)]  # host sync
