"""A copy of a state equals it, shares what it shares, stays as it is, and costs no second buffer."""

import collections
import io
import threading
import weakref

import numpy as np
import pytest
import torch

import tiny
from footplate.checkpoint.snapshot import HostCopy, num_bytes
from footplate.checkpoint.tensors import load_tensors, save_tensors


def assert_same(copied, state):
    assert type(copied) is type(state)
    if isinstance(state, dict):
        assert list(copied) == list(state)
        for key in state:
            assert_same(copied[key], state[key])
    elif isinstance(state, (list, tuple)):
        assert len(copied) == len(state)
        for one, other in zip(copied, state, strict=True):
            assert_same(one, other)
    elif isinstance(state, torch.Tensor):
        assert copied.dtype == state.dtype
        assert copied.shape == state.shape
        assert copied.layout == state.layout
        assert torch.equal(copied, state)
    else:
        assert np.array_equal(copied, state)


def pointers(state):
    return [tensor.data_ptr() for tensor in state.values()]


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return optimizer


ODD_TENSORS = {
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 4),
    "bf16": torch.randn(7).bfloat16(),
    "half": torch.randn(3).half(),
    "bool": torch.tensor([True, False, True]),
    "int64": torch.arange(5),
    "uint8": torch.arange(9, dtype=torch.uint8),
    "complex": torch.randn(3, dtype=torch.complex64),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "negative view": torch.randn(3, dtype=torch.complex64).conj().imag,
    "transposed": torch.randn(3, 5).T,
    "strided": torch.randn(20)[3::4],
    "expanded": torch.randn(1, 3).expand(4, 3),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "slice": torch.randn(100)[37:53],
    "sparse": torch.eye(3).to_sparse(),
    "float8": torch.randn(5).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_a_tensor_of_any_kind_is_copied(kind):
    tensor = ODD_TENSORS[kind]
    (copied,) = HostCopy().take([tensor])
    assert (copied.dtype, copied.shape, copied.layout) == (tensor.dtype, tensor.shape, tensor.layout)
    if kind == "sparse":
        assert torch.equal(copied.to_dense(), tensor.to_dense())
    elif kind == "float8":
        assert torch.equal(copied.view(torch.uint8), tensor.view(torch.uint8))
    else:
        assert torch.equal(copied, tensor)
    if tensor.numel() and kind not in ("sparse", "conjugate", "negative view"):
        assert copied.stride() == tensor.stride()
        assert copied.data_ptr() != tensor.data_ptr()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_and_subclasses_are_copied():
    class Named(torch.Tensor):
        pass

    named = torch.randn(3).as_subclass(Named)
    quantized = torch.quantize_per_tensor(torch.randn(4), 0.1, 2, torch.qint8)
    copied = HostCopy().take({"named": named, "quantized": quantized})
    assert type(copied["named"]) is Named
    assert torch.equal(copied["named"], named)
    assert torch.equal(copied["quantized"], quantized)
    assert copied["named"].data_ptr() != named.data_ptr()


def test_a_copy_needs_no_gradient_and_leaves_the_parameter_its_own():
    parameter = torch.nn.Parameter(torch.randn(3))
    copied = HostCopy().take({"w": parameter})["w"]
    assert type(copied) is torch.Tensor
    assert not copied.requires_grad
    assert parameter.requires_grad


def test_structures_keep_their_types_and_plain_values():
    Pair = collections.namedtuple("Pair", "first second")
    state = {
        "ordered": collections.OrderedDict(a=torch.ones(2), b=torch.zeros(3)),
        "pair": Pair(torch.ones(1), "text"),
        "groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0, 1], "none": None}],
        7: True,
    }
    assert_same(HostCopy().take(state), state)


def test_what_changes_later_does_not_change_the_copy():
    state = {"w": torch.zeros(5), "array": np.zeros(3), "list": [1, {"x": 2}], "set": {1}}
    copied = HostCopy().take(state)
    state["w"] += 1
    state["array"] += 1
    state["list"][1]["x"] = 9
    state["set"].add(2)
    assert_same(copied, {"w": torch.zeros(5), "array": np.zeros(3), "list": [1, {"x": 2}], "set": {1}})


def test_a_model_and_its_optimizer_are_copied_to_the_last_bit():
    model = tiny.gpt()
    optimizer = trained(model)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert_same(HostCopy().take(state), state)


# ---- what shares memory ----


def test_tied_tensors_are_copied_once_and_stay_tied():
    weight = torch.randn(10, 4)
    state = {"a": weight, "b": weight, "again": weight.view(40), "turned": weight.T, "row": weight[3]}
    copied = HostCopy().take(state)
    assert_same(copied, state)
    assert num_bytes(state) == weight.nbytes
    copied["a"].fill_(7)
    assert all((tensor == 7).all() for tensor in copied.values())


def test_a_model_with_tied_weights_gives_the_same_file(tmp_path):
    model = tiny.gpt()
    state = model.state_dict()
    assert num_bytes(state) < sum(tensor.nbytes for tensor in state.values())  # it has ties
    save_tensors(state, tmp_path / "direct.safetensors")
    save_tensors(HostCopy().take(state), tmp_path / "copied.safetensors")
    assert (tmp_path / "copied.safetensors").stat().st_size == (
        tmp_path / "direct.safetensors"
    ).stat().st_size
    assert_same(load_tensors(tmp_path / "copied.safetensors"), load_tensors(tmp_path / "direct.safetensors"))


def test_only_the_part_of_the_memory_that_is_used_is_copied():
    large = torch.randn(1_000_000)
    state = {"first": large[1000:1010], "second": large[1005:1020]}
    assert num_bytes(state) == 20 * 4
    copied = HostCopy().take(state)
    assert_same(copied, state)
    assert copied["first"].untyped_storage().nbytes() == 80
    copied["first"][5] = 42  # they overlap, there as here
    assert copied["second"][0] == 42


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_views_of_different_types_share_their_bytes(order):
    raw = torch.arange(64, dtype=torch.uint8)
    views = [raw[3:9], raw[8:40].view(torch.float64)]
    state = [views[index] for index in order]
    copied = HostCopy().take(state)
    for one, other in zip(copied, state, strict=True):
        assert torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
    bytes_, wide = (copied[order.index(index)] for index in (0, 1))
    bytes_[5] = 255  # byte 8: the first of the wide ones
    assert wide.contiguous().view(torch.uint8)[0] == 255


def test_arrays_that_torch_was_lent_twice_are_one_memory():
    array = np.arange(10.0)
    state = [torch.from_numpy(array[:4]), torch.from_numpy(array)]
    assert num_bytes(state) == 80
    assert_same(HostCopy().take(state), state)


def test_a_saved_copy_is_no_larger_than_a_saved_state():
    model = tiny.gpt()
    state = {"model": model.state_dict(), "optimizer": trained(model).state_dict()}
    files = []
    for values in (state, HostCopy().take(state)):
        files.append(io.BytesIO())
        torch.save(values, files[-1])
    direct, copied = (file.getbuffer().nbytes for file in files)
    assert copied <= direct + 1024


# ---- buffers ----


def test_the_next_copy_uses_the_same_memory():
    host, state = HostCopy(), {"a": torch.zeros(100), "b": torch.zeros(50), "c": torch.zeros(100)}
    first = pointers(host.take(state))
    for tensor in state.values():
        tensor += 1
    copied = host.take(state)
    assert pointers(copied) == first
    assert_same(copied, state)


def held_by(host):
    return sorted(len(buffer) for buffer in host._buffers)


def test_buffers_follow_the_state_as_it_grows_and_shrinks():
    host = HostCopy()
    a, b, c = torch.ones(100), torch.ones(30), torch.ones(7)
    host.take({"a": a})
    grown = {"b": b, "a": a, "c": c}
    assert_same(host.take(grown), grown)
    assert held_by(host) == [28, 120, 400]
    kept = pointers(host.take({"c": c}))
    assert held_by(host) == [28]
    assert pointers(host.take({"c": c + 1})) == kept
    host.take({})
    assert held_by(host) == []
    assert_same(host.take(grown), grown)


def test_old_buffers_are_gone_before_new_ones_are_made(monkeypatch):
    host, state = HostCopy(), {"a": torch.ones(100), "b": torch.ones(30), "c": torch.ones(7)}
    host.take(state)
    old = {len(buffer): weakref.ref(buffer) for buffer in host._buffers}
    make, alive = torch.empty, []

    def watch(*args, **kwargs):
        alive.append({size for size, buffer in old.items() if buffer() is not None})
        return make(*args, **kwargs)

    monkeypatch.setattr(torch, "empty", watch)
    host.take({"a": torch.ones(200), "b": torch.ones(30)})
    assert alive[0] == {120}


def test_buffers_of_equal_size_go_to_tensors_of_any_type():
    host = HostCopy()
    first = pointers(host.take({"x": torch.ones(8)}))
    other = {"x": torch.arange(4)}
    copied = host.take(other)
    assert pointers(copied) == first
    assert_same(copied, other)


def test_buffers_can_be_made_ahead_on_another_thread():
    model = tiny.gpt()
    state = {"model": model.state_dict(), "optimizer": trained(model).state_dict()}
    host = HostCopy()
    thread = threading.Thread(target=host.prepare, args=(state,))
    thread.start()
    thread.join()
    prepared = [buffer.data_ptr() for buffer in host._buffers]
    assert_same(host.take(state), state)
    assert [buffer.data_ptr() for buffer in host._buffers] == prepared
    assert sum(held_by(host)) == num_bytes(state)


def test_bytes_are_counted_once_and_plain_values_not_at_all():
    weight = torch.ones(6)
    assert num_bytes({"a": weight, "b": [weight, weight[:3]], "c": 5, "d": "text", "e": torch.empty(0)}) == 24
    assert num_bytes({}) == 0
    assert num_bytes([torch.ones(2, dtype=torch.complex64).conj()]) == 16
