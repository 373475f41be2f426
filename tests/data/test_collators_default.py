"""The default collator against the original, and what it does beyond it."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.data import data_collator as original

from footplate.data import collators
from footplate.data.collators import DataCollatorMixin, DefaultDataCollator, default_data_collator


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal keys, kinds, dtypes, shapes and values."""
    assert sorted(ours) == sorted(theirs)
    for name, expected in theirs.items():
        assert type(ours[name]) is type(expected), name
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].shape == expected.shape, name
        assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(expected)), name


@dataclass
class Sample:
    """A sample with attributes."""

    input_ids: list[int]
    label: int
    name: str = "x"


BATCHES: dict[str, list[Any]] = {
    "lists": [{"input_ids": [i, 2, 3], "attention_mask": [1, 1, 0], "label": i} for i in range(4)],
    "tuples inside": [{"input_ids": (i, 2, 3), "label": i} for i in range(4)],
    "nested lists": [{"boxes": [[i, 1], [2, 3]], "label": i} for i in range(3)],
    "floats": [{"x": [i / 3, 0.1], "label": i / 7} for i in range(4)],
    "integers and floats mixed": [{"x": [1, 2.5, True], "label": 1} for _ in range(3)],
    "integer first, float later": [{"x": 1, "label": 1}, {"x": 2.5, "label": 2}],
    "deep floats": [{"x": [[[0.1, i / 3]]], "label": 0.5} for i in range(3)],
    "booleans": [{"x": [True, False], "flag": bool(i % 2), "label": True} for i in range(3)],
    "numpy float32": [{"x": np.float32(i / 3), "label": np.float32(i / 3)} for i in range(4)],
    "numpy float64": [
        {"x": np.float64(i / 3), "y": [np.float64(0.1)], "label": np.float64(i)} for i in range(4)
    ],
    "numpy and Python floats": [{"x": [np.float64(0.1), 0.2], "y": [np.float32(0.1), 0.2]} for _ in range(2)],
    "numpy integers": [{"x": np.int32(i), "y": [np.int16(i), 3], "label": np.int32(i)} for i in range(4)],
    "unsigned": [{"x": np.uint8(i), "y": [np.uint8(i)]} for i in range(4)],
    "arrays": [{"x": np.full((2, 3), i, dtype=np.float16), "label": np.int64(i)} for i in range(3)],
    "array labels": [{"x": np.arange(3), "label": np.array([0, 1])} for _ in range(3)],
    "list labels": [{"x": [1.0], "label": [0, 1, 1]} for _ in range(3)],
    "tensors": [{"x": torch.randn(2, 3), "label": torch.tensor(i)} for i in range(3)],
    "bfloat16 tensors": [{"x": torch.randn(3).bfloat16(), "label": torch.tensor(0.5)} for _ in range(3)],
    "double labels": [{"label": torch.tensor(i / 3, dtype=torch.float64)} for i in range(3)],
    "boolean labels": [{"label": torch.tensor(i == 1)} for i in range(3)],
    "one-element labels": [{"label": torch.tensor([i])} for i in range(3)],
    "label_ids list": [{"label_ids": [i, 1], "input_ids": [1]} for i in range(3)],
    "label_ids floats": [{"label_ids": [i / 3, 1.0]} for i in range(3)],
    "label_ids array": [{"label_ids": np.array([i, 1], dtype=np.int32)} for i in range(3)],
    "label_ids nested": [{"label_ids": [[i, 1], [2, 3]]} for i in range(3)],
    "label_ids tensor": [{"label_ids": torch.tensor([i, 1], dtype=torch.int32)} for i in range(3)],
    "both label columns": [{"label": i, "label_ids": [i, i]} for i in range(3)],
    "label is None": [{"label": None, "label_ids": [i, i], "x": 1} for i in range(3)],
    "labels kept": [{"labels": [i, i], "x": 1.0} for i in range(3)],
    "label and labels": [{"label": 1, "labels": [i, i]} for i in range(3)],
    "strings and None left out": [{"x": [1], "text": "a", "y": None} for _ in range(3)],
    "empty lists": [{"x": []} for _ in range(3)],
    "one sample": [{"x": [1, 2], "label": 0}],
    "large integers": [{"x": 2**62 + i, "label": 2**40 + i} for i in range(2)],
    "other mappings": [UserDict({"x": [i], "label": i}) for i in range(3)],
    "dataclasses": [Sample([i, 1], i) for i in range(3)],
    "namespaces": [SimpleNamespace(x=torch.ones(2) * i, label_ids=[1, 2]) for i in range(3)],
    "numpy integers, then floats": [{"label": 1, "x": np.int64(1)}, {"label": 2.7, "x": 0.5}],
}
NO_NUMPY = {"bfloat16 tensors", "array labels"}  # the original makes no arrays of these


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_of_tensors_equals_the_original(name: str) -> None:
    features = BATCHES[name]
    assert_same(default_data_collator(features), original.default_data_collator(features))
    assert_same(DefaultDataCollator()(features), original.DefaultDataCollator()(features))


@pytest.mark.parametrize("name", [name for name in BATCHES if name not in NO_NUMPY])
def test_a_batch_of_arrays_equals_the_original(name: str) -> None:
    features = BATCHES[name]
    assert_same(default_data_collator(features, "np"), original.default_data_collator(features, "np"))
    assert_same(DefaultDataCollator("np")(features), original.DefaultDataCollator("np")(features))
    assert_same(DefaultDataCollator()(features, return_tensors="np"), default_data_collator(features, "np"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_python_floats_follow_torchs_default_dtype(dtype: torch.dtype) -> None:
    features = BATCHES["floats"]
    torch.set_default_dtype(dtype)
    try:
        assert_same(default_data_collator(features), original.default_data_collator(features))
    finally:
        torch.set_default_dtype(torch.float32)


def test_samples_are_left_as_they_were() -> None:
    features = [{"x": [1, 2], "label": 1}, {"x": [3, 4], "label": 0}]
    before = copy.deepcopy(features)
    batch = default_data_collator(features)
    batch["x"].zero_()
    assert features == before


def test_a_batch_does_not_share_memory_with_its_samples() -> None:
    sample = {"x": np.zeros(3), "y": torch.zeros(3)}
    batch = default_data_collator([sample])
    batch["x"].add_(1)
    batch["y"].add_(1)
    assert sample["x"].sum() == 0
    assert sample["y"].sum() == 0


@pytest.mark.parametrize("kind", [tuple, list])
def test_tuples_become_a_tuple_of_stacked_columns(kind: type) -> None:
    features = [kind((torch.full((2,), float(i)), i, [i, i], np.float32(i), "text")) for i in range(3)]
    batch = default_data_collator(features)
    assert type(batch) is tuple
    assert torch.equal(batch[0], torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
    assert torch.equal(batch[1], torch.tensor([0, 1, 2]))
    assert torch.equal(batch[2], torch.tensor([[0, 0], [1, 1], [2, 2]]))
    assert batch[3].dtype == torch.float32
    assert batch[4] == ["text"] * 3


def test_tuples_agree_with_torchs_own_collation() -> None:
    data = torch.utils.data.TensorDataset(torch.randn(4, 3), torch.arange(4))
    features = [data[i] for i in range(4)]
    for ours, theirs in zip(
        default_data_collator(features), torch.utils.data.default_collate(features), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_label_vectors_become_arrays_of_floats_like_tensors() -> None:
    features = BATCHES["array labels"]
    arrays, tensors = default_data_collator(features, "np"), default_data_collator(features)
    assert arrays["labels"].dtype == np.float32
    assert np.array_equal(arrays["labels"], tensors["labels"].numpy())


def test_tuples_become_arrays_when_asked() -> None:
    first, second = default_data_collator([(1, [0.5, 0.5]), (2, [1.5, 1.5])], "np")
    assert isinstance(first, np.ndarray)
    assert second.shape == (2, 2)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ([torch.tensor([1, 2]), torch.tensor([3, 4])], torch.tensor([[1, 2], [3, 4]])),
        ([np.array([1.5]), np.array([2.5])], torch.tensor([[1.5], [2.5]], dtype=torch.float64)),
        ([1, 2, 3], torch.tensor([1, 2, 3])),
        ([0.5, 1.5], torch.tensor([0.5, 1.5])),
    ],
)
def test_bare_values_become_one_tensor(features: list[Any], expected: torch.Tensor) -> None:
    batch = default_data_collator(features)
    assert batch.dtype == expected.dtype
    assert torch.equal(batch, expected)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ([{"x": [1, 2]}, {"x": [1]}], ["'x'", "(1,)", "(2,)", "DataCollatorWithPadding"]),
        ([{"x": torch.ones(2)}, {"x": torch.ones(3)}], ["'x'", "(2,)", "(3,)"]),
        ([{"x": np.ones(2)}, {"x": np.ones(3)}], ["'x'", "(2,)", "(3,)"]),
        ([{"x": [[1, 2], [3]]}], ["'x'", "different lengths within one sample"]),
        ([{"x": 1, "y": 2}, {"x": 1}], ["Sample 1", "'y'", "['x']"]),
        ([{"x": 1}, {"x": None}], ["'x'", "sample 1", "None"]),
        ([{"x": {"inner": 1}}], ["'x'", "inner"]),
        ([{"label": [1, 2]}, {"label": [1]}], ["'label'"]),
        ([{"text": "a", "x": [1, 2]}, {"text": "b", "x": [1]}], ["'x'"]),
        ([(1, [1, 2]), (1, [1])], ["Column 1", "(1,)", "(2,)"]),
        ([(1, 2), (1,)], ["[1, 2]", "equal"]),
        ([torch.ones(2), torch.ones(3)], ["(2,)", "(3,)"]),
        ([], ["no samples"]),
    ],
)
def test_what_cannot_be_stacked_is_named(features: list[Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as raised:
        default_data_collator(features)
    for word in words:
        assert word in str(raised.value)


def test_a_sample_that_is_no_container_is_refused() -> None:
    with pytest.raises(TypeError, match="type str"):
        default_data_collator(["a", "b"])


def test_an_error_without_a_known_cause_comes_through_unchanged() -> None:
    with pytest.raises(ValueError, match=r"[Oo]verflow"):
        default_data_collator([{"x": 2**64}])


@pytest.mark.parametrize("kind", ["tf", "jax", None])
def test_an_unknown_kind_of_tensor_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="'pt'"):
        default_data_collator([{"x": 1}], kind)


def test_the_mixin_sends_each_kind_to_its_method() -> None:
    class Recorder(DataCollatorMixin):
        return_tensors = "pt"

        def torch_call(self, features: list[Any]) -> Any:
            return "torch", features

        def numpy_call(self, features: list[Any]) -> Any:
            return "numpy", features

    recorder = Recorder()
    assert recorder([1]) == ("torch", [1])
    assert recorder([1], return_tensors="np") == ("numpy", [1])
    with pytest.raises(ValueError, match="'tf'"):
        recorder([1], return_tensors="tf")


def test_the_mixin_says_which_kind_is_missing() -> None:
    class Empty(DataCollatorMixin):
        return_tensors = "pt"

    with pytest.raises(NotImplementedError, match="PyTorch"):
        Empty()([1])
    with pytest.raises(NotImplementedError, match="NumPy"):
        Empty()([1], "np")


SHARED = [name for name in collators.__all__ if hasattr(transformers, name)]


def test_every_collator_of_the_original_is_here() -> None:
    theirs = {name for name in dir(transformers) if "DataCollator" in name or name == "default_data_collator"}
    assert theirs <= set(SHARED)


@pytest.mark.parametrize("name", [name for name in SHARED if name != "DataCollator"])  # a type alias
def test_parameters_and_defaults_are_those_of_the_original(name: str) -> None:
    ours, theirs = getattr(collators, name), getattr(transformers, name)
    our_parameters = inspect.signature(ours).parameters
    their_parameters = {
        key: value
        for key, value in inspect.signature(theirs).parameters.items()
        if value.kind not in (value.VAR_POSITIONAL, value.VAR_KEYWORD)
    }
    assert [key for key in our_parameters if key in their_parameters] == list(their_parameters)
    for key, value in their_parameters.items():
        assert our_parameters[key].default == value.default


def test_collators_never_import_transformers() -> None:
    code = "import footplate.data.collators.default as m, sys; assert 'transformers' not in sys.modules, m"
    subprocess.run([sys.executable, "-c", code], check=True)
