"""The buffer against the original's container, on every shape, dtype and place the rows may live in."""

import collections
import logging

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers.trainer_pt_utils import EvalLoopContainer as OriginalContainer

from footplate.evaluation.buffers import NestedBuffer, nested_bytes
from footplate.evaluation.memory_limit import MemoryBudget

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
]
Pair = collections.namedtuple("Pair", "first second")


def assert_equal(ours, theirs):
    assert type(ours) is type(theirs) or isinstance(ours, np.memmap)
    if isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_equal(ours[key], theirs[key])
    else:
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_equal(our_item, their_item)


def joined(batches, **settings_):
    buffer = NestedBuffer(**settings_)
    for batch in batches:
        buffer.add(batch)
    return buffer.arrays()


def joined_by_the_original(batches, padding_index=-100):
    container = OriginalContainer(do_nested_concat=True, padding_index=padding_index)
    for batch in batches:
        container.add(batch)
    return container.get_arrays()


leaves = st.builds(
    lambda dtype, kind, tail: ("leaf", dtype, kind, tail),
    st.sampled_from(DTYPES),
    st.sampled_from(["scalar", "rows", "ragged", "fixed"]),
    st.lists(st.integers(0, 3), max_size=2),
)
structures = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from([dict, tuple, list]), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=5,
)
sizes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=7)
places = st.fixed_dictionaries(
    {
        "num_rows": st.sampled_from([None, 1, 7, 100]),  # right, too few or too many
        "limit": st.sampled_from([None, 1, 100, 400]),  # in memory, in a file, or moved there on the way
    }
)


def fill(structure, rows, width):
    """A batch of the structure, with random numbers."""
    if structure[0] == "leaf":
        _, dtype, kind, tail = structure
        shapes = {"scalar": [], "rows": [rows], "ragged": [rows, width, *tail], "fixed": [rows, 3, *tail]}
        return (torch.randn(shapes[kind]) * 9).to(dtype)
    kind, parts = structure
    filled = [fill(part, rows, width) for part in parts]
    return kind(zip("abc", filled, strict=False)) if kind is dict else kind(filled)


@settings(max_examples=300, deadline=None)
@given(structures, sizes, places, st.sampled_from([-100, 0, 3]), st.integers(0, 99))
def test_arrays_are_the_originals_wherever_they_live(structure, sizes, place, padding_index, seed):
    torch.manual_seed(seed)
    batches = [fill(structure, *size) for size in sizes]
    ours = joined(
        batches, num_rows=place["num_rows"], padding_index=padding_index, budget=MemoryBudget(place["limit"])
    )
    assert_equal(ours, joined_by_the_original(batches, padding_index))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(DTYPES[:-1]), st.integers(1, 3)), min_size=2, max_size=5),
    st.booleans(),
    places,
    st.integers(0, 99),
)
def test_a_dtype_that_changes_on_the_way_ends_as_in_the_original(batches, is_flat, place, seed):
    torch.manual_seed(seed)
    tensors = [
        (torch.rand([2] if is_flat else [2, width]) * 9).to(dtype) for dtype, width in batches
    ]  # nothing negative: what a float below zero becomes in uint8 is up to the machine
    try:
        theirs = joined_by_the_original(tensors, padding_index=5)
    except (RuntimeError, TypeError):
        assume(False)
    ours = joined(tensors, num_rows=place["num_rows"], padding_index=5, budget=MemoryBudget(place["limit"]))
    assert_equal(ours, theirs)


@pytest.mark.parametrize("limit", [None, 1, 300])
@pytest.mark.parametrize(
    "shapes", [[(2, 3, 4), (1, 3, 6)], [(2, 1, 1, 5), (3, 4, 2, 1), (1, 2, 3, 3)], [(2, 2), (2, 0)]]
)
def test_rows_may_be_ragged_in_every_dimension(shapes, limit):
    batches = [torch.randn(shape) for shape in shapes]
    widest = np.max([shape[1:] for shape in shapes], axis=0)
    wanted = np.full((sum(shape[0] for shape in shapes), *widest), -100, np.float32)
    row = 0
    for batch in batches:
        wanted[(slice(row, row + len(batch)), *map(slice, batch.shape[1:]))] = batch
        row += len(batch)
    np.testing.assert_array_equal(joined(batches, budget=MemoryBudget(limit)), wanted)


@pytest.mark.parametrize("limit", [None, 1 << 20])
def test_many_rows_are_spread_block_by_block(limit):
    """Wide batches before, between and after narrow ones, each more than one block."""
    sizes = [(9000, 30), (9000, 7), (50, 31), (9000, 31), (20_000, 2)]
    batches = [torch.arange(rows * width).reshape(rows, width) for rows, width in sizes]
    assert_equal(joined(batches, budget=MemoryBudget(limit)), joined_by_the_original(batches))


def test_what_the_original_cannot_take_is_kept_as_well():
    batches = [
        {
            "pair": Pair(torch.ones(2, 1), None),
            "text": ["a", "b"],
            "answers": [["x"], ["y", "z"]],
            "number": 3,
            "numbers": [1.5, 2.5],
            "array": np.arange(4).reshape(2, 2),
            "short": torch.ones(2).to(torch.float8_e4m3fn),
        },
        {
            "pair": Pair(torch.zeros(1, 2), None),
            "text": ["c"],
            "answers": [[]],
            "number": 4,
            "numbers": [3.5],
            "array": np.arange(3).reshape(1, 3),
            "short": torch.ones(1).to(torch.float8_e4m3fn),
        },
    ]
    found = joined(batches)
    assert type(found["pair"]) is Pair
    assert found["pair"].second is None
    assert found["pair"].first.tolist() == [[1, -100], [1, -100], [0, 0]]
    assert found["text"].tolist() == ["a", "b", "c"]
    assert found["answers"].tolist() == [["x"], ["y", "z"], []]
    assert found["number"].tolist() == [3, 4]
    assert found["numbers"].tolist() == [1.5, 2.5, 3.5]
    assert found["array"].tolist() == [[0, 1, -100], [2, 3, -100], [0, 1, 2]]
    assert found["short"].dtype == np.float32


def test_a_cache_is_left_out_by_name_and_once(caplog):
    class Cache:
        pass

    with caplog.at_level(logging.WARNING):
        found = joined([{"logits": torch.ones(1), "past": Cache()}] * 3, name="predictions")
    assert found["past"] is None
    assert found["logits"].tolist() == [1, 1, 1]
    assert [record.message for record in caplog.records] == [
        "predictions['past'] is a Cache, which cannot be joined: None takes its place."
    ]


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        ([torch.ones(2), None], TypeError, r"predictions was a tensor .* is a NoneType"),
        ([None, torch.ones(2)], TypeError, r"predictions was a None .* is a Tensor"),
        ([(torch.ones(2),), [torch.ones(2)]], TypeError, r"was a tuple .* is a list"),
        ([{"a": torch.ones(2)}, {"b": torch.ones(2)}], ValueError, r"\['a'\] and now has \['b'\]"),
        ([[torch.ones(2)] * 2, [torch.ones(2)]], ValueError, r"\[0, 1\] and now has \[0\]"),
        ([[torch.ones(2, 2)], [torch.ones(2)]], ValueError, r"predictions\[0\] had rows of 1 dim"),
        ([["a"], 7], TypeError, r"was a list .* is a int"),
    ],
)
def test_batches_that_do_not_fit_together_are_refused(batches, error, message):
    with pytest.raises(error, match=message) as caught:
        joined(batches, name="predictions")
    assert "eval_do_concat_batches=False" in str(caught.value)


@pytest.mark.parametrize("limit", [None, 1])
def test_arrays_that_were_given_out_do_not_change(limit):
    buffer = NestedBuffer(num_rows=4, budget=MemoryBudget(limit))
    buffer.add(torch.ones(2, 2))
    early = buffer.arrays()
    assert buffer.arrays() is early
    buffer.add(torch.zeros(1, 3))
    assert buffer.arrays().tolist() == [[1, 1, -100], [1, 1, -100], [0, 0, 0]]
    assert early.tolist() == [[1, 1], [1, 1]]


def test_a_batch_is_copied_once_and_never_joined_again():
    def operations(num_batches):
        with torch.profiler.profile() as profile:
            joined([torch.ones(4, 8 + i % 3) for i in range(num_batches)])
        return {event.key: event.count for event in profile.key_averages()}

    few, many = operations(5), operations(50)
    assert not {"aten::cat", "aten::clone"} & {*few, *many}
    assert many.get("aten::copy_", 0) == few.get("aten::copy_", 0)  # numpy copies, straight to where it stays


@pytest.mark.parametrize("limit", [None, 1])
def test_tensors_may_be_views_and_carry_gradients(limit):
    whole = torch.arange(12.0, requires_grad=True).reshape(3, 4) * 2
    found = joined([whole[:, 1], whole.t()[0, :2], whole[1]], budget=MemoryBudget(limit))
    assert found.tolist() == [2, 10, 18, 0, 8, 8, 10, 12, 14]


def test_the_callers_tensor_may_change_afterwards():
    batch = torch.ones(2)
    buffer = NestedBuffer()
    buffer.add(batch)
    batch.zero_()
    assert buffer.arrays().tolist() == [1, 1]


def test_bytes_are_counted_as_they_will_be_stored():
    batch = {"a": torch.ones(2, 3, dtype=torch.bfloat16), "b": [torch.ones(4, dtype=torch.int64), None]}
    assert nested_bytes((batch, np.ones(5), "text")) == 2 * 3 * 4 + 4 * 8 + 5 * 8
    found = joined([{"a": batch["a"], "b": batch["b"]}])
    assert nested_bytes(found) == nested_bytes(batch)


def test_memory_for_a_known_number_of_rows_is_taken_once():
    budget = MemoryBudget(10_000)
    buffer = NestedBuffer(num_rows=100, budget=budget)
    buffer.add(torch.ones(3, 2))
    assert budget._num_bytes_taken == 800
    for _ in range(97):
        buffer.add(torch.zeros(1, 2))
    assert budget._num_bytes_taken == 800
    assert buffer.arrays().shape == (100, 2)
