"""FSDP in the Trainer: the same run as with DDP, saved in shards, and resumed by either."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from footplate.checkpoint.consolidate import consolidate
from footplate.checkpoint.seal import verify_checkpoint
from footplate.integrations.journal import last_run, read_events
from ranks import torchrun


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("sharded")
    result = torchrun(Path(__file__).with_name("sharded.py"), str(root))
    assert result.code == 0, result.output[-3000:]
    return root


@pytest.fixture(scope="module")
def found(runs):
    return json.loads((runs / "result-0.json").read_text())


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def notes_of(folder):
    events = last_run(read_events(folder / "events.jsonl"))
    return [event for event in events if event["kind"] == "modules"]


def largest_difference(one, other):
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_the_weights_are_in_shards(found):
    assert found["shard"] == "DTensor"
    assert found["enabled"]


def test_the_run_equals_that_of_ddp(runs, found):
    assert largest_difference(weights_of(runs / "ddp/final"), weights_of(runs / "fsdp/final")) < 1e-6
    for one, other in zip(found["ddp"]["log"], found["fsdp"]["log"], strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_every_row_is_evaluated_once(found):
    assert [entry["eval_rows"] for entry in found["fsdp"]["log"] if "eval_rows" in entry] == [5, 5]


def test_a_checkpoint_holds_a_part_of_each_rank_and_is_sealed(runs):
    folder = runs / "fsdp/checkpoint-3"
    assert verify_checkpoint(folder).is_intact
    assert len(list((folder / "model_shards").glob("*.safetensors"))) == 2
    assert len(list((folder / "optimizer_shards").glob("*.safetensors"))) == 2
    assert not (folder / "model.safetensors").exists()


def test_a_resumed_run_ends_with_the_same_bits(runs, found):
    assert found["fsdp -> fsdp"]["log"] == found["fsdp"]["log"]
    assert largest_difference(weights_of(runs / "fsdp/final"), weights_of(runs / "fsdp_fsdp/final")) == 0.0


def assert_same_notes(ours, theirs):
    assert [note["step"] for note in ours] == [note["step"] for note in theirs]
    assert ours[0]["names"] == theirs[0]["names"]
    for own, other in zip(ours, theirs, strict=True):
        for key in ("grad_norm", "weight_norm", "update_ratio"):
            assert own[key] == pytest.approx(other[key], rel=0.02)  # they have three digits


def test_modules_are_measured_as_if_the_weights_were_whole(runs, found):
    whole, shards = notes_of(runs / "ddp"), notes_of(runs / "fsdp")
    assert [note["step"] for note in whole] == [2, 4]
    assert_same_notes(shards, whole)
    norm = [entry["grad_norm"] for entry in found["ddp"]["log"] if "grad_norm" in entry][1]
    assert math.hypot(*whole[0]["grad_norm"]) == pytest.approx(norm, rel=0.01)
    assert notes_of(runs / "fsdp_fsdp") == []  # it does not measure, and ends with the same bits
    assert [note["step"] for note in notes_of(runs / "fsdp_ddp")] == [4]


@pytest.mark.parametrize("run", ["fsdp -> ddp", "ddp -> fsdp"])
def test_a_run_goes_on_in_the_other_way(runs, found, run):
    folder = runs / run.replace(" -> ", "_")
    assert largest_difference(weights_of(runs / "ddp/final"), weights_of(folder / "final")) < 1e-6
    assert len(found[run]["log"]) == len(found["ddp"]["log"])


def test_shards_become_a_model_that_transformers_loads(runs, tmp_path):
    consolidate(runs / "fsdp/checkpoint-4", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    saved = AutoModelForCausalLM.from_pretrained(runs / "fsdp/final")
    pairs = zip(model.parameters(), saved.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_best_model_is_loaded_and_whole_models_are_saved_on_request(runs):
    folders = list((runs / "best").glob("checkpoint-*"))
    whole = [weights_of(folder) for folder in folders if (folder / "model.safetensors").exists()]
    final = weights_of(runs / "best/final")
    assert any(largest_difference(weights, final) == 0.0 for weights in whole)


@pytest.mark.slow
def test_copies_of_a_sharded_model_train_as_one(tmp_path):
    result = torchrun(Path(__file__).with_name("sharded.py"), str(tmp_path), num_processes=4)
    assert result.code == 0, result.output[-3000:]
    found = json.loads((tmp_path / "result-0.json").read_text())
    assert found["mesh"] == [2, 2]
    # four gradients are added in another order; where the true one is zero (the bias of keys), Adam makes
    # steps of what is left by rounding
    difference = largest_difference(weights_of(tmp_path / "ddp/final"), weights_of(tmp_path / "hybrid/final"))
    assert difference < 1e-5
    losses = [[entry["loss"] for entry in found[run]["log"] if "loss" in entry] for run in ("ddp", "hybrid")]
    assert losses[0] == losses[1]
    assert found["again"]["log"] == found["hybrid"]["log"]
    assert_same_notes(notes_of(tmp_path / "hybrid"), notes_of(tmp_path / "ddp"))  # each copy counts once
