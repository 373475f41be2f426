"""FSDP2 on real processes beside DDP, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from footplate.arguments.fsdp_config import FsdpSettings
from footplate.distributed.fsdp import FsdpStrategy, plan_precision
from sharded import launch

SCRIPT = Path(__file__).with_name("fsdp_processes.py")
WAYS = ("default", "kept", "offload", "recomputed", "whole")


@pytest.fixture(scope="module")
def pair():
    return launch(SCRIPT, 2, "pair")


@pytest.mark.parametrize("way", WAYS)
def test_weights_after_clipped_and_accumulated_updates_are_those_of_ddp(pair, way):
    found = pair[0][way]
    assert found["weights"] < 1e-6
    assert found["norms"] < 1e-5
    assert found["names"]
    assert found["is_tied"]


@pytest.mark.parametrize("way", WAYS)
def test_each_process_holds_about_half(pair, way):
    shares = [pair[rank][way]["share"] for rank in (0, 1)]
    assert sum(shares) == pytest.approx(1)
    assert max(shares) < 0.55


def test_gradients_are_reduced_in_the_last_micro_batch_only(pair):
    assert not any(pair[rank]["default"]["reduced_early"] for rank in (0, 1))


def test_recomputing_runs_each_layer_twice_and_fills_no_cache(pair):
    assert pair[0]["default"]["calls"] == [8, 8, 8]
    assert pair[0]["recomputed"]["calls"] == [16, 16, 16]
    in_training, in_evaluation, names = pair[0]["cache"]
    assert (in_training, in_evaluation) == (0, 1)
    assert names == ["scale", "inner.weight", "inner.bias", "outer.weight", "outer.bias"]


def test_parts_are_chosen_by_repetition_by_class_and_by_size(pair):
    units = pair[0]["units"]
    blocks = ["blocks.0", "blocks.1", "blocks.2"]
    linears = [f"{block}.{part}" for block in blocks for part in ("inner", "outer")]
    assert units == {"auto": ["", *blocks], "classes": ["", *linears], "size": ["", *blocks], "none": [""]}


def test_what_cannot_happen_raises(pair):
    errors = pair[1]["errors"]
    assert "no part of class Blok. It has BatchNorm1d, Block, " in errors["class"]
    assert "2 processes cannot be divided into groups of 3" in errors["group"]
    assert "bf16=True" in errors["fp16"]
    assert "has not stepped yet" in pair[1]["optimizer"]["stepped"]


def test_one_process_alone_is_refused():
    with pytest.raises(ValueError, match=r"this process is alone\. Start the script with torchrun"):
        FsdpStrategy(FsdpSettings(), torch.device("cpu"))


def test_an_optimizer_made_before_sharding_moves_every_weight(pair):
    for rank in (0, 1):
        assert pair[rank]["optimizer"]["moved"] == pair[rank]["optimizer"]["of"] > 0


def test_processes_that_begin_empty_get_weights_and_buffers(pair):
    assert [pair[rank]["empty"] for rank in (0, 1)] == [{"weights": True, "buffer": True}] * 2


def test_bf16_computes_in_half_and_keeps_weights_outputs_and_gradients_whole(pair):
    assert pair[0]["half"] == ["torch.bfloat16", "torch.float32", "torch.float32", "torch.float32"]


def test_whole_weights_go_in_and_come_out(pair):
    first, second = pair[0]["round_trip"], pair[1]["round_trip"]
    assert first == {"is_same": True, "is_equal": True, "is_sharded": [True, False]}
    assert second["is_equal"] is None  # only the first process gets the whole weights


def test_in_evaluation_all_processes_use_the_statistics_of_the_first(pair):
    first, second = pair[0]["evaluation"], pair[1]["evaluation"]
    assert first["is_same"]
    assert first["before"] != second["before"]
    assert first["after"] == second["after"] == first["before"]


def test_a_policy_in_the_configuration_has_priority():
    planned = plan_precision("bf16", {"reduce_dtype": "bfloat16", "cast_forward_inputs": False})
    assert planned["param_dtype"] is planned["reduce_dtype"] is torch.bfloat16
    assert planned["output_dtype"] is torch.float32
    assert planned["cast_forward_inputs"] is False


@pytest.mark.slow
def test_two_copies_of_two_shards_train_as_ddp_does():
    four = launch(SCRIPT, 4, "four")
    for way, mesh in (("hybrid", [2, 2]), ("full", [4])):
        assert four[0][way]["weights"] < 1e-6
        assert four[0][way]["norms"] < 1e-5
        assert {tuple(four[rank][way]["mesh"]) for rank in four} == {tuple(mesh)}
    assert sum(four[rank]["hybrid"]["share"] for rank in four) == pytest.approx(2)
    assert sum(four[rank]["full"]["share"] for rank in four) == pytest.approx(1)
