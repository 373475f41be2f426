"""What every tracker does: once per log, under headings, one run through evaluations, kills and resumes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import footplate
import tiny
from footplate import Trainer, TrainerCallback, TrainerControl, TrainerState
from footplate.integrations.base import TrackerCallback
from footplate.integrations.guard import Guard
from footplate.integrations.ledger import Ledger
from footplate.integrations.run import Run
from footplate.integrations.values import final_metrics


class Recorder(TrackerCallback):
    """A service that lives in this process and remembers everything."""

    name = "recorder"
    package = "torch"

    def __init__(self, fails_from: int | None = None) -> None:
        super().__init__()
        self.guard = Guard(self.name, delays=(0.01,))
        self.fails_from = fails_from
        self.runs: list[Run] = []
        self.points: list[tuple[int, dict[str, Any]]] = []
        self.calls: list[Any] = []

    def open(self, run: Run) -> str | None:
        self.models = [*getattr(self, "models", []), run.live_model]
        self.runs.append(run)
        self.calls.append("open")
        return run.service_id or f"id-{run.run_id}"

    def write(self, values: dict[str, Any], step: int) -> None:
        assert threading.current_thread().name == "footplate-recorder"
        if self.fails_from is not None and step >= self.fails_from:
            raise ConnectionError("gone")
        self.points.append((step, values))

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        self.calls.append(("samples", rows, source, step))

    def write_checkpoint(self, folder: str, step: int) -> None:
        assert Path(folder, "manifest.json").is_file()
        self.calls.append(("checkpoint", Path(folder).name, step))

    def end(self, metrics: dict[str, Any], step: int) -> None:
        self.calls.append(("end", metrics, step))

    def close(self) -> None:
        self.calls.append("close")

    def series(self, key: str) -> list[tuple[int, Any]]:
        return [(step, values[key]) for step, values in self.points if key in values]


def build(folder: Path, *callbacks: Any, **settings: Any) -> Trainer:
    chosen = {
        "max_steps": 6,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 9,
    }
    args = tiny.arguments(folder, **{**chosen, "learning_rate": 0.05, **settings})
    data = tiny.regression_data()
    model = tiny.Regression()
    return Trainer(model, args, train_dataset=data, eval_dataset=data[:8], callbacks=list(callbacks))


def losses(trainer: Trainer) -> list[tuple[int, float]]:
    return [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


class StopAt(TrainerCallback):
    """Breaks off a run as a crash would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise RuntimeError("crash")


def crash(trainer: Trainer) -> None:
    trainer.args.save_on_error = False  # as when the process dies
    with pytest.raises(RuntimeError, match="crash"):
        trainer.train()


def test_a_run_is_told_in_order_and_under_headings(tmp_path):
    tracker = Recorder()
    trainer = build(tmp_path, tracker, eval_strategy="steps", eval_steps=3)
    trainer.train()
    trainer._event("on_samples", samples=[{"input": "a"}], source="train")
    trainer.predict(tiny.regression_data()[:4], metric_key_prefix="ood")
    assert tracker.finish(10)
    assert tracker.series("train/loss") == losses(trainer)
    assert [step for step, _ in tracker.series("eval/loss")] == [3, 6]
    assert [step for step, _ in tracker.series("ood/loss")] == [6]
    end = final_metrics(trainer.state.log_history)
    assert end["train_loss"] == pytest.approx(sum(loss for _, loss in losses(trainer)) / 6)
    assert tracker.calls == [
        "open",
        *(("checkpoint", f"checkpoint-{step}", step) for step in (2, 4, 6)),
        ("end", end, 6),
        ("samples", [{"input": "a"}], "train", 6),
        "close",
    ]
    run = tracker.runs[0]
    assert run.settings["max_steps"] == 6
    assert run.model["class"] == "Regression"
    assert run.model["num_parameters"] == 2
    assert tracker.models == [trainer.model]
    assert run.live_model is None  # it is not kept beyond `open`
    assert Ledger(tmp_path, "recorder").find(run.run_id).num_sent == len(trainer.state.log_history)


def test_the_model_hears_nothing_of_it(tmp_path):
    plain, tracked = build(tmp_path / "a"), build(tmp_path / "b", Recorder(fails_from=3))
    plain.train()
    tracked.train()
    assert torch.equal(plain.model.slope, tracked.model.slope)
    assert losses(plain) == losses(tracked)


def test_a_crash_and_a_resume_are_one_run_without_doubles(tmp_path):
    straight = build(tmp_path / "straight")
    straight.train()
    first = Recorder()
    crash(build(tmp_path / "run", first, StopAt(5)))
    assert first.finish(10)
    second = Recorder()
    resumed = build(tmp_path / "run", second)
    resumed.train(resume_from_checkpoint=True)
    assert second.finish(10)
    assert second.runs[0].run_id == first.runs[0].run_id
    assert second.runs[0].service_id == f"id-{first.runs[0].run_id}"
    assert second.runs[0].first_step == 4
    assert first.series("train/loss") + second.series("train/loss") == losses(straight) == losses(resumed)
    assert [step for step, _ in second.series("train/loss")] == [6]  # 5 was sent before the crash


def test_a_log_that_was_sent_before_the_first_checkpoint_knew_of_any_is_not_sent_again(tmp_path):
    first = Recorder()
    crash(build(tmp_path, first, StopAt(3), logging_steps=3))
    assert first.finish(10)
    second = Recorder()
    resumed = build(tmp_path, second, logging_steps=3)
    resumed.train(resume_from_checkpoint=True)
    assert second.finish(10)
    assert second.runs[0].num_logs == 0
    assert first.series("train/loss") + second.series("train/loss") == losses(resumed)
    assert [step for step, _ in losses(resumed)] == [3, 6]


def test_a_tracker_that_was_off_catches_up_when_the_run_is_resumed(tmp_path):
    first = Recorder(fails_from=3)
    crash(build(tmp_path, first, StopAt(5)))
    assert not first.finish(10)
    second = Recorder()
    resumed = build(tmp_path, second)
    resumed.train(resume_from_checkpoint=True)
    assert second.finish(10)
    assert first.series("train/loss") + second.series("train/loss") == losses(resumed)


def test_a_tracker_that_joins_at_a_resume_gets_the_whole_history(tmp_path):
    crash(build(tmp_path, StopAt(5)))
    tracker = Recorder()
    resumed = build(tmp_path, tracker)
    resumed.train(resume_from_checkpoint=True)
    assert tracker.finish(10)
    assert tracker.series("train/loss") == losses(resumed)


def test_a_run_that_was_moved_without_its_ledger_goes_on_after_its_checkpoint(tmp_path):
    first = Recorder()
    crash(build(tmp_path / "old", first, StopAt(5)))
    assert first.finish(10)
    second = Recorder()
    resumed = build(tmp_path / "new", second)
    resumed.train(resume_from_checkpoint=str(tmp_path / "old" / "checkpoint-4"))
    assert second.finish(10)
    assert second.runs[0].service_id == f"id-{first.runs[0].run_id}"
    assert [step for step, _ in second.series("train/loss")] == [5, 6]


def test_a_second_training_is_another_run(tmp_path):
    tracker = Recorder()
    trainer = build(tmp_path, tracker)
    trainer.train()
    trainer.train()
    assert tracker.finish(10)
    assert len({run.run_id for run in tracker.runs}) == 2
    assert [call for call in tracker.calls if isinstance(call, str)] == ["open", "close", "open", "close"]
    assert len(tracker.series("train/loss")) == 12


def test_a_tracker_that_gave_up_is_tried_again_in_the_next_run(tmp_path):
    tracker = Recorder(fails_from=3)
    trainer = build(tmp_path, tracker)
    trainer.train()
    assert tracker.guard.is_off
    tracker.fails_from = None
    trainer.train()
    assert tracker.finish(10)
    assert tracker.series("train/loss")[2:] == losses(trainer)


def test_an_evaluation_without_training_is_told_once(tmp_path):
    tracker = Recorder()
    trainer = build(tmp_path, tracker)
    trainer.evaluate()
    trainer.evaluate()
    assert tracker.finish(10)
    assert [step for step, _ in tracker.series("eval/loss")] == [0, 0]
    assert len(tracker.runs) == 1


def test_a_log_past_the_history_is_told_too(tmp_path):
    tracker, state = Recorder(), TrainerState()
    args, control = tiny.arguments(tmp_path), TrainerControl()
    for value in (1.0, 2.0):
        tracker.on_log(args, state, control, logs={"loss": value}, run_id="a")
    assert tracker.finish(10)
    assert tracker.series("train/loss") == [(0, 1.0), (0, 2.0)]


def test_only_the_main_process_tells(tmp_path):
    tracker, state = Recorder(), TrainerState(is_world_process_zero=False)
    args, control = tiny.arguments(tmp_path), TrainerControl()
    for event in ("on_train_begin", "on_log", "on_predict", "on_samples", "on_seal", "on_train_end"):
        getattr(tracker, event)(args, state, control, run_id="a")
    assert tracker.finish(10)
    assert tracker.calls == []


def test_numbers_of_arrays_and_tensors_are_told_as_numbers(tmp_path):
    tracker = Recorder()
    trainer = build(tmp_path, tracker)
    trainer.log({"a": np.float32(0.5), "b": torch.tensor(2.0), "c": "text", "d": np.arange(2)})
    assert tracker.finish(10)
    values = tracker.points[0][1]
    assert [type(values[f"train/{key}"]) for key in "abcd"] == [float, float, str, np.ndarray]


def test_a_subclass_may_set_up_more_and_reach_what_was_opened(tmp_path):
    class Mine(Recorder):
        def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
            super().setup(args, state, model, **kwargs)
            self.wait_for_service()
            self.seen = (self.service_id, model)

    tracker = Mine()
    trainer = build(tmp_path, tracker)
    trainer.train()
    assert tracker.seen == (f"id-{tracker.run_id}", trainer.model)


def test_a_run_that_was_set_up_by_hand_is_told_from_there(tmp_path):
    tracker = Recorder()
    trainer = build(tmp_path, tracker)
    tracker.setup(trainer.args, trainer.state, trainer.model, run_id=trainer._current_run.identity.run_id)
    trainer.evaluate()
    assert tracker.finish(10)
    assert [run.run_id for run in tracker.runs] == [trainer._current_run.identity.run_id]


def test_a_ledger_that_cannot_be_written_does_not_send_a_log_twice(tmp_path):
    (tmp_path / "trackers").write_text("in the way")
    tracker = Recorder()
    trainer = build(tmp_path, tracker)
    trainer.train()
    assert tracker.finish(10)
    assert tracker.series("train/loss") == losses(trainer)


def test_a_service_that_does_not_define_open_or_write_is_said_to_be_unfinished():
    class Nothing(TrackerCallback):
        name, package = "nothing", "torch"

    with pytest.raises(NotImplementedError):
        Nothing().open(Run("a", "a", "a"))
    with pytest.raises(NotImplementedError):
        Nothing().write({}, 0)


def test_trackers_are_callbacks_and_survive_in_checkpoints(tmp_path):
    tracker = Recorder()
    build(tmp_path, tracker).train()
    assert isinstance(tracker, footplate.TrainerCallback)
    state = TrainerState.load_from_json(str(tmp_path / "checkpoint-6" / "trainer_state.json"))
    stored = state.stateful_callbacks["Recorder"]["attributes"]
    assert stored == {"run_id": tracker.run_id, "service_id": f"id-{tracker.run_id}"}


class OldScript(Recorder):
    """As subclasses were written for the original: fewer parameters, and the model passed by its place."""

    def setup(self, args: Any, state: Any, model: Any) -> None:
        super().setup(args, state, model)
        self.num_setups = getattr(self, "num_setups", 0) + 1

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if not self._initialized:
            self.setup(args, state, model)
        super().on_train_begin(args, state, control, model, **kwargs)

    def on_log(
        self, args: Any, state: Any, control: Any, model: Any = None, logs: Any = None, **kwargs: Any
    ) -> None:
        super().on_log(args, state, control, model, {**logs, "mine": 1}, **kwargs)


def test_an_override_of_the_original_s_signatures_is_one_run_with_every_log(tmp_path):
    tracker = OldScript()
    trainer = build(tmp_path, tracker)
    trainer.train()
    trainer.evaluate()
    assert tracker.finish(10)
    assert len(tracker.runs) == tracker.num_setups == 1
    assert tracker.models == [trainer.model]
    assert tracker.series("train/loss") == losses(trainer)
    assert len(tracker.series("train/mine")) == len(trainer.state.log_history)
    assert not tracker._initialized


def test_a_setup_that_calls_no_super_is_called_once_and_loses_nothing(tmp_path):
    class Own(Recorder):
        def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
            self._initialized = True
            self.num_setups = getattr(self, "num_setups", 0) + 1

    tracker = Own()
    trainer = build(tmp_path, tracker)
    trainer.train()
    assert tracker.finish(10)
    assert tracker.num_setups == 1
    assert [run.run_id for run in tracker.runs] == [trainer._current_run.identity.run_id]
    assert tracker.series("train/loss") == losses(trainer)


def test_a_service_that_forgets_what_it_was_sent_while_it_opens_gets_the_history_in_order(tmp_path):
    """`open` changes `num_sent` on its own thread, while `setup` still counts by it."""

    class Forgets(Recorder):
        def open(self, run: Run) -> str | None:
            run.num_sent = 0
            self.has_opened.set()
            return super().open(run)

    args = tiny.arguments(tmp_path)
    state = TrainerState(log_history=[{"loss": float(step), "step": step} for step in range(1, 5)])
    Ledger(tmp_path, "recorder").note("same", "there", 4)
    tracker = Forgets()
    tracker.has_opened = threading.Event()
    submit = tracker.guard.submit

    def submit_and_wait(call: Any, *given: Any) -> None:
        submit(call, *given)
        if call == tracker._open_run:
            assert tracker.has_opened.wait(10)

    tracker.guard.submit = submit_and_wait  # type: ignore[method-assign]
    state.global_step = 4
    tracker.setup(args, state, run_id="same")
    assert tracker.finish(10)
    assert tracker.points == []  # they were noted as sent when the run was taken up
