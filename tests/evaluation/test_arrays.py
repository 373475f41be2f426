"""Helpers for tensors and arrays, beside the original's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers.trainer_pt_utils as original

from footplate.evaluation import arrays


@pytest.mark.parametrize("shapes", [((2, 3), (1, 5)), ((2, 5), (3, 3)), ((2,), (3,)), ((2, 3, 4), (1, 2, 4))])
@pytest.mark.parametrize("fill", [-100, 7])
def test_rows_are_padded_and_joined_as_in_the_original(shapes, fill):
    one, other = (np.random.default_rng(0).integers(0, 9, shape) for shape in shapes)
    joined = arrays.numpy_pad_and_concatenate(one, other, fill)
    assert np.array_equal(joined, original.numpy_pad_and_concatenate(one, other, fill))
    tensors = torch.from_numpy(one), torch.from_numpy(other)
    assert torch.equal(
        arrays.torch_pad_and_concatenate(*tensors, fill), original.torch_pad_and_concatenate(*tensors, fill)
    )


def test_arrays_are_made_and_grown_as_in_the_original():
    rows = (np.ones((2, 3)), [np.ones((2, 4), dtype=np.int64)])
    made, theirs = arrays.nested_new_like(rows, 5), original.nested_new_like(rows, 5)
    assert np.array_equal(made[0], theirs[0])
    assert np.array_equal(made[1][0], theirs[1][0])
    assert isinstance(made[1], list)
    assert np.array_equal(arrays.expand_like(rows[0], 6), original.expand_like(rows[0], 6))


def test_a_scalar_becomes_one_row():
    assert arrays.atleast_1d(torch.tensor(3)).shape == (1,)
    assert arrays.atleast_1d(np.float64(3)).shape == (1,)
