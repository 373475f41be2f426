"""The memory of one rank, from what was measured."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tiny
from footplate.data.order_memory import BYTES_PER_ROW
from footplate.planning import plan_memory
from footplate.planning.basis import ORDER_BYTES_PER_ROW, measure_basis
from footplate.planning.memory import combine

WIDTH, DEPTH = 256, 8
LAYER = 4 * WIDTH * (WIDTH + 1)  # bytes


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.inner(x)


class Stack(nn.Module):
    """Layers and a root of the same size as one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return {"loss": self.head(x).mean()}


@pytest.fixture(scope="module")
def model():
    with torch.device("meta"):
        return Stack()


@pytest.fixture
def plan(model, tmp_path):
    def build(world_size, sharding, num_rows=1, **settings):
        args = tiny.arguments(tmp_path, **settings)
        basis = measure_basis(model, args, {"x": torch.zeros(num_rows, WIDTH)})
        return combine(basis, sharding, world_size, ranks_per_node=4)

    return build


TOTAL = (DEPTH + 1) * LAYER


def test_parts_add_up_to_the_peak(plan):
    found = plan(4, "full_shard")
    parts = (found.weights, found.optimizer, found.gradients, found.activations, found.communication)
    assert found.peak == sum(parts) + found.batch
    assert found.to_dict()["peak"] == found.peak


def test_one_process_holds_everything(plan):
    found = plan(1, "none")
    assert found.weights == TOTAL
    assert found.optimizer == 2 * TOTAL + 4 * 2 * (DEPTH + 1)  # and the number of steps of each parameter
    assert found.gradients == pytest.approx(TOTAL, rel=0.15)


def test_shards_are_parts_of_weights_and_optimizer(plan):
    found = plan(4, "full_shard")
    assert found.weights == TOTAL / 4
    assert found.optimizer == pytest.approx(2 * TOTAL / 4, rel=0.001)
    # root with its gradients, two layers, one layer's gradients twice
    assert found.communication == 6 * LAYER


def test_weights_that_stay_gathered_cost_more_than_those_that_do_not(plan):
    keeps, gathers = plan(4, "shard_grad_op"), plan(4, "full_shard")
    assert keeps.weights == gathers.weights
    assert keeps.peak > gathers.peak


def test_hybrid_takes_as_much_as_full_sharding_of_one_machine(plan):
    assert plan(16, "hybrid").peak == plan(4, "full_shard").peak
    assert plan(16, "full_shard").peak < plan(16, "hybrid").peak


def test_accumulation_keeps_whole_gradients_unless_they_are_reduced_each_time(plan):
    config = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    whole = plan(4, "full_shard", gradient_accumulation_steps=2)
    reduced = plan(4, "full_shard", gradient_accumulation_steps=2, accelerator_config=config)
    assert whole.gradients == TOTAL
    assert reduced.gradients == TOTAL / 4


def test_ddp_without_views_holds_gradients_twice(model, tmp_path):
    options = {"world_size": 2, "batch": {"x": torch.zeros(1, WIDTH)}}
    args = tiny.arguments(tmp_path)
    views = plan_memory(model, args, **options)
    copies = plan_memory(model, args, **options, bucket_view=False)
    assert copies.peak - views.peak == TOTAL
    assert copies.communication == TOTAL


def test_activations_grow_with_the_batch_and_not_with_the_ranks(plan):
    small, large = plan(2, "none", num_rows=100), plan(8, "none", num_rows=200)
    assert large.activations == pytest.approx(2 * small.activations, rel=0.5)
    assert plan(2, "none", num_rows=200).activations == large.activations


def test_mixed_precision_gathers_halves_and_sums_in_full(plan):
    whole, mixed = plan(4, "full_shard"), plan(4, "full_shard", bf16=True)
    assert mixed.weight_copies == 0
    # halves: root with gradients, two layers, one layer's gradients; and these once more in full
    assert mixed.communication == 5 * LAYER / 2 + LAYER
    assert plan(2, "none", bf16=True).weight_copies > 0
    assert mixed.weights == whole.weights


def test_the_host_holds_the_order_and_the_copy_that_is_saved(model, tmp_path):
    batch = {"x": torch.zeros(1, WIDTH)}
    saving = tiny.arguments(tmp_path, save_strategy="steps")
    found = plan_memory(model, saving, batch, num_rows=1000)
    assert found.order == 48_000
    assert found.checkpoint_copy == found.weights + found.optimizer
    assert found.peak > found.host
    keyed = tiny.arguments(tmp_path, train_sampling_strategy="keyed")
    assert plan_memory(model, keyed, batch, num_rows=1000).host == 0
    on_gpu = combine(measure_basis(model, saving, batch, target="cuda"), "none", 1)
    assert not on_gpu.is_on_host
    assert on_gpu.peak < on_gpu.host + on_gpu.weights + on_gpu.optimizer + on_gpu.gradients


def test_an_order_takes_what_the_loader_says():
    assert ORDER_BYTES_PER_ROW == BYTES_PER_ROW


def test_frozen_weights_need_neither_gradients_nor_state(tmp_path):
    model = Stack()
    model.layers.requires_grad_(False)
    found = plan_memory(model, tiny.arguments(tmp_path), {"x": torch.zeros(1, WIDTH)})
    assert found.weights == TOTAL
    assert found.optimizer == 2 * LAYER + 8
    assert found.gradients <= LAYER


def test_an_optimizer_that_cannot_be_tried_is_counted_as_adam(model, tmp_path):
    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("only on other hardware")

    basis = measure_basis(
        model, tiny.arguments(tmp_path), {"x": torch.zeros(1, WIDTH)}, optimizer=(Broken, {"lr": 0.1})
    )
    assert basis.optimizer_bytes() == 2 * TOTAL
    assert "counted as Adam: only on other hardware" in basis.notes[0]
