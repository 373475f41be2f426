"""Reading folders: whole, then only what is new."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import transformers

import tiny
from footplate.report.source import RunSource, find_state_file


def steps_of(source):
    return source.data.curves["train", "loss"].steps


def test_only_new_lines_are_read_the_second_time(written):
    written.begin()
    written.train(1, 10)
    source = RunSource(written.folder)
    assert source.update()
    assert not source.update()
    offset = source._offset
    written.log(11, loss=1.0)
    assert source.update()
    assert steps_of(source) == list(range(1, 12))
    assert source._offset > offset == written.path.read_bytes()[:offset].rfind(b"\n") + 1


def test_a_line_still_being_written_is_read_when_it_is_whole(written):
    written.begin()
    written.log(1, loss=1.0)
    line = json.dumps({"kind": "log", "step": 2, "logs": {"loss": 0.5}}).encode() + b"\n"
    source = RunSource(written.folder)
    for cut in range(len(line)):
        with open(written.path, "ab") as file:
            file.write(line[cut : cut + 1])
        source.update()
        assert steps_of(source) == ([1, 2] if cut == len(line) - 1 else [1])


def test_a_line_that_a_kill_cut_short_is_passed_over(written):
    written.begin()
    with open(written.path, "ab") as file:
        file.write(b'{"kind": "log", "step": 1, "lo\n[1, 2]\n\xff\xfe\n')
    written.log(2, loss=1.0)
    source = RunSource(written.folder)
    source.update()
    assert steps_of(source) == [2]


def test_a_journal_that_was_replaced_is_read_anew(written):
    written.begin()
    written.train(1, 10)
    source = RunSource(written.folder)
    source.update()
    written.path.unlink()
    written.begin("second")
    written.log(1, loss=5.0)
    source.update()
    assert steps_of(source) == [1]


def test_a_run_of_transformers_is_shown_from_its_log_history(tmp_path):
    trainer = tiny.build_trainer(
        tmp_path,
        tiny.gpt(),
        tiny.causal_data(24),
        tiny.causal_data(8),
        library=transformers,
        max_steps=6,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=3,
    )
    trainer.train()
    source = RunSource(tmp_path)
    source.check()
    assert find_state_file(tmp_path) == tmp_path / "checkpoint-6" / "trainer_state.json"
    assert source.update()
    assert not source.update()
    logged = {e["step"]: e["loss"] for e in trainer.state.log_history if "loss" in e}
    plain = source.data.to_plain(100)
    curves = {(c["split"], c["metric"]): c for c in plain["curves"]}
    assert curves["train", "loss"]["steps"] == list(logged)
    assert curves["train", "loss"]["values"] == pytest.approx(list(logged.values()), rel=1e-5)
    assert curves["eval", "loss"]["steps"] == [3, 6]
    assert [c["step"] for c in plain["checkpoints"]] == [3, 6]
    assert (plain["step"], plain["max_steps"]) == (6, 6)

    trainer.save_state()  # beside the checkpoints, it knows the end
    source.update()
    assert source.data.to_plain(100)["status"] == "finished"


def test_a_folder_without_a_run_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"holds neither events\.jsonl nor trainer_state\.json"):
        RunSource(tmp_path).check()
    with pytest.raises(ValueError, match="is not a folder"):
        RunSource(tmp_path / "nowhere").check()


def test_a_state_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    (tmp_path / "trainer_state.json").write_text("{")
    with pytest.raises(ValueError, match=r"trainer_state\.json cannot be read"):
        RunSource(tmp_path).update()


def test_a_run_that_has_vanished_keeps_what_was_read(finished):
    source = RunSource(finished.folder)
    source.update()
    shutil.rmtree(finished.folder)
    assert not source.update()
    assert len(steps_of(source)) == 100


def test_a_folder_of_runs_names_them(written):
    written.begin()
    with pytest.raises(ValueError, match=r"There are runs inside: \S+/run$"):
        RunSource(written.folder.parent).check()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_journal_or_state_that_is_no_file_is_not_read(tmp_path, kind):
    for name in ("events.jsonl", "checkpoint-1/trainer_state.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert not RunSource(tmp_path).update()
    with pytest.raises(ValueError, match="holds neither"):
        RunSource(tmp_path).check()


def test_a_state_nested_beyond_reason_is_an_error_that_names_it(tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"log_history": ' + "[" * 500 + "]" * 500 + "}")
    with pytest.raises(ValueError, match=r"trainer_state\.json cannot be read.*nested"):
        RunSource(tmp_path).update()


def test_steps_are_written_in_plain_digits(tmp_path):
    for name in ("checkpoint-٣", "checkpoint-9", "checkpoint-1²"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text('{"global_step": 9}')
    source = RunSource(tmp_path)
    assert source.update()
    assert list(source.data.saves) == [9]
