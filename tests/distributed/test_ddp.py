"""DDP as the settings ask for it: what torch is given, and one wrapper for the same weights."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import transformers
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks
import tiny
from footplate.distributed.ddp import DdpStrategy, plan_ddp, recomputes, same_tensors
from footplate.distributed.strategy import Strategy, build_strategy


@pytest.fixture
def group(tmp_path):
    """A group of one process, in which DDP can be made."""
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def small_bert():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    return transformers.BertModel(transformers.BertConfig(vocab_size=16, **sizes))


def test_torch_decides_what_no_setting_says(tmp_path):
    assert plan_ddp(tiny.arguments(tmp_path), tiny.Regression()) == {"find_unused_parameters": True}


def test_every_setting_reaches_torch_by_its_name(tmp_path):
    options = {
        "find_unused_parameters": False,
        "bucket_cap_mb": 3,
        "broadcast_buffers": False,
        "static_graph": True,
    }
    args = tiny.arguments(tmp_path, **{f"ddp_{name}": value for name, value in options.items()})
    assert plan_ddp(args, tiny.Regression()) == options


def test_unused_parameters_are_not_searched_for_where_activations_are_computed_again(tmp_path):
    model, args = small_bert(), tiny.arguments(tmp_path)
    assert plan_ddp(args, model)["find_unused_parameters"] is True
    model.gradient_checkpointing_enable()
    assert recomputes(model, args)
    assert plan_ddp(args, model)["find_unused_parameters"] is False
    asked = tiny.arguments(tmp_path, gradient_checkpointing=True)
    assert plan_ddp(asked, small_bert())["find_unused_parameters"] is False
    assert plan_ddp(asked, tiny.Regression())["find_unused_parameters"] is True  # not a model of transformers


def test_the_same_weights_keep_their_wrapper_and_others_get_a_new_one(tmp_path, group):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    strategy = DdpStrategy(Strategy(), tiny.arguments(tmp_path, ddp_bucket_cap_mb=3))
    wrapped = strategy.prepare_model(model)
    assert isinstance(wrapped, DistributedDataParallel)
    assert (wrapped.module, wrapped.bucket_bytes_cap) == (model, 3 * 2**20)
    assert strategy.prepare_model(model) is wrapped
    assert strategy.prepare_model(wrapped) is wrapped
    model[0].requires_grad_(False)
    assert strategy.prepare_model(model) is not wrapped
    other = nn.Linear(2, 1)
    assert strategy.prepare_model(other).module is other


def test_a_model_without_trained_weights_is_left_as_it_is(tmp_path, group):
    model = nn.Linear(2, 1).requires_grad_(False)
    assert DdpStrategy(Strategy(), tiny.arguments(tmp_path)).prepare_model(model) is model


def test_only_the_last_micro_batch_exchanges_gradients(tmp_path, group):
    strategy = DdpStrategy(Strategy(), tiny.arguments(tmp_path))
    model = strategy.prepare_model(nn.Linear(2, 1))
    with strategy.accumulate(model, sync=False):
        assert not model.require_backward_grad_sync
    with strategy.accumulate(model, sync=True):
        assert model.require_backward_grad_sync
    careful = DdpStrategy(Strategy(), tiny.arguments(tmp_path, auto_find_batch_size=True))
    with careful.accumulate(model, sync=True):  # gradients are averaged at the end
        assert not model.require_backward_grad_sync


def test_what_one_process_does_is_left_to_the_other_strategy(tmp_path):
    inner = SimpleNamespace(is_scaled=True, scaler="scaler", step_was_skipped=True, clip_grad_norm=max)
    strategy = DdpStrategy(inner, tiny.arguments(tmp_path))
    assert (strategy.is_scaled, strategy.scaler, strategy.step_was_skipped) == (True, "scaler", True)
    assert strategy.clip_grad_norm(2, 5) == 5


def test_lists_are_the_same_if_they_hold_the_same_objects():
    one, two = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    assert same_tensors([one, two], [one, two])
    assert not same_tensors([one], [two])
    assert not same_tensors([one, two], [one])


class Counted(nn.Module):
    """A line with a buffer."""

    def __init__(self, value):
        super().__init__()
        self.line = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.line.weight, value)
        self.register_buffer("offset", torch.tensor([float(value)]))

    def forward(self, x):
        return self.line(x) + self.offset


@pytest.mark.parametrize("averages_at_end", [False, True])
def test_two_processes_start_with_the_first_ones_weights_and_average_gradients(averages_at_end, tmp_path):
    args = tiny.arguments(tmp_path, auto_find_batch_size=averages_at_end)

    def work(rank):
        strategy = build_strategy(args, list)
        model = Counted(value=3 + rank)
        wrapped = strategy.prepare_model(model)
        for part, sync in ((1.0, False), (2.0, True)):
            with strategy.accumulate(wrapped, sync=sync):
                strategy.backward(wrapped(torch.tensor([[part + 10 * rank]])).sum())
        strategy.finish_gradients(model.parameters())
        model.offset.fill_(7.0 + rank)
        evaluated = strategy.for_evaluation(wrapped)
        weight, gradient = model.line.weight.item(), model.line.weight.grad.item()
        return type(strategy), weight, gradient, evaluated is model, model.offset.item()

    # the first adds 1 and 2, the second 11 and 12: on average 13
    assert ranks.fork(work, tmp_path) == [(DdpStrategy, 3.0, 13.0, True, 7.0)] * 2


def test_an_optimizer_that_steps_inside_backward_is_refused(tmp_path):
    args = tiny.arguments(tmp_path, optim="lomo")

    def work(rank):
        with pytest.raises(ValueError, match=r"optim='lomo'.*2 processes.*Choose another optimizer"):
            build_strategy(args, lambda: SimpleNamespace(mixed_precision="no", scaler=None))
        return True

    assert ranks.fork(work, tmp_path) == [True, True]
