"""Stacking samples of equal shape into a batch, whatever a sample is: mapping, tuple, tensor or object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

DataCollator = Callable[[list[Any]], Any]

_LABEL_COLUMNS = ("label", "label_ids")
_SAME_IN_BOTH = frozenset(map(np.dtype, (np.int64, np.bool_, np.float32)))
_PLAIN_NUMBERS = {bool, int, float}
_ROWS = {list, tuple}
_RAGGED = "ragged"


class DataCollatorMixin:
    """Sends a call to `torch_call` or `numpy_call`, as `return_tensors` asks."""

    return_tensors: str

    def __call__(self, features: list[Any], return_tensors: str | None = None) -> Any:
        kind = check_return_tensors(self.return_tensors if return_tensors is None else return_tensors)
        return self.torch_call(features) if kind == "pt" else self.numpy_call(features)

    def torch_call(self, features: list[Any]) -> Any:
        """The batch as PyTorch tensors; a subclass brings it."""
        raise NotImplementedError(
            f"{type(self).__name__} does not make PyTorch batches (return_tensors='pt')."
        )

    def numpy_call(self, features: list[Any]) -> Any:
        """The batch as NumPy arrays; a subclass brings it."""
        raise NotImplementedError(f"{type(self).__name__} does not make NumPy batches (return_tensors='np').")


def default_data_collator(features: list[Any], return_tensors: str = "pt") -> Any:
    """Stack samples into a batch without padding; `label` and `label_ids` become `labels`.

    Args:
        features: Samples of one batch: mappings or objects give a dictionary (strings and None are left out),
            tuples or lists give a tuple, tensors, arrays or numbers give one tensor.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
    """
    is_torch = check_return_tensors(return_tensors) == "pt"
    if not features:
        raise ValueError("There is nothing to collate: the batch has no samples.")
    first = features[0]
    stack, stack_labels = _TORCH if is_torch else _NUMPY
    if type(first) is dict or isinstance(first, Mapping):  # the first test is the cheap one
        return _collate_mappings(features, stack, stack_labels)
    if isinstance(first, (tuple, list)):
        return _collate_tuples(features, stack)
    if isinstance(first, (torch.Tensor, np.ndarray, np.generic, int, float)):
        return _collate_mappings([{"sample": value} for value in features], stack, stack_labels)["sample"]
    if not hasattr(first, "__dict__"):
        check_no_missing(features)
        raise TypeError(
            f"A sample of type {type(first).__name__} cannot be collated by default_data_collator. Let the "
            "dataset return dictionaries, tuples, tensors or plain objects, or pass a data_collator."
        )
    return _collate_mappings([vars(sample) for sample in features], stack, stack_labels)


@dataclass
class DefaultDataCollator(DataCollatorMixin):
    """`default_data_collator` as an object that remembers `return_tensors`.

    Args:
        return_tensors: "pt" for PyTorch, "np" for NumPy.
    """

    return_tensors: str = "pt"

    def __call__(self, features: list[Any], return_tensors: str | None = None) -> Any:
        return default_data_collator(
            features, self.return_tensors if return_tensors is None else return_tensors
        )


def check_return_tensors(kind: str) -> str:
    """The value itself where it is one of the two known kinds."""
    if kind != "pt" and kind != "np":
        raise ValueError(f"return_tensors={kind!r} is not known: use 'pt' (PyTorch) or 'np' (NumPy).")
    return kind


def check_no_missing(
    features: Sequence[Any], error: Exception | None = None, indices: Sequence[int] | None = None
) -> None:
    """Raise, because of `error`, where a sample is None: a dataset whose `__getitem__` returned nothing.

    Args:
        features: The samples of a batch.
        error: What a collator raised.
        indices: Where in the dataset the samples are, if that is known.
    """
    missing = [number for number, sample in enumerate(features) if sample is None]
    if not missing:
        return
    if indices is None:
        which = f"Sample {missing[0]} of a batch of {len(features)}"
        advice = "; [i for i in range(len(dataset)) if dataset[i] is None] finds them"
    else:
        which = f"Sample {indices[missing[0]]} of the dataset"
        advice = ""
    raise ValueError(
        f"{which} is None, which no batch can hold. Let the dataset return a sample for every index (is a "
        f"`return` missing in its __getitem__?), or leave such rows out{advice}."
    ) from error


def describe_problem(features: Sequence[Any], padded: frozenset[str] = frozenset()) -> str | None:
    """What keeps these mappings from becoming a batch, apart from the lengths of columns that get padded."""
    first = features[0]
    for number, sample in enumerate(features):
        missing = [name for name in first if name not in sample]
        if missing:
            return f"Sample {number} has no column {missing[0]!r} as sample 0 has, only {sorted(sample)}."
    for name in first:
        column = [sample[name] for sample in features]
        for number, value in enumerate(column):
            if value is None or isinstance(value, (str, bytes, Mapping)):
                return f"Column {name!r} of sample {number} is {value!r:.60}, which no tensor can hold."
        shapes = sorted({_shape_text(value) for value in column})
        if name not in padded and shapes[0] != shapes[-1]:
            return f"Column {name!r} has different shapes within the batch: {', '.join(shapes[:4])}."
        if _RAGGED in shapes:
            return f"Column {name!r} holds rows of different lengths within one sample."
    return None


def _collate_mappings(
    features: Sequence[Mapping[str, Any]],
    stack: Callable[[list[Any]], Any],
    stack_labels: Callable[[list[Any], bool], Any],
) -> dict[str, Any]:
    """One stacked column for each key of the first sample."""
    first = features[0]
    batch: dict[str, Any] = {}
    try:
        for name in _LABEL_COLUMNS:
            if name in first and first[name] is not None:
                batch["labels"] = stack_labels([sample[name] for sample in features], name == "label_ids")
                break  # `label` wins where a sample has both
        for name, value in first.items():
            if value is not None and name not in _LABEL_COLUMNS and not isinstance(value, str):
                batch[name] = stack([sample[name] for sample in features])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        check_no_missing(features, error)
        kept = {name for name, value in first.items() if value is not None and not isinstance(value, str)}
        problem = describe_problem([{n: v for n, v in sample.items() if n in kept} for sample in features])
        if problem is None:
            raise
        raise ValueError(
            f"{problem} default_data_collator stacks samples of equal shape and does not pad: pass a "
            "data_collator that does (DataCollatorWithPadding(tokenizer)), or change the dataset."
        ) from error
    return batch


def _collate_tuples(features: list[Any], stack: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    """One stacked column for each position of the samples; strings stay a list, so that no position moves."""
    try:
        sizes = sorted({len(sample) for sample in features})
    except TypeError as error:
        check_no_missing(features, error)
        raise
    if len(sizes) > 1:
        raise ValueError(
            f"The samples of a batch are tuples of different lengths {sizes}; they must be equal."
        )
    columns = [list(column) for column in zip(*features, strict=True)]
    try:
        return tuple(column if isinstance(column[0], str) else stack(column) for column in columns)
    except (TypeError, ValueError, RuntimeError) as error:
        problem = describe_problem([dict(enumerate(sample)) for sample in features])
        if problem is None:
            raise
        raise ValueError(f"{problem} Pass a data_collator that pads, or change the dataset.") from error


def _stack_tensor(values: list[Any]) -> torch.Tensor:
    """One tensor from the values of a column, with the dtype that `torch.tensor` would infer."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(values)
    array = np.array(values)  # reads Python numbers about five times faster than torch.tensor
    if isinstance(first, np.ndarray) or array.dtype in _SAME_IN_BOTH:
        return torch.from_numpy(array)
    if array.dtype == np.float64 and torch.get_default_dtype() is torch.float32:
        types = _find_types(values)
        if types <= _PLAIN_NUMBERS:  # NumPy takes float64 for these, torch its default
            return torch.from_numpy(array.astype(np.float32))
    return torch.tensor(values)


def _find_types(values: list[Any]) -> set[type]:
    """The types of the values, or of their entries where the values are rows."""
    types = set(map(type, values))
    return set(map(type, chain.from_iterable(values))) if types <= _ROWS else types


def _stack_label_tensor(values: list[Any], are_sequences: bool) -> torch.Tensor:
    """Labels as int64 where the first one is an integer, as float32 otherwise."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        if are_sequences:
            return torch.stack(values)
        dtype = torch.long if isinstance(first.item(), int) else torch.float
        return torch.stack(values).to(dtype) if first.dim() == 0 else torch.tensor(values, dtype=dtype)
    is_integer = isinstance(first[0] if are_sequences else first, (int, np.integer))
    array = np.array(values)
    if array.dtype.kind in ("bi" if is_integer else "bif"):
        return torch.from_numpy(array.astype(np.int64 if is_integer else np.float32, copy=False))
    return torch.tensor(values, dtype=torch.long if is_integer else torch.float)


def _stack_array(values: list[Any]) -> Any:
    """One array from the values of a column."""
    return np.array(values)


def _stack_label_array(values: list[Any], are_sequences: bool) -> Any:
    """Labels as int64 where the first one is an integer, as float32 otherwise."""
    first = values[0]
    if are_sequences and isinstance(first, np.ndarray):
        return np.stack(values)
    if are_sequences:
        first = first[0]
    elif isinstance(first, np.ndarray) and first.size == 1:
        first = first.item()
    return np.array(values, dtype=np.int64 if isinstance(first, (int, np.integer)) else np.float32)


def _shape_text(value: Any) -> str:
    """The shape of anything NumPy can measure, for a message."""
    try:
        return str(tuple(np.shape(value)))
    except ValueError:
        return _RAGGED


_TORCH = (_stack_tensor, _stack_label_tensor)
_NUMPY = (_stack_array, _stack_label_array)
