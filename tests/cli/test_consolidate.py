"""`footplate consolidate DIR`, on checkpoints as runs write them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from footplate.checkpoint import seal, staging_folder, verify_checkpoint
from footplate.checkpoint.sharded import save_shards
from footplate.cli.main import main
from footplate.words import format_bytes
from sharded import build


def write_checkpoint(folder, seed):
    """A sealed checkpoint with shards."""
    staging = staging_folder(folder)
    save_shards(staging, build(seed))
    step = int(folder.name.rpartition("-")[2])
    (staging / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    seal(staging, folder)


@pytest.fixture
def run_folder(tmp_path):
    for step in (2, 4):
        write_checkpoint(tmp_path / f"checkpoint-{step}", step)
    return tmp_path


def holds_weights_of(path, seed):
    expected = build(seed).state_dict()
    found = load_file(path)
    return all(bool((found[name] == expected[name]).all()) for name in found) and "embed.weight" in found


def test_a_checkpoint_gets_its_weights_and_stays_intact(run_folder, capsys):
    checkpoint = run_folder / "checkpoint-2"
    assert main(["consolidate", str(checkpoint)]) == 0
    written = checkpoint / "model.safetensors"
    assert capsys.readouterr().out == f"{written}  {format_bytes(written.stat().st_size)}\n"
    assert holds_weights_of(written, 2)
    assert verify_checkpoint(checkpoint).is_intact  # the manifest lists it
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert manifest["files"]["model.safetensors"]["size"] == written.stat().st_size
    assert main(["consolidate", str(checkpoint)]) == 0  # and again
    assert verify_checkpoint(checkpoint).is_intact


def test_of_a_run_the_newest_intact_one_is_taken(run_folder, tmp_path):
    assert main(["consolidate", str(run_folder), "--output", str(tmp_path / "out")]) == 0
    assert holds_weights_of(tmp_path / "out" / "model.safetensors", 4)
    next((run_folder / "checkpoint-4" / "model_shards").glob("*.safetensors")).unlink()
    assert main(["consolidate", str(run_folder), "--output", str(tmp_path / "out")]) == 0
    assert holds_weights_of(tmp_path / "out" / "model.safetensors", 2)


def test_a_named_checkpoint_that_was_changed_is_used_and_this_is_said(run_folder, capsys):
    checkpoint = run_folder / "checkpoint-2"
    (checkpoint / "trainer_state.json").unlink()
    assert main(["consolidate", str(checkpoint)]) == 0
    assert "differs from what was saved: " in capsys.readouterr().err


def test_what_has_no_shards_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for folder, text in ((tmp_path / "empty", "holds no shards"), (tmp_path / "absent", "is not a folder")):
        assert main(["consolidate", str(folder)]) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1


def test_a_run_without_an_intact_checkpoint_is_refused(tmp_path, capsys):
    (tmp_path / "checkpoint-3").mkdir()
    assert main(["consolidate", str(tmp_path)]) == 2
    assert "is intact" in capsys.readouterr().err


def test_it_needs_neither_torch_nor_transformers(run_folder):
    program = (
        "import sys\n"
        "from footplate.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(code, 'torch' in sys.modules, 'transformers' in sys.modules)\n"
    )
    words = ["consolidate", str(run_folder)]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False False"
