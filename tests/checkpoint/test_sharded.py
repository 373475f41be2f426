"""Sharded checkpoints, written by real processes and read by another number of them, or by one."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from footplate.checkpoint.optimizer import save_optimizer
from footplate.checkpoint.sharded import is_sharded_checkpoint, load_shards, save_shards
from footplate.checkpoint.weights import save_weights
from sharded import build, build_optimizer, launch, make_batch

SCRIPT = Path(__file__).with_name("sharded_processes.py")


def train(seed=0, num_updates=3):
    model = build(seed)
    optimizer = build_optimizer(model)
    for number in range(num_updates):
        model(make_batch(number, 0, 0)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def flatten(model, optimizer):
    state = optimizer.state_dict()["state"]
    entries = {f"{n}/{key}": value for n, part in state.items() for key, value in part.items()}
    return {name: tensor.clone() for name, tensor in {**model.state_dict(), **entries}.items()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Checkpoints of one process, for others to load."""
    folder = tmp_path_factory.mktemp("checkpoints")
    model, optimizer = train()
    save_weights(model, folder / "plain")
    save_optimizer(optimizer, folder / "plain")
    save_shards(folder / "one", model, optimizer)
    (folder / "bin").mkdir()
    torch.save(model.state_dict(), folder / "bin" / "pytorch_model.bin")
    save_optimizer(optimizer, folder / "bin")
    model.norm = torch.nn.LayerNorm(7)
    save_weights(model, folder / "misfit")
    torch.save(flatten(*train()), folder / "plain.pt")
    return folder


@pytest.fixture(scope="module")
def pair(folder):
    return launch(SCRIPT, 2, "pair", folder)


def load_alone(folder):
    model = build(99)
    optimizer = build_optimizer(model)
    result = load_shards(folder, model, optimizer)
    assert list(result.missing_keys) == list(result.unexpected_keys) == []
    return model, optimizer


@pytest.mark.parametrize("source", ["from_plain", "from_bin", "from_one"])
def test_a_checkpoint_of_one_process_is_loaded_into_shards_to_the_bit(pair, source):
    assert [pair[rank][source] for rank in (0, 1)] == [True, True]


def test_shards_are_loaded_again_to_the_bit_with_nothing_lost(pair):
    for rank in (0, 1):
        assert pair[rank]["again"]
        assert pair[rank]["lost"] == pair[rank]["again_lost"] == []
        assert pair[rank]["rate"] == 0.01
        assert pair[rank]["again_rate"] == 0.007


def test_shards_of_two_processes_are_loaded_by_ddp_and_by_one_process(pair, folder):
    assert pair[0]["ddp"]
    assert pair[1]["ddp"]
    assert_equal(flatten(*load_alone(folder / "two")), torch.load(folder / "two.pt"))


def test_each_process_writes_a_file_with_its_part_and_tied_weights_are_stored_once(pair, folder):
    files = sorted((folder / "two" / "model_shards").glob("*.safetensors"))
    assert len(files) == 2
    sizes = [sum(tensor.numel() for tensor in load_file(file).values()) for file in files]
    assert max(sizes) < 0.6 * sum(sizes)
    assert not any("head.weight" in load_file(file) for file in files)
    assert not list((folder / "two").rglob(".metadata"))  # torch's own is a pickle


def test_a_copy_is_written_in_the_background_while_training_goes_on(pair):
    assert [pair[rank]["went_on"] for rank in (0, 1)] == [True, True]
    assert [pair[rank]["background"] for rank in (0, 1)] == [True, True]


def test_without_an_optimizer_only_weights_are_written_and_its_state_begins_anew(pair, folder):
    assert not (folder / "weights" / "optimizer_shards").exists()
    assert pair[0]["only_weights"] == 0.01


def test_other_sizes_are_refused_on_every_process(pair):
    for rank in (0, 1):
        assert "other sizes: norm" in pair[rank]["misfit"]


@pytest.mark.slow
def test_shards_of_two_processes_are_loaded_by_four_in_a_row_or_as_two_copies(pair, folder):
    four = launch(SCRIPT, 4, "four", folder)
    assert [{**four[rank], "rank": None} for rank in range(4)] == [
        {"rank": None, "full": True, "hybrid": True, "again": True}
    ] * 4
    assert_equal(flatten(*load_alone(folder / "hybrid")), torch.load(folder / "two.pt"))


# ---- one process, and files that somebody changed ----


@pytest.fixture
def alone(tmp_path):
    model, optimizer = train()
    save_shards(tmp_path, model, optimizer)
    return tmp_path


def test_one_process_without_a_group_saves_and_loads(alone):
    assert is_sharded_checkpoint(alone)
    assert not is_sharded_checkpoint(alone.parent)
    assert_equal(flatten(*load_alone(alone)), flatten(*train()))


def test_training_goes_on_as_if_it_had_not_stopped(alone):
    model, optimizer = load_alone(alone)
    model(make_batch(3, 0, 0)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert_equal(flatten(model, optimizer), flatten(*train(num_updates=4)))


def test_a_save_leaves_no_file_of_an_earlier_one_with_more_processes(alone):
    shards = alone / "model_shards"
    shutil.copy(next(shards.glob("*.safetensors")), shards / "shard-00009-model-00001-of-00001.safetensors")
    model, optimizer = train(seed=3)
    save_shards(alone, model, optimizer)
    assert_equal(flatten(*load_alone(alone)), flatten(model, optimizer))


def test_a_missing_file_is_noticed(pair, folder, tmp_path):
    for number in (1, 2):
        copy = shutil.copytree(folder / "two", tmp_path / str(number))
        next((copy / "model_shards").glob(f"shard-0000{number}*")).unlink()
        with pytest.raises(ValueError, match="missing"):
            load_alone(copy)


def test_a_file_of_another_save_is_noticed(alone):
    save_file({"strange": torch.ones(2)}, alone / "model_shards" / "strange.safetensors")
    with pytest.raises(ValueError, match="files of another save"):
        load_alone(alone)


def test_a_file_that_is_cut_short_is_refused(alone):
    file = next((alone / "optimizer_shards").glob("*.safetensors"))
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(ValueError, match="cut short"):
        load_alone(alone)


@pytest.mark.parametrize(
    "change",
    [
        {"shapes": []},
        {"shapes": {"embed.weight": [-1, 6]}},
        {"shapes": {"embed.weight": [10**15, 6]}},
        {"aliases": {"head.weight": ["embed.weight"]}},
        {"aliases": {"head.weight": "nothing"}},
    ],
)
def test_an_index_that_lies_is_refused(alone, change):
    index = alone / "model_shards" / "shards.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), **change}))
    with pytest.raises(ValueError):
        load_alone(alone)


@pytest.mark.parametrize(
    "offsets", ["[", "[]", '{"embed.weight": {"saved_offsets": [-1, 0]}}', "{}", "[" * 9999]
)
def test_places_that_lie_are_refused(alone, offsets):
    file = next((alone / "model_shards").glob("*.safetensors"))
    save_file(load_file(file), file, metadata={"DCP_SHARDING_INFO": offsets})
    with pytest.raises(ValueError):
        load_alone(alone)


class Hostile:
    """Would make a file when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_hostile_file_is_refused_and_runs_nothing(alone):
    trace = alone / "trace"
    groups = alone / "optimizer_shards" / "groups.pt"
    torch.save({"param_groups": [], "places": {}, "other": Hostile(trace)}, groups)
    with pytest.raises(ValueError, match="could run code"):
        load_alone(alone)
    groups.write_bytes(pickle.dumps(Hostile(trace)))
    with pytest.raises(ValueError):
        load_alone(alone)
    (alone / "model_shards" / ".metadata").write_bytes(pickle.dumps(Hostile(trace)))
    load_shards(alone, build(1))  # torch's own metadata is not read
    assert not trace.exists()


@pytest.mark.parametrize("plain", [[], {"param_groups": [], "places": {}, "other": {}}, {"places": []}])
def test_groups_that_do_not_describe_the_tensors_are_refused(alone, plain):
    torch.save(plain, alone / "optimizer_shards" / "groups.pt")
    with pytest.raises(ValueError, match="is damaged"):
        load_alone(alone)


def test_another_model_is_refused_or_reported(alone):
    other = torch.nn.Linear(2, 2)
    result = load_shards(alone, other)
    assert list(result.missing_keys) == ["weight", "bias"]
    assert "embed.weight" in result.unexpected_keys
    with pytest.raises(ValueError, match="this one does not"):
        load_shards(alone, other, torch.optim.AdamW(other.parameters()))


def test_other_groups_are_refused(alone):
    model = build(1)
    optimizer = torch.optim.AdamW([{"params": [parameter]} for parameter in model.parameters()])
    with pytest.raises(ValueError, match="group"):
        load_shards(alone, model, optimizer)


def test_states_that_are_no_tensors_and_momenta_of_other_shapes_survive(tmp_path):
    model = build(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = next(iter(model.parameters()))
    optimizer.state[first] = {"history": [1, 2.5], "row": torch.arange(3.0), "half": torch.ones(2).bfloat16()}
    save_shards(tmp_path, model, optimizer)
    again = build(2)
    loaded = torch.optim.SGD(again.parameters(), lr=0.2)
    load_shards(tmp_path, again, loaded)
    found = loaded.state[next(iter(again.parameters()))]
    assert found["history"] == [1, 2.5]
    assert torch.equal(found["row"], torch.arange(3.0))
    assert torch.equal(found["half"].float(), torch.ones(2))
