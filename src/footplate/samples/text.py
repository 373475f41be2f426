"""Token ids, tensors and other values in readable form, for people, JSON and trackers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

SHOWN_NUMBERS = 8  # of a longer vector, only the shape is shown


class TextReader:
    """Turns token ids into text if there is a tokenizer, else into a list of numbers.

    Args:
        processing_class: A tokenizer, a processor with a tokenizer, any other object, or None.
    """

    def __init__(self, processing_class: Any = None) -> None:
        self.tokenizer = getattr(processing_class, "tokenizer", processing_class)
        self._decode: Callable[..., str] | None = getattr(self.tokenizer, "decode", None)
        parameters = inspect.signature(self._decode).parameters if callable(self._decode) else ()
        self._can_skip = "skip_special_tokens" in parameters or "kwargs" in parameters

    @property
    def can_decode(self) -> bool:
        """Whether ids become text, and not only numbers."""
        return self._decode is not None

    @property
    def vocabulary_size(self) -> int | None:
        """How many tokens the tokenizer has; None if it does not tell."""
        return len(self.tokenizer) if hasattr(self.tokenizer, "__len__") else None

    def text(self, ids: Any, with_special: bool = False) -> str:
        """The text of a row of ids; negative ids, which are ignored labels, are left out."""
        numbers = [number for number in _numbers(ids) if number >= 0]
        if self._decode is None:
            return " ".join(map(str, numbers))
        options = {"skip_special_tokens": not with_special} if self._can_skip else {}
        return str(self._decode(numbers, **options)).strip()

    def tokens(self, ids: Any) -> list[str]:
        """Each token of a row as its own text."""
        numbers = _numbers(ids)
        if hasattr(self.tokenizer, "convert_ids_to_tokens"):
            return [str(token) for token in self.tokenizer.convert_ids_to_tokens(numbers)]
        return [self.text([number]) for number in numbers]


def texts_in(row: Any) -> str:
    """What a row of a dataset says in words, such as the text that its tokens were made of; "" if nothing."""
    values = row.values() if isinstance(row, Mapping) else ()
    return " | ".join(value for value in values if isinstance(value, str))


def describe(value: Any) -> Any:
    """A short description of a value: one number, a few numbers, or type and shape."""
    if isinstance(value, (tuple, list)) and any(isinstance(part, torch.Tensor) for part in value):
        return ", ".join(str(describe(part)) for part in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={describe(part)}" for name, part in value.items())
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim == 0:
        return value.item()  # host sync
    if value.ndim == 1 and len(value) <= SHOWN_NUMBERS:
        is_float = value.is_floating_point()
        return " ".join(f"{number:.4g}" if is_float else str(number) for number in value.tolist())
    return f"{str(value.dtype).removeprefix('torch.')} {'x'.join(map(str, value.shape))}"


def plain_value(value: Any) -> Any:
    """A value as text, number, bool or None, which JSON and trackers accept."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        value = value.tolist()  # host sync
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no NaN
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _numbers(ids: Any) -> list[int]:
    return [int(number) for number in (ids.tolist() if hasattr(ids, "tolist") else ids)]  # host sync
