"""What a run leaves in its journal, line by line."""

from __future__ import annotations

import gc
import logging
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from footplate import Trainer, TrainerCallback, TrainerControl, TrainerState
from footplate.integrations.guard import Guard
from footplate.integrations.journal import JOURNAL_NAME, last_run, read_events
from footplate.integrations.journal_callback import JournalCallback
from footplate.integrations.run import Run


def build(folder: Path, *callbacks: Any, **settings: Any) -> Trainer:
    often = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    chosen = {"max_steps": 6, "logging_steps": 1, "learning_rate": 0.05, **often}
    args = tiny.arguments(folder, **{**chosen, **settings})
    data = tiny.regression_data()
    return Trainer(
        tiny.Regression(), args, train_dataset=data, eval_dataset=data[:8], callbacks=list(callbacks)
    )


def read(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    return [e for e in read_events(folder / JOURNAL_NAME) if not kinds or e["kind"] in kinds]


class CrashAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise RuntimeError("crash")


def test_a_run_is_written_down_as_it_happens(tmp_path):
    trainer = build(tmp_path, load_best_model_at_end=True)
    trainer.train()
    trainer._event("on_samples", samples=[{"input": "<b>"}], source="train")
    trainer.predict(tiny.regression_data()[:4], metric_key_prefix="ood")
    events = read(tmp_path)
    kinds = [event["kind"] for event in events]
    assert (kinds[0], kinds[-3:]) == ("begin", ["end", "samples", "predict"])
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    logged = [{**event["logs"], "step": event["step"]} for event in read(tmp_path, "log")]
    assert logged == trainer.state.log_history
    assert [event["number"] for event in read(tmp_path, "log")] == list(range(1, len(logged) + 1))
    assert [event["epoch"] for event in read(tmp_path, "log")] == [entry["epoch"] for entry in logged]
    saves = read(tmp_path, "save")
    assert [(e["step"], e["folder"]) for e in saves] == [(n, f"checkpoint-{n}") for n in (2, 4, 6)]
    assert (saves[-1]["best_step"], saves[-1]["best_metric"]) == (6, trainer.state.best_metric)
    (end,) = read(tmp_path, "end")
    assert end["step"] == 6
    assert end["metrics"]["eval_loss"] == trainer.state.best_metric
    (samples,) = read(tmp_path, "samples")
    assert (samples["rows"], samples["source"], samples["step"]) == ([{"input": "<b>"}], "train", 6)
    (prediction,) = read(tmp_path, "predict")
    assert "ood_loss" in prediction["logs"]
    assert "ood" in prediction["prefixes"]


def test_a_run_can_be_told_again_from_its_first_line(tmp_path):
    trainer = build(tmp_path)
    trainer.train()
    run = Run.from_event(read(tmp_path, "begin")[0])
    assert run.run_id == trainer._current_run.identity.run_id
    assert run.output_dir == str(tmp_path)
    assert (run.first_step, run.max_steps, run.num_logs) == (0, 6, 0)
    assert run.settings["learning_rate"] == 0.05
    assert run.model == {"class": "Regression", "num_parameters": 2, "num_trainable": 2, "config": {}}
    assert (
        run.versions["torch"] == torch.__version__.split("+")[0] or run.versions["torch"] == torch.__version__
    )
    assert run.machine["process"] == os.getpid()


def test_a_crash_and_a_resume_are_one_run_whose_last_leg_counts(tmp_path):
    straight = build(tmp_path / "straight")
    straight.train()
    with pytest.raises(RuntimeError, match="crash"):
        build(tmp_path / "run", CrashAt(5), save_on_error=False).train()
    resumed = build(tmp_path / "run")
    resumed.train(resume_from_checkpoint=True)
    events = read(tmp_path / "run")
    begins = [event for event in events if event["kind"] == "begin"]
    assert [event["first_step"] for event in begins] == [0, 4]
    assert begins[0]["run_id"] == begins[1]["run_id"]
    kept = [event for event in last_run(events) if event["kind"] == "log"]
    assert [{**event["logs"], "step": event["step"]} for event in kept] == resumed.state.log_history
    timeless = [
        [e for e in h if "runtime" not in e] for h in (straight.state.log_history, resumed.state.log_history)
    ]
    assert [sorted(e)[:1] for e in timeless[0]] == [sorted(e)[:1] for e in timeless[1]]
    assert [e["loss"] for e in straight.state.log_history if "loss" in e] == [
        event["logs"]["loss"] for event in kept if "loss" in event["logs"]
    ]


def test_another_run_in_the_same_folder_begins_anew(tmp_path):
    build(tmp_path).train()
    second = build(tmp_path)
    second.train()
    assert len(read(tmp_path, "begin")) == 2
    kept = [event for event in last_run(read(tmp_path)) if event["kind"] == "log"]
    assert [{**event["logs"], "step": event["step"]} for event in kept] == second.state.log_history


def test_an_evaluation_alone_leaves_the_run_in_the_folder_what_it_is(tmp_path):
    trained = build(tmp_path)
    trained.train()
    build(tmp_path).evaluate()
    kept = [event for event in last_run(read(tmp_path)) if event["kind"] == "log"]
    assert [{**event["logs"], "step": event["step"]} for event in kept] == trained.state.log_history
    assert len(read(tmp_path, "log")) == len(kept) + 1


def test_warnings_of_the_run_are_kept_and_no_others(tmp_path):
    class Warn(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                logging.getLogger("footplate.training").warning("careful with %s", "this")
                logging.getLogger("footplate.training").info("all well")
                logging.getLogger("elsewhere").warning("not ours")
                guard = Guard("wandb", delays=())
                guard.submit(int, "no number")
                guard.flush(5)

    build(tmp_path, Warn()).train()
    logging.getLogger("footplate").warning("after the end")
    found = [e for e in read(tmp_path, "warning") if e["step"] == 3]
    assert [(e["level"], e["tracker"], e["is_off"]) for e in found] == [
        ("WARNING", None, False),
        ("WARNING", "wandb", True),
    ]
    assert found[0]["message"] == "careful with this"
    assert "wandb is switched off" in found[1]["message"]
    assert not [e for e in read(tmp_path, "warning") if "after" in e["message"]]


def test_a_run_that_broke_off_does_not_hear_the_warnings_of_the_next(tmp_path):
    with pytest.raises(RuntimeError, match="crash"):
        build(tmp_path / "a", CrashAt(2)).train()
    build(tmp_path / "b").train()
    logging.getLogger("footplate").warning("later")
    assert not [event for event in read(tmp_path / "a", "warning") if event["message"] == "later"]


def test_only_the_main_process_writes(tmp_path):
    callback, state = JournalCallback(), TrainerState(is_world_process_zero=False)
    args, control = tiny.arguments(tmp_path), TrainerControl()
    for event in ("on_train_begin", "on_log", "on_predict", "on_samples", "on_seal", "on_train_end"):
        getattr(callback, event)(args, state, control, run_id="a")
    assert not (tmp_path / JOURNAL_NAME).exists()


def test_nan_is_kept(tmp_path):
    trainer = build(tmp_path)
    trainer.log({"loss": float("nan"), "other": float("inf")})
    (event,) = read(tmp_path, "log")
    assert math.isnan(event["logs"]["loss"])
    assert event["logs"]["other"] == math.inf


def test_where_the_time_went_is_written_with_each_log(tmp_path):
    build(tmp_path).train()
    spent = [event["seconds"] for event in read(tmp_path, "log") if "loss" in event["logs"]]
    assert all({"data", "forward", "backward", "optimizer"} <= set(seconds) for seconds in spent)
    assert all(value >= 0 for seconds in spent for value in seconds.values())


def test_a_full_disk_is_said_once_and_training_goes_on(tmp_path, caplog):
    class Fill(TrainerCallback):
        def on_step_begin(
            self, args: Any, state: Any, control: Any, trainer: Any = None, **kwargs: Any
        ) -> None:
            if state.global_step == 2:
                callbacks = trainer.callback_handler.recorders
                journal = next(c for c in callbacks if isinstance(c, JournalCallback)).journal
                os.dup2(os.open("/dev/full", os.O_WRONLY), journal._descriptor)

    straight, full = build(tmp_path / "straight"), build(tmp_path / "full", Fill())
    straight.train()
    full.train()
    assert torch.equal(full.model.slope, straight.model.slope)
    assert [event["step"] for event in read(tmp_path / "full", "log")] == [1, 2, 2]
    told = [record.getMessage() for record in caplog.records if "events are missing" in record.getMessage()]
    assert len(told) == 1
    assert "No space left" in told[0]


def test_a_log_costs_some_microseconds(tmp_path):
    callback, state, control = JournalCallback(), TrainerState(max_steps=9), TrainerControl()
    args = tiny.arguments(tmp_path)
    logs = {"loss": 0.123456789, "grad_norm": 1.23456789, "learning_rate": 5e-05, "epoch": 0.125}
    seconds = dict.fromkeys(("data", "forward", "backward", "optimizer", "callbacks"), 0.001234567)
    extras = {"run_id": "a", "metric_prefixes": ("eval", "test"), "seconds": seconds}
    callback.on_train_begin(args, state, control, **extras)
    costs = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(400):
            callback.on_log(args, state, control, logs=logs, **extras)
        costs.append((time.perf_counter() - begun) / 400)
    callback.on_train_end(args, state, control, **extras)
    print(f"{min(costs) * 1e6:.1f} microseconds per log")
    assert min(costs) < 100e-6


def test_trainers_that_are_gone_leave_no_open_file_and_hear_no_warning(tmp_path):
    # without a log of the error: pytest keeps records, and with the error the frames that hold the Trainer
    gone = build(tmp_path / "gone", CrashAt(2), save_on_error=False)
    with pytest.raises(RuntimeError, match="crash"):
        gone.train()
    path = tmp_path / "gone" / "events.jsonl"
    num_lines = len(path.read_text().splitlines())
    del gone
    gc.collect()
    logging.getLogger("footplate.anything").warning("after the end")
    assert len(path.read_text().splitlines()) == num_lines
    held = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert str(path) not in held


class Parts:
    """A model of which only a part is a module, as some libraries have it, called by a loop of their own."""

    def __init__(self) -> None:
        self.body, self.head = tiny.Regression(), object()


class Broken:
    def parameters(self) -> Any:
        raise TypeError("not here")


class Settings:
    """Arguments of a library's own class."""

    def __init__(self, folder: Path) -> None:
        self.output_dir = str(folder)


@pytest.mark.parametrize("model", [Parts(), Broken()], ids=["parts", "broken"])
def test_a_model_that_is_no_module_does_not_stop_the_journal(tmp_path, model):
    callback, state = JournalCallback(), TrainerState(max_steps=3)
    callback.on_train_begin(Settings(tmp_path), state, TrainerControl(), model=model, run_id="one")
    callback.on_log(
        Settings(tmp_path), state, TrainerControl(), model=model, run_id="one", logs={"loss": 1.0}
    )
    callback.on_train_end(Settings(tmp_path), state, TrainerControl(), model=model, run_id="one")
    assert [event["kind"] for event in read(tmp_path)] == ["begin", "log", "end"]
    assert read(tmp_path)[0]["model"] == {"class": type(model).__name__, "config": {}}


def test_a_wrapper_around_the_model_does_not_stop_the_journal(tmp_path):
    trainer = build(tmp_path)
    trainer.callback_handler.model = Parts()
    trainer.evaluate()
    assert [event["kind"] for event in read(tmp_path)] == ["begin", "log"]


class Noting(TrainerCallback):
    """Keeps a note at every update, and hears of those that are kept."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, note: Any = None, **kwargs: Any) -> None:
        note("weather", wind=state.global_step)

    def on_note(
        self, args: Any, state: Any, control: Any, kind: str = "", values: Any = None, **kw: Any
    ) -> None:
        self.heard.append((kind, values))


def test_a_note_of_a_callback_is_written_and_told_to_all(tmp_path):
    noting = Noting()
    trainer = build(tmp_path, noting)
    trainer.train()
    assert [(e["step"], e["wind"]) for e in read(tmp_path, "weather")] == [(n, n) for n in range(1, 7)]
    assert noting.heard[0][0] == "model"  # the run's own
    assert noting.heard[1:] == [("weather", {"wind": n}) for n in range(1, 7)]


def test_a_note_cannot_take_the_place_of_an_event_of_the_run(tmp_path):
    trainer = build(tmp_path)
    with pytest.raises(ValueError, match=r"note\('end'\).*Choose another one"):
        trainer.callback_handler.extras["note"]("end", step=3)
