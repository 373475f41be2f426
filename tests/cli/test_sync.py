"""`footplate sync DIR --to NAME`, on real runs."""

from __future__ import annotations

import argparse

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tiny
from footplate.cli import sync


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    sync.add_command(parser.add_subparsers())
    options = parser.parse_args(["sync", *words])
    return int(options.run(options))


@pytest.fixture
def trained(tmp_path):
    data = tiny.regression_data()
    trainer = tiny.build_trainer(tmp_path, tiny.Regression(), data, max_steps=4, logging_steps=1)
    trainer.train()
    return trainer


def test_a_run_is_sent_and_said_to_be_sent_and_not_sent_again(trained, tmp_path, capsys):
    capsys.readouterr()
    assert run(str(tmp_path), "--to", "tensorboard") == 0
    said = capsys.readouterr().out
    assert said.startswith("Sent 5 of 5 logs to tensorboard, run runs/")
    assert run(str(tmp_path), "--to", "tensorboard") == 0
    assert capsys.readouterr().out.startswith("tensorboard has all 5 logs already, run runs/")
    events = EventAccumulator(str(next((tmp_path / "runs").iterdir()))).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]


def test_a_tracker_that_fails_is_one_line_and_the_others_have_their_turn(
    trained, tmp_path, capsys, monkeypatch
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "file" / "runs"))
    capsys.readouterr()
    assert run(str(tmp_path), "--to", "tensorboard", "--to", "tensorbord") == 1
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("footplate: tensorboard did not take the run: ")
    assert lines[1].startswith(
        "footplate: tensorbord did not take the run: report_to='tensorbord' is not a tracker"
    )
    assert said.out == ""


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        run(str(tmp_path / "missing"), "--to", "tensorboard")
    with pytest.raises(ValueError, match=r"no events.jsonl"):
        run(str(tmp_path), "--to", "tensorboard")


def test_a_tracker_must_be_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(str(tmp_path))
    assert "--to" in capsys.readouterr().err
