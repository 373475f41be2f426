"""The container against the original's: every shape, with and without steps to the host."""

import random
import weakref

import numpy as np
import pytest
import torch
from transformers.trainer_pt_utils import EvalLoopContainer as OriginalContainer

from footplate.evaluation import EvalLoopContainer


def assert_equal(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_equal(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_equal(our_item, their_item)
    else:
        assert ours == theirs


def random_batches(seed):
    """A few batches of one random structure whose dimension 1 changes from batch to batch."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]

    def make_leaf():
        tail = [choose.randint(1, 3) for _ in range(choose.randint(0, 2))]
        num_dims, dtype = choose.randint(0, 2), choose.choice(dtypes)

        def leaf(rows, width):
            shape = [rows, width, *tail] if num_dims == 2 else [rows][:num_dims]
            return (torch.randn(shape) * 9).to(dtype)

        return leaf

    def make_structure(depth):
        kind = choose.choice(["leaf", "dict", "tuple", "list"]) if depth else "leaf"
        if kind == "leaf":
            return make_leaf()
        parts = [make_structure(depth - 1) for _ in range(choose.randint(1, 3))]
        if kind == "dict":
            return lambda *size: {f"k{i}": part(*size) for i, part in enumerate(parts)}
        container = tuple if kind == "tuple" else list
        return lambda *size: container(part(*size) for part in parts)

    structure = make_structure(2)
    return [structure(choose.randint(1, 4), choose.randint(1, 5)) for _ in range(choose.randint(1, 6))]


@pytest.mark.parametrize("host_every", [None, 1, 2])
@pytest.mark.parametrize("concat", [True, False])
def test_arrays_are_the_originals(concat, host_every):
    for seed in range(60):
        ours, theirs = (
            EvalLoopContainer(concat, padding_index=-100),
            OriginalContainer(concat, padding_index=-100),
        )
        for step, batch in enumerate(random_batches(seed), start=1):
            for container in (ours, theirs):
                container.add(batch)
                if host_every and step % host_every == 0:
                    container.to_cpu_and_numpy()
        assert_equal(ours.get_arrays(), theirs.get_arrays())


def test_an_empty_container_gives_none():
    assert EvalLoopContainer().get_arrays() is None
    assert EvalLoopContainer(do_nested_concat=False).get_arrays() is None


def test_arrays_can_be_read_and_then_added_to():
    container = EvalLoopContainer()
    container.add(torch.ones(1, 2))
    np.testing.assert_array_equal(container.get_arrays(), [[1, 1]])
    container.add(torch.zeros(1, 3))
    for _ in range(2):
        np.testing.assert_array_equal(container.get_arrays(), [[1, 1, -100], [0, 0, 0]])


@pytest.mark.parametrize("concat", [True, False])
def test_a_slice_does_not_keep_the_whole_alive(concat):
    container = EvalLoopContainer(concat)
    whole = torch.arange(1000.0).reshape(10, 100)
    column, is_alive = whole[:, 3].numpy().copy(), weakref.ref(whole)
    container.add(whole[:, 3])
    del whole
    assert is_alive() is None
    np.testing.assert_array_equal(container.get_arrays() if concat else container.get_arrays()[0], column)


def test_batches_kept_apart_may_differ_in_structure_and_can_be_added_to():
    container = EvalLoopContainer(do_nested_concat=False)
    container.add([{"boxes": torch.ones(2, 4), "name": "a"}])
    container.add([{"boxes": torch.ones(1, 4)}, None, torch.tensor(True)])
    first = container.get_arrays()
    container.add(torch.zeros(3, dtype=torch.bfloat16))
    batches = container.get_arrays()
    assert batches[0][0]["name"] == "a"
    assert batches[1][0]["boxes"].shape == (1, 4)
    assert batches[1][1] is None
    assert batches[1][2].dtype == bool
    assert batches[2].dtype == np.float32
    assert batches[0][0]["boxes"] is first[0][0]["boxes"]


def test_predictions_that_carry_a_gradient_are_taken():
    container = EvalLoopContainer()
    container.add(torch.ones(2, requires_grad=True) * 2)
    np.testing.assert_array_equal(container.get_arrays(), [2, 2])
