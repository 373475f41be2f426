"""Names and shared tensors in a state dictionary."""

import pytest
import torch
from safetensors.torch import save_file

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
