"""`footplate checkpoints DIR`, on checkpoints that real runs wrote and something then damaged."""

from __future__ import annotations

import json
import shutil

import pytest
import transformers

import footplate
import tiny
from footplate.checkpoint import find_last_checkpoint, seal, staging_folder
from footplate.checkpoint.arguments import save_arguments
from footplate.cli.checkpoints import list_checkpoints
from footplate.cli.main import main

STEPS = (2, 4, 6)


def train(folder, library=footplate, **settings):
    often = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    trainer = tiny.build_trainer(
        folder,
        tiny.Regression(),
        tiny.regression_data(24),
        tiny.regression_data(8, seed=1),
        library=library,
        **{"max_steps": 6, "learning_rate": 0.1, "load_best_model_at_end": True, **often, **settings},
    )
    trainer.train()
    return trainer


def put_seal(folder):
    """Write a checkpoint again as a sealed one."""
    staging = staging_folder(folder)
    shutil.copytree(folder, staging, dirs_exist_ok=True)
    seal(staging, folder)


@pytest.fixture
def runs(tmp_path):
    train(tmp_path)
    for step in STEPS:
        put_seal(tmp_path / f"checkpoint-{step}")
    return tmp_path


def damage(folder):
    file = folder / "optimizer.pt"
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(contents)


def test_each_checkpoint_has_step_size_metric_and_verdict(runs):
    entries = list_checkpoints(runs)
    assert [(entry.name, entry.step) for entry in entries] == [(f"checkpoint-{step}", step) for step in STEPS]
    assert [entry.is_last for entry in entries] == [False, False, True]
    assert all(entry.is_intact and entry.has_manifest and entry.reason == "" for entry in entries)
    sizes = [sum(f.stat().st_size for f in (runs / entry.name).iterdir()) for entry in entries]
    assert [entry.size_bytes for entry in entries] == sizes
    state = json.loads((runs / "checkpoint-6" / "trainer_state.json").read_text())
    losses = {log["step"]: log["eval_loss"] for log in state["log_history"] if "eval_loss" in log}
    assert {entry.step: entry.metric for entry in entries} == losses
    assert {entry.metric_name for entry in entries} == {"eval_loss"}
    assert [entry.step for entry in entries if entry.is_best] == [min(losses, key=losses.get)]


def test_a_damaged_one_is_shown_with_its_reason_and_is_not_the_last(runs, capsys):
    damage(runs / "checkpoint-6")
    (runs / "checkpoint-2" / "trainer_state.json").unlink()
    entries = list_checkpoints(runs)
    assert [entry.is_intact for entry in entries] == [False, True, False]
    assert [entry.is_last for entry in entries] == [False, True, False]
    assert find_last_checkpoint(runs).endswith("checkpoint-4")
    assert entries[0].metric is None
    assert main(["checkpoints", str(runs)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].endswith("damaged: trainer_state.json is missing")
    assert rows[3].endswith("damaged: optimizer.pt has changed since it was written")


def test_the_last_is_the_one_that_a_resume_takes_not_that_of_an_earlier_run(runs):
    train(runs, max_steps=2)
    entries = list_checkpoints(runs)
    assert [entry.name for entry in entries if entry.is_last] == ["checkpoint-2"]
    assert find_last_checkpoint(runs).endswith("checkpoint-2")


def test_the_table_is_for_people(runs, capsys):
    assert main(["checkpoints", str(runs)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["checkpoint", "step", "size", "metric", "state"]
    assert [row.split()[:2] for row in rows] == [[f"checkpoint-{step}", str(step)] for step in STEPS]
    assert all(row.endswith("intact") and " kB" in row and "eval_loss" in row for row in rows)
    assert "last" in rows[2]
    assert sum("best" in row for row in rows) == 1


def test_json_holds_the_same(runs, capsys):
    assert main(["checkpoints", str(runs), "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["step"] for entry in entries] == list(STEPS)
    assert entries[2]["is_last"] is True
    assert entries[0].keys() == {
        *("name", "step", "is_best", "is_last", "size_bytes", "metric_name", "metric"),
        *("is_intact", "has_manifest", "reason"),
    }


def test_the_metric_is_the_one_that_decides(tmp_path):
    train(tmp_path, metric_for_best_model="eval_runtime", greater_is_better=False)
    assert {entry.metric_name for entry in list_checkpoints(tmp_path)} == {"eval_runtime"}


def test_checkpoints_of_transformers_are_listed_too(tmp_path, capsys):
    train(tmp_path, library=transformers)
    entries = list_checkpoints(tmp_path)
    assert [(entry.step, entry.is_intact, entry.has_manifest) for entry in entries] == [
        (step, True, False) for step in STEPS
    ]
    assert sum(entry.is_best for entry in entries) == 1
    assert all(entry.metric is not None for entry in entries)
    main(["checkpoints", str(tmp_path)])
    assert "readable, without a manifest" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"log_history": 3}', '{"log_history": [1, {"eval_loss": "x"}]}']
)
def test_a_state_that_makes_no_sense_breaks_nothing(text, runs, capsys):
    (runs / "checkpoint-6" / "trainer_state.json").write_text(text)
    assert main(["checkpoints", str(runs)]) == 0
    assert "damaged: trainer_state.json" in capsys.readouterr().out


def test_numbers_and_names_that_no_run_writes_reach_no_terminal(runs, capsys):
    path = runs / "checkpoint-6" / "trainer_state.json"
    state = json.loads(path.read_text())
    for entry in state["log_history"]:
        entry["eval_loss"] = 10**400
    path.write_text(json.dumps(state))
    save_arguments({"metric_for_best_model": "eval_\x1b[31m"}, runs / "checkpoint-4")
    path = runs / "checkpoint-4" / "trainer_state.json"
    state = json.loads(path.read_text())
    state["log_history"][-1]["eval_\x1b[31m"] = 1.5
    path.write_text(json.dumps(state))
    assert main(["checkpoints", str(runs)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "eval_?[31m 1.5" in printed


def test_nothing_to_resume_from_is_told_by_the_exit_code(runs, tmp_path_factory, capsys):
    empty = tmp_path_factory.mktemp("empty")
    assert main(["checkpoints", str(empty)]) == 1
    assert "There are no checkpoints in" in capsys.readouterr().out
    assert main(["checkpoints", str(empty), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []
    for step in STEPS:
        damage(runs / f"checkpoint-{step}")
    assert main(["checkpoints", str(runs)]) == 1


def test_a_folder_that_is_none_is_one_line(tmp_path, capsys):
    assert main(["checkpoints", str(tmp_path / "nowhere")]) == 2
    assert (
        capsys.readouterr().err
        == f"footplate: '{tmp_path / 'nowhere'}' is not a folder. Give the output_dir of a run.\n"
    )


def test_a_folder_of_runs_lists_each_of_them(tmp_path, capsys):
    for name in ("first", "second"):
        train(tmp_path / name, max_steps=2)
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "first")
    capsys.readouterr()
    assert main(["checkpoints", str(tmp_path)]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [str(tmp_path / "first"), str(tmp_path / "second")]
    assert all("checkpoint-2" in block and "intact" in block for block in blocks)
    assert main(["checkpoints", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {name: [entry["step"] for entry in entries] for name, entries in listed.items()} == {
        "first": [2],
        "second": [2],
    }
    damage(tmp_path / "second" / "checkpoint-2")
    assert main(["checkpoints", str(tmp_path)]) == 1  # one of them cannot be resumed
