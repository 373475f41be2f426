"""Names and shared tensors in a state dictionary."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from footplate.checkpoint.tensors import find_aliases, load_tensors, save_tensors, strip_wrappers, to_names_of


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        ("module.a", {"a"}, "a"),
        ("module.module.a", {"module.a"}, "module.a"),
        ("_orig_mod.module.a", {"a"}, "a"),
        ("b._orig_mod.a", {"b.a"}, "b.a"),
        ("a", {"a"}, "a"),
        ("other", {"a"}, "other"),
    ],
)
def test_wrappers_are_stripped_only_where_they_are_wrappers(name, own, expected):
    assert strip_wrappers(name, own) == expected


def test_a_state_gets_the_names_of_a_partly_compiled_model():
    own = {"b._orig_mod.weight": 0, "c.weight": 0}
    state = {"b.weight": 1, "module.c.weight": 2, "new": 3}
    assert to_names_of(own, state) == {"b._orig_mod.weight": 1, "c.weight": 2, "new": 3}


def test_only_the_same_elements_in_the_same_order_are_aliases():
    values = torch.arange(4.0).reshape(2, 2)
    state = {
        "a": values,
        "b": values.view(2, 2),
        "turned": values.t(),
        "part": values[:1],
        "copy": values.clone(),
    }
    assert find_aliases(state) == {"b": "a"}


def test_tensors_on_no_device_or_without_elements_are_no_aliases():
    state = {name: torch.empty(2, device="meta") for name in "ab"} | {name: torch.empty(0) for name in "cd"}
    assert find_aliases(state) == {}


def test_metadata_of_other_writers_is_no_alias(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.ones(1)}, path, metadata={"format": "pt", "made_by": "someone", "b": "a"})
    assert load_tensors(path).keys() == {"a", "b"}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool], ids=str
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_tensors_of_every_kind_come_back(dtype, shape, tmp_path):
    tensor = (torch.arange(6.0)[: torch.Size(shape).numel()].reshape(shape)).to(dtype)
    save_tensors(
        {"a": tensor, "transposed": tensor.T if tensor.ndim == 2 else tensor.clone()},
        tmp_path / "x.safetensors",
    )
    back = load_tensors(tmp_path / "x.safetensors")
    assert back["a"].dtype == dtype
    assert torch.equal(back["a"], tensor)


def test_the_file_is_the_one_that_safetensors_writes(tmp_path):
    state = {
        "half": torch.randn(3, 5).half(),
        "b": torch.randn(7, 3),
        "a": torch.randn(4),
        "wide": torch.arange(3),
        "flags": torch.tensor([True, False]),
        "one": torch.tensor(2.5),
        "none": torch.empty(0, 3),
        'odd "name" ü': torch.zeros(2, dtype=torch.uint8),
    }
    save_tensors(state, tmp_path / "own.safetensors")
    save_file(state, tmp_path / "other.safetensors", metadata={"format": "pt"})
    own, other = load_file(tmp_path / "own.safetensors"), load_file(tmp_path / "other.safetensors")
    assert own.keys() == other.keys() == state.keys()
    assert all(torch.equal(own[name], other[name]) and own[name].dtype == state[name].dtype for name in state)
    with (
        safe_open(tmp_path / "own.safetensors", "pt") as first,
        safe_open(tmp_path / "other.safetensors", "pt") as second,
    ):
        assert first.metadata() == second.metadata()
    data = (tmp_path / "own.safetensors").read_bytes()
    num_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + num_bytes])
    starts = {name: 8 + num_bytes + header[name]["data_offsets"][0] for name in state}
    assert all(start % state[name].element_size() == 0 for name, start in starts.items())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16], ids=str)
def test_kinds_of_tensors_that_are_rare_come_back_too(dtype, tmp_path):
    tensor = torch.tensor([1.0, 2.0]).to(dtype)
    save_tensors({"a": tensor, "b": torch.ones(2)}, tmp_path / "x.safetensors")
    back = load_tensors(tmp_path / "x.safetensors")
    assert back["a"].dtype == dtype
    assert back["a"].view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


def test_parts_of_a_larger_tensor_are_written_alone(tmp_path):
    whole = torch.arange(2_000_000.0)
    save_tensors(
        {"row": whole[5:9], "steps": whole[::1000], "minus": torch._neg_view(whole[:3])},
        tmp_path / "x.safetensors",
    )
    back = load_tensors(tmp_path / "x.safetensors")
    assert back["row"].tolist() == [5, 6, 7, 8]
    assert torch.equal(back["steps"], whole[::1000])
    assert back["minus"].tolist() == [0, -1, -2]
    assert (tmp_path / "x.safetensors").stat().st_size < 20_000


def test_a_model_that_is_mapped_from_the_file_can_be_saved_over_it(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tensors({"a": torch.arange(100_000.0)}, path)
    with safe_open(path, "pt") as file:
        mapped = file.get_tensor("a")
    save_tensors({"a": mapped}, path)
    assert torch.equal(load_tensors(path)["a"], torch.arange(100_000.0))
