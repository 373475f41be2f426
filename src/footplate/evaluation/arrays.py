"""Small helpers of the API for tensors and arrays whose rows are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from footplate.batch import IGNORED_LABEL
from footplate.comm import nested_concat


def atleast_1d(tensor_or_array: Any) -> Any:
    """A scalar as one row; all else as it is.

    Args:
        tensor_or_array: A tensor or an array.
    """
    if isinstance(tensor_or_array, torch.Tensor):
        return tensor_or_array if tensor_or_array.ndim else tensor_or_array.reshape(1)
    return np.atleast_1d(tensor_or_array)


def torch_pad_and_concatenate(
    tensor1: torch.Tensor, tensor2: torch.Tensor, padding_index: int = IGNORED_LABEL
) -> torch.Tensor:
    """The rows of both tensors, padded along dimension 1 to the same length.

    Args:
        tensor1: The first rows.
        tensor2: The rows to append.
        padding_index: The value of the padding.
    """
    joined: torch.Tensor = nested_concat(tensor1, tensor2, padding_index)
    return joined


def numpy_pad_and_concatenate(array1: Any, array2: Any, padding_index: int = IGNORED_LABEL) -> Any:
    """The rows of both arrays, padded along dimension 1 to the same length.

    Args:
        array1: The first rows.
        array2: The rows to append.
        padding_index: The value of the padding.
    """
    return nested_concat(np.asarray(array1), np.asarray(array2), padding_index)


def nested_new_like(arrays: Any, num_samples: int, padding_index: int = IGNORED_LABEL) -> Any:
    """Arrays of the same structure and width with `num_samples` rows of padding.

    Args:
        arrays: An array, or a nested list or tuple of them.
        num_samples: How many rows.
        padding_index: The value of every entry.
    """
    if isinstance(arrays, (list, tuple)):
        return type(arrays)(nested_new_like(part, num_samples, padding_index) for part in arrays)
    return np.full_like(arrays, padding_index, shape=(num_samples, *arrays.shape[1:]))


def expand_like(arrays: Any, new_seq_length: int, padding_index: int = IGNORED_LABEL) -> Any:
    """The array with dimension 1 grown to `new_seq_length`.

    Args:
        arrays: An array of at least two dimensions.
        new_seq_length: The new length of dimension 1.
        padding_index: The value of what is added.
    """
    wide = np.full_like(arrays, padding_index, shape=(arrays.shape[0], new_seq_length, *arrays.shape[2:]))
    wide[:, : arrays.shape[1]] = arrays
    return wide
