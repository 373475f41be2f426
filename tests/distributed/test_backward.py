"""The short way through backward gives what `loss.backward()` gives, and is left for it where it must be."""

from __future__ import annotations

import inspect
import logging

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from footplate.distributed import backward as tools
from footplate.distributed.backward import run_backward
from footplate.distributed.hang_report import is_in_collective


@pytest.fixture
def engine_calls(monkeypatch):
    """How often the engine was called without torch's own backward."""
    calls, call = [], tools._call_engine

    def note(*args):
        calls.append(args)
        return call(*args)

    assert tools._engine_works()
    monkeypatch.setattr(tools, "_call_engine", note)
    return calls


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(5, 4)


def gradients_of(backward, times=1, dtype=torch.float32):
    model, rows = small_model()
    model.to(dtype)
    for _ in range(times):
        backward(model(rows.to(dtype)).square().mean())
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("times", [1, 3])
def test_gradients_have_the_bits_of_torchs_own_backward(engine_calls, times, dtype):
    ours = gradients_of(run_backward, times, dtype)
    theirs = gradients_of(lambda loss: loss.backward(), times, dtype)
    assert len(engine_calls) == times
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_the_graph_is_freed(engine_calls):
    model, rows = small_model()
    loss = model(rows).square().mean()
    run_backward(loss)
    with pytest.raises(RuntimeError, match="second time"):
        run_backward(loss)


def test_hooks_on_tensors_and_parameters_are_called(engine_calls):
    model, rows = small_model()
    seen = []
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: seen.append("parameter"))
    outputs = model(rows)
    outputs.register_hook(lambda gradient: seen.append("tensor"))
    run_backward(outputs.mean())
    assert seen == ["tensor", "parameter"]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.ones(()), "does not require grad"),
        (torch.ones(2, requires_grad=True) * 2, "only for scalar outputs"),
        (torch.ones((), dtype=torch.complex64, requires_grad=True) * 2, "real scalar outputs"),
    ],
)
def test_a_loss_that_cannot_be_used_raises_as_torch_does(engine_calls, loss, message):
    with pytest.raises(RuntimeError, match=message):
        run_backward(loss)
    assert not engine_calls


def test_a_replaced_backward_is_called(engine_calls, monkeypatch):
    losses, own = [], Tensor.backward
    monkeypatch.setattr(
        Tensor, "backward", lambda loss, *rest, **options: (losses.append(loss), own(loss))[1]
    )
    assert gradients_of(run_backward)[0] is not None
    assert len(losses) == 1
    assert not engine_calls


def test_a_mode_that_watches_functions_sees_backward(engine_calls):
    class Watch(TorchFunctionMode):
        names = ()

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Watch.names = (*Watch.names, getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    model, rows = small_model()
    loss = model(rows).mean()
    with Watch():
        run_backward(loss)
    assert "backward" in Watch.names
    assert not engine_calls


def test_a_subclass_of_tensors_uses_its_own_backward(engine_calls):
    class Marked(Tensor):
        pass

    leaf = torch.ones((), requires_grad=True)
    run_backward((leaf * 2).as_subclass(Marked))
    assert leaf.grad == 2
    assert not engine_calls


def test_torch_logs_the_nodes_where_it_is_asked_to(engine_calls, caplog):
    with caplog.at_level(logging.DEBUG, logger="torch.autograd.graph"):
        gradients_of(run_backward)
    assert not engine_calls
    assert any("Executing" in message for message in caplog.messages)


def test_a_version_of_torch_with_another_engine_falls_back(engine_calls, monkeypatch):
    def refuse(*args):
        raise TypeError("run_backward() takes other arguments")

    monkeypatch.setattr(tools, "_call_engine", refuse)
    tools._engine_works.cache_clear()
    try:
        assert gradients_of(run_backward)[0] is not None
    finally:
        tools._engine_works.cache_clear()


def test_a_rank_that_waits_in_backward_is_known_to_wait():
    seen = []
    x = torch.ones(3, requires_grad=True)
    loss = x.sum()
    x.register_hook(lambda gradient: seen.append(inspect.currentframe().f_back))
    run_backward(loss)
    assert is_in_collective(seen[0])
