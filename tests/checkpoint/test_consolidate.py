"""Shards joined into whole weights, without torch and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from footplate.checkpoint.consolidate import consolidate, list_files
from footplate.checkpoint.shard_layout import write_index
from footplate.checkpoint.sharded import save_shards
from footplate.checkpoint.weights import load_weights
from sharded import build

KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.float8_e4m3fn)


def write_parts(folder: Path, tensors, dims, num_processes=3):
    """Write shards as processes would, along any dimension; a tensor without one is in the first file."""
    folder = folder / "model_shards"
    folder.mkdir(parents=True)
    for rank in range(num_processes):
        parts, offsets = {}, {}
        for name, tensor in tensors.items():
            dim = dims.get(name)
            chunks = [tensor] if dim is None else list(tensor.chunk(num_processes, dim))
            if rank < len(chunks):
                place = [0] * tensor.ndim
                if dim is not None:
                    place[dim] = sum(chunk.shape[dim] for chunk in chunks[:rank])
                parts[name] = chunks[rank].contiguous().clone()
                offsets[name] = {"saved_offsets": place}
        file = folder / f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors"
        save_file(parts, file, metadata={"DCP_SHARDING_INFO": json.dumps(offsets)})
    aliases = {"other": "rows"} if "rows" in tensors else {}
    write_index(folder, {name: tensor.shape for name, tensor in tensors.items()}, aliases)


def make_tensors():
    generator = torch.Generator().manual_seed(0)
    tensors = {f"kind{n}": torch.randn(7, 4, generator=generator).to(kind) for n, kind in enumerate(KINDS)}
    rows, columns = torch.randn(8, 5, generator=generator), torch.randn(3, 8, 2, generator=generator)
    return {
        **tensors,
        "rows": rows,
        "columns": columns,
        "scalar": torch.tensor(3.5),
        "none": torch.ones(0, 4),
    }


@pytest.fixture
def checkpoint(tmp_path):
    tensors = make_tensors()
    dims = {name: 0 for name in tensors if name.startswith("kind")} | {"rows": 0, "columns": 1}
    write_parts(tmp_path / "checkpoint", tensors, dims)
    return tmp_path / "checkpoint"


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name].view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8)), name


def test_every_kind_of_tensor_is_whole_again_whichever_way_it_was_split(checkpoint):
    written = consolidate(checkpoint)
    assert written == checkpoint / "model.safetensors"
    assert_same(load_file(written), make_tensors())
    with safe_open(written, framework="pt") as file:
        assert file.metadata() == {"format": "pt", "other": "rows"}


def test_large_weights_are_several_files_with_an_index(checkpoint, tmp_path):
    index = consolidate(checkpoint, tmp_path / "out", max_file_bytes=300)
    files = list_files(index)
    assert files[-1] == index == tmp_path / "out" / "model.safetensors.index.json"
    assert len(files) > 3
    joined = {name: tensor for file in files[:-1] for name, tensor in load_file(file).items()}
    assert_same(joined, make_tensors())
    total = sum(tensor.nbytes for tensor in joined.values())
    assert json.loads(index.read_text())["metadata"]["total_size"] == total
    consolidate(checkpoint, tmp_path / "out")  # as one file: those of the first call are gone
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def test_a_model_of_transformers_is_loaded_from_another_folder(tmp_path):
    config = transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=16, n_positions=8)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    save_shards(tmp_path / "checkpoint-1", model)
    config.save_pretrained(tmp_path / "checkpoint-1")
    (tmp_path / "checkpoint-1" / "optimizer.pt").write_bytes(b"state")
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text("{}")
    consolidate(tmp_path / "checkpoint-1", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out")
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_a_model_with_tied_weights_loads_all_its_names(tmp_path):
    model, other = build(1), build(2)
    save_shards(tmp_path, model)
    consolidate(tmp_path)
    result = load_weights(other, tmp_path)
    assert list(result.missing_keys) == list(result.unexpected_keys) == []
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_memory_stays_small_and_torch_is_not_loaded(tmp_path):
    tensors = {f"part{n}": torch.zeros(1024, 4096) for n in range(8)}  # 16 MB each
    write_parts(tmp_path, tensors, dict.fromkeys(tensors, 0))
    program = (
        "import resource, sys\n"
        "from footplate.checkpoint.consolidate import consolidate\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "consolidate(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    kilobytes, has_torch = done.stdout.split()
    assert int(kilobytes) < 60_000  # of 134 MB
    assert has_torch == "False"


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_missing_file_raises_and_nothing_is_written(checkpoint, missing):
    next((checkpoint / "model_shards").glob(f"shard-0000{missing}*")).unlink()
    with pytest.raises(ValueError, match="missing"):
        consolidate(checkpoint)
    assert not (checkpoint / "model.safetensors").exists()


def test_a_folder_without_shards_raises(tmp_path):
    with pytest.raises(ValueError, match="holds no shards"):
        consolidate(tmp_path)


def test_a_place_far_outside_is_refused_before_anything_is_allocated(checkpoint):
    file = next((checkpoint / "model_shards").glob("shard-00001*"))
    tensors = load_file(file)
    lies = {name: {"saved_offsets": [10**15] * tensor.ndim} for name, tensor in tensors.items()}
    save_file(tensors, file, metadata={"DCP_SHARDING_INFO": json.dumps(lies)})
    with pytest.raises(ValueError, match="do not make a whole"):
        consolidate(checkpoint)
