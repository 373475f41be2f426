"""A run told to TensorBoard afterwards, from its journal: all of it, the rest of it, and nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tiny
from footplate import Trainer, TrainerCallback
from footplate.integrations.guard import Guard
from footplate.integrations.journal import JOURNAL_NAME, Journal, read_events
from footplate.integrations.ledger import Ledger
from footplate.integrations.replay import Replay, replay_run
from footplate.integrations.tensorboard import TensorBoardCallback


def build(folder: Path, *callbacks: Any, **settings: Any) -> Trainer:
    often = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    chosen = {"max_steps": 8, "logging_steps": 1, "learning_rate": 0.05, **often}
    args = tiny.arguments(folder, **{**chosen, **settings})
    data = tiny.regression_data()
    return Trainer(
        tiny.Regression(), args, train_dataset=data, eval_dataset=data[:8], callbacks=list(callbacks)
    )


class Failing(TensorBoardCallback):
    """TensorBoard that stops answering at a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.guard = Guard(self.name, delays=(0.01,))
        self.step = step

    def write(self, values: dict[str, Any], step: int) -> None:
        if step >= self.step:
            raise ConnectionError("gone")
        super().write(values, step)


class CrashAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise RuntimeError("crash")


def load(folder: Path) -> EventAccumulator:
    (run,) = {file.parent for file in folder.rglob("events.out.tfevents.*")}
    return EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = load(folder)
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def logged(trainer: Trainer) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for entry in trainer.state.log_history:
        for key, value in entry.items():
            tag = f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}"
            if key != "step":
                found.setdefault(tag, []).append((entry["step"], pytest.approx(value, rel=1e-6)))
    return found


def test_a_run_without_trackers_is_told_as_a_whole(tmp_path):
    trainer = build(tmp_path)
    trainer.train()
    trainer._event("on_samples", samples=[{"input": "a"}], source="eval")
    trainer.predict(tiny.regression_data()[:8], metric_key_prefix="ood")
    num_logs = len(trainer.state.log_history)
    done = replay_run(tmp_path, TensorBoardCallback())
    assert (done.num_sent, done.num_logs) == (num_logs, num_logs)
    found = curves(tmp_path)
    assert {tag: points for tag, points in found.items() if not tag.startswith("ood/")} == logged(trainer)
    assert [step for step, _ in found["ood/loss"]] == [8]
    events = load(tmp_path)
    assert "eval/samples/text_summary" in events.Tags()["tensors"]
    assert len(events.PluginTagToContent("hparams")) == 3
    shown = json.loads(events.Tensors("args/text_summary")[0].tensor_proto.string_val[0])
    assert shown["learning_rate"] == 0.05


def test_a_replay_gives_what_an_undisturbed_tracker_gave(tmp_path):
    tracker = TensorBoardCallback()
    build(tmp_path / "live", tracker).train()
    assert tracker.finish(30)
    os.makedirs(tmp_path / "told")
    journal = (tmp_path / "live" / JOURNAL_NAME).read_bytes()
    (tmp_path / "told" / JOURNAL_NAME).write_bytes(journal)
    replay_run(tmp_path / "told", TensorBoardCallback())
    assert curves(tmp_path / "told") == curves(tmp_path / "live")


@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_tracker_that_gave_up_gets_the_rest_in_the_same_run(tmp_path, step):
    tracker = Failing(step)
    trainer = build(tmp_path, tracker)
    trainer.train()
    assert not tracker.finish(10)
    entry = Ledger(tmp_path, "tensorboard").find(tracker.run_id)
    num_logs = len(trainer.state.log_history)
    done = replay_run(tmp_path, TensorBoardCallback())
    assert done == Replay(num_logs - entry.num_sent, num_logs, entry.service_id)
    assert curves(tmp_path) == logged(trainer)


def test_a_second_replay_sends_nothing(tmp_path):
    trainer = build(tmp_path)
    trainer.train()
    first = replay_run(tmp_path, TensorBoardCallback())
    before = sorted(file.name for file in tmp_path.rglob("events*"))
    assert replay_run(tmp_path, TensorBoardCallback()) == Replay(0, first.num_logs, first.service_id)
    assert sorted(file.name for file in tmp_path.rglob("events*")) == before
    assert curves(tmp_path) == logged(trainer)


def test_a_live_tracker_that_took_everything_gets_nothing(tmp_path):
    tracker = TensorBoardCallback()
    build(tmp_path, tracker).train()
    assert tracker.finish(30)
    assert replay_run(tmp_path, TensorBoardCallback()).num_sent == 0


def test_points_past_a_resume_are_not_told(tmp_path):
    with pytest.raises(RuntimeError, match="crash"):
        build(tmp_path, CrashAt(7)).train()
    resumed = build(tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    replay_run(tmp_path, TensorBoardCallback())
    assert curves(tmp_path) == logged(resumed)


def test_a_replay_that_is_broken_off_goes_on_where_it_was(tmp_path):
    trainer = build(tmp_path)
    trainer.train()
    with pytest.raises(ConnectionError):
        replay_run(tmp_path, Failing(5))
    done = replay_run(tmp_path, TensorBoardCallback())
    assert 0 < done.num_sent < done.num_logs
    assert curves(tmp_path) == logged(trainer)


def test_a_run_that_was_copied_elsewhere_is_told_from_there(tmp_path):
    trainer = build(tmp_path / "a")
    trainer.train()
    os.rename(tmp_path / "a", tmp_path / "b")
    replay_run(tmp_path / "b", TensorBoardCallback())
    assert not (tmp_path / "a").exists()
    assert curves(tmp_path / "b") == logged(trainer)


def test_a_last_line_that_is_being_written_is_left_for_the_next_time(tmp_path):
    trainer = build(tmp_path)
    trainer.train()
    path = tmp_path / JOURNAL_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    num_logs = len(trainer.state.log_history)
    cut = next(i for i in reversed(range(len(lines))) if b'"kind": "log"' in lines[i])
    path.write_bytes(b"".join(lines[:cut]) + lines[cut][:40])
    assert replay_run(tmp_path, TensorBoardCallback()).num_sent == num_logs - 1
    path.write_bytes(b"".join(lines))
    assert replay_run(tmp_path, TensorBoardCallback()).num_sent == 1
    assert curves(tmp_path) == logged(trainer)


def test_checkpoints_that_are_gone_are_passed_over(tmp_path):
    kept = []

    class Keeping(TensorBoardCallback):
        def write_checkpoint(self, folder: str, step: int) -> None:
            kept.append((Path(folder), step))

    build(tmp_path, save_total_limit=1).train()
    replay_run(tmp_path, Keeping())
    assert kept == [(tmp_path / "checkpoint-8", 8)]


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no events.jsonl in .* Give the output_dir of a run"):
        replay_run(tmp_path, TensorBoardCallback())
    Journal(tmp_path).write("log", step=1, logs={})
    with pytest.raises(ValueError, match="does not say how a run began"):
        replay_run(tmp_path, TensorBoardCallback())


def test_a_run_that_is_going_on_and_tells_the_tracker_itself_is_refused(tmp_path):
    tracker = TensorBoardCallback()
    with pytest.raises(RuntimeError, match="crash"):
        build(tmp_path, tracker, CrashAt(5)).train()
    assert tracker.finish(30)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        rewrite_process(tmp_path, other.pid)
        with pytest.raises(
            ValueError, match=rf"is going on \(process {other.pid}\) and reports to tensorboard"
        ):
            replay_run(tmp_path, TensorBoardCallback())
    finally:
        other.communicate(b"\n")
    assert replay_run(tmp_path, TensorBoardCallback()).num_sent == 0  # that process is gone


def test_a_run_that_is_going_on_but_has_given_up_the_tracker_may_be_told(tmp_path):
    tracker = Failing(3)
    with pytest.raises(RuntimeError, match="crash"):
        build(tmp_path, tracker, Slow(), CrashAt(5)).train()
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        rewrite_process(tmp_path, other.pid)
        assert replay_run(tmp_path, TensorBoardCallback()).num_sent > 0
    finally:
        other.communicate(b"\n")


class Slow(TrainerCallback):
    """Waits at each step until the tracker has done, well or ill."""

    def on_step_end(self, args: Any, state: Any, control: Any, trainer: Any = None, **kwargs: Any) -> None:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, TensorBoardCallback):
                callback.wait_for_service()


def rewrite_process(folder: Path, process: int) -> None:
    """Make it another process's run."""
    events = list(read_events(folder / JOURNAL_NAME))
    events[0]["machine"]["process"] = process
    (folder / JOURNAL_NAME).write_text("".join(json.dumps(event) + "\n" for event in events))


# ---- a journal that somebody else wrote ----


class Noting(TensorBoardCallback):
    """TensorBoard that notes which folders it is offered."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[str] = []

    def write_checkpoint(self, folder: str, step: int) -> None:
        self.offered.append(folder)


def edit_journal(folder: Path, change: Any) -> None:
    path = folder / JOURNAL_NAME
    events = list(read_events(path))
    for event in events:
        change(event)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def files_outside(folder: Path) -> set[str]:
    return {str(path) for path in folder.parent.rglob("*") if not path.is_relative_to(folder)}


@pytest.mark.parametrize(
    "name", ["secret", "../secret", "{out}/secret", "checkpoint-2/..", ".", "linked", "", "trackers"]
)
def test_only_checkpoints_inside_the_runs_folder_are_offered(tmp_path, caplog, name):
    folder = tmp_path / "run"
    build(folder).train()
    for place in (tmp_path / "secret", folder / "secret", tmp_path / "checkpoint-9"):
        place.mkdir()
        (place / "key").write_text("private")
    (folder / "linked").symlink_to(tmp_path / "secret")

    def change(event: dict[str, Any]) -> None:
        if event["kind"] == "save" and event["step"] == 4:
            event["folder"] = name.format(out=tmp_path)

    edit_journal(folder, change)
    tracker = Noting()
    replay_run(folder, tracker)
    assert [Path(path).name for path in tracker.offered] == ["checkpoint-2", "checkpoint-6", "checkpoint-8"]
    assert "is not sent: it is not a checkpoint inside" in caplog.text


def test_a_checkpoint_that_is_or_holds_a_link_out_of_the_folder_is_not_offered(tmp_path):
    folder = tmp_path / "run"
    build(folder).train()
    (tmp_path / "key").write_text("private")
    (folder / "checkpoint-2" / "key").symlink_to(tmp_path / "key")
    subprocess.run(["mv", str(folder / "checkpoint-4"), str(tmp_path / "elsewhere")], check=True)
    (folder / "checkpoint-4").symlink_to(tmp_path / "elsewhere")
    tracker = Noting()
    replay_run(folder, tracker)
    assert [Path(path).name for path in tracker.offered] == ["checkpoint-6", "checkpoint-8"]


@pytest.mark.parametrize("field", ["logging_dir", "trial"])
@pytest.mark.parametrize("value", ["{out}/elsewhere", "../elsewhere", "../../elsewhere"])
def test_nothing_is_written_outside_the_runs_folder(tmp_path, monkeypatch, field, value):
    folder = tmp_path / "run"
    build(folder, save_strategy="no").train()
    monkeypatch.chdir(folder)
    edit_journal(
        folder,
        lambda event: event.update({field: value.format(out=tmp_path)}) if event["kind"] == "begin" else None,
    )
    before = files_outside(folder)
    replay_run(folder, TensorBoardCallback())
    assert files_outside(folder) == before
    assert load(folder).Scalars("train/loss")


def test_a_ledger_that_names_another_folder_is_not_followed(tmp_path):
    folder = tmp_path / "run"
    build(folder, save_strategy="no").train()
    run_id = next(read_events(folder / JOURNAL_NAME))["run_id"]
    Ledger(folder, "tensorboard").note(run_id, str(tmp_path / "elsewhere"), 1)
    before = files_outside(folder)
    replay_run(folder, TensorBoardCallback())
    assert files_outside(folder) == before


def test_a_logging_dir_inside_the_folder_is_used(tmp_path):
    folder = tmp_path / "run"
    build(folder, logging_dir=str(folder / "curves"), save_strategy="no").train()
    replay_run(folder, TensorBoardCallback())
    assert list((folder / "curves").glob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": 5},
        {"name": None},
        {"settings": [1]},
        {"machine": "x"},
        {"max_steps": "many"},
        {"logging_dir": {}},
    ],
)
def test_a_run_that_is_described_wrongly_is_refused(tmp_path, change):
    build(tmp_path, save_strategy="no").train()
    edit_journal(tmp_path, lambda event: event.update(change) if event["kind"] == "begin" else None)
    with pytest.raises(ValueError, match=r"does not (describe a run|say how a run began)"):
        replay_run(tmp_path, TensorBoardCallback())


def test_lines_that_no_journal_has_are_left_out(tmp_path):
    build(tmp_path, save_strategy="no").train()
    expected = replay_run(tmp_path, TensorBoardCallback()).num_logs
    bad = [
        {"kind": "log"},
        {"kind": "log", "step": "x", "logs": {}, "prefixes": []},
        {"kind": "save", "step": 3},
    ]
    worse = [{"kind": "log", "step": 1, "logs": [], "prefixes": []}, {"kind": "end"}, {"kind": ["log"]}]
    with open(tmp_path / JOURNAL_NAME, "ab") as file:
        for event in [*bad, *worse]:
            file.write(json.dumps(event).encode() + b"\n")
        file.write(b'{"kind": "log", "logs": ' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}\n")
        file.write(b"[" * 100_000 + b"\n")
    assert replay_run(tmp_path, TensorBoardCallback()).num_logs == expected


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_journal_that_is_no_file_is_refused_at_once(tmp_path, kind):
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink("/dev/zero", path)}
    make[kind](tmp_path / JOURNAL_NAME)
    with pytest.raises(ValueError, match=r"no events\.jsonl"):
        replay_run(tmp_path, TensorBoardCallback())
