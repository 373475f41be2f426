"""What a client does to the process does not reach training, and its thread ends with the Trainer."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
from footplate import Trainer, TrainerCallback
from footplate.integrations import base
from footplate.integrations.base import TrackerCallback
from footplate.integrations.guard import Guard
from footplate.integrations.isolation import undisturbed
from footplate.integrations.run import Run
from footplate.integrations.tensorboard import TensorBoardCallback


class Client(TrackerCallback):
    """A service in this process."""

    name = "client"
    calls: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.guard = Guard(self.name, delays=(0.01,))
        self.calls = []

    def open(self, run: Run) -> str | None:
        self.calls.append("open")
        return run.run_id

    def write(self, values: dict[str, Any], step: int) -> None:
        self.calls.append(f"write {step}")

    def close(self) -> None:
        self.calls.append("close")


class Patient(TrainerCallback):
    """Waits in every update until the client has done all it was told, and notes what training draws."""

    def __init__(self, client: Client | None) -> None:
        self.client = client
        self.drawn: list[tuple[float, float, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.client is not None:
            self.client.wait_for_service()
        self.drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))


def train(folder: Path | str, client: Client | None, **settings: Any) -> Patient:
    patient = Patient(client)
    chosen = {"max_steps": 4, "logging_steps": 1, **settings}
    callbacks = [*([client] if client is not None else []), patient]
    data = tiny.regression_data(32)
    trainer = Trainer(
        tiny.Regression(),
        tiny.arguments(folder, **chosen),
        train_dataset=data,
        eval_dataset=data[:8],
        callbacks=callbacks,
    )
    trainer.train()
    return patient


class Seeds(Client):
    """A client that seeds and draws when it opens, as libraries do when they are imported."""

    def open(self, run: Run) -> str | None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        torch.rand(7)
        return super().open(run)


def test_seeds_that_a_client_sets_when_it_opens_do_not_reach_training(tmp_path):
    expected = train(tmp_path / "plain", None).drawn
    assert train(tmp_path / "tracked", Seeds()).drawn == expected


class Fails(Client):
    def open(self, run: Run) -> str | None:
        self.calls.append("open")
        if self.calls == ["open"]:
            raise ConnectionError("not yet")
        time.sleep(0.3)
        return run.run_id


def test_training_does_not_wait_for_a_second_attempt(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "OPEN_WAIT", 60.0)
    client = Fails()
    client.guard = Guard("client", delays=(30.0,))
    begun = time.monotonic()
    client.setup(tiny.arguments(tmp_path), footplate_state())
    assert time.monotonic() - begun < 20
    client.guard.start_exit()  # no more delay
    assert client.finish(20)
    assert client.calls == ["open", "open", "close"]


def footplate_state() -> Any:
    from footplate import TrainerState

    return TrainerState(is_world_process_zero=True)


# ---- the working folder ----


def test_the_working_folder_is_that_of_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with undisturbed():
        os.chdir("elsewhere")
    assert Path.cwd() == tmp_path


class Moves(Client):
    """A client that goes to another folder when it opens, and to a third with the first log."""

    def open(self, run: Run) -> str | None:
        os.makedirs("opened", exist_ok=True)
        os.chdir("opened")
        return super().open(run)

    def write(self, values: dict[str, Any], step: int) -> None:
        if self.calls == ["open"]:
            os.makedirs("written", exist_ok=True)
            os.chdir("written")
        super().write(values, step)


def test_no_file_follows_a_client_that_changes_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "boards")
    client = Moves()
    patient = Patient(client)
    args = tiny.arguments(
        "run",
        max_steps=4,
        logging_steps=1,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        eval_strategy="steps",
        eval_steps=1,
        eval_memory_limit="1B",
        load_best_model_at_end=True,
        show_samples=2,
    )
    data = tiny.regression_data(32)
    trainer = Trainer(
        tiny.Regression(),
        args,
        train_dataset=data,
        eval_dataset=data[:8],
        compute_metrics=lambda prediction: {"rows": len(prediction.predictions)},
        callbacks=[client, TensorBoardCallback(), patient],
    )
    result = trainer.train()
    assert Path.cwd() == tmp_path / "written"  # the one of `open` was undone
    trainer.save_model()
    trainer.save_state()
    trainer.save_metrics("train", result.metrics)
    trainer.evaluate()
    for tracker in (client, trainer.callback_handler.callbacks[2]):
        if isinstance(tracker, TrackerCallback):
            assert tracker.finish(20)
    found = sorted(os.listdir(tmp_path / "run"))
    wanted = [
        *("all_results.json", "checkpoint-4", "events.jsonl", "log_history.csv", "model.safetensors"),
        *("report.html", "samples.jsonl", "trackers", "train_results.json", "trainer_state.json"),
    ]
    assert [name for name in wanted if name not in found] == []
    assert sorted(os.listdir(tmp_path)) == ["boards", "opened", "run", "written"]
    assert os.listdir(tmp_path / "opened") == os.listdir(tmp_path / "written") == []
    assert len(list((tmp_path / "boards").rglob("events.out.tfevents.*"))) == 1
    steps = {line.split(",")[0] for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()}
    assert steps == {f'{{"step": {step}' for step in (1, 2, 3, 4)}


# ---- threads ----


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def wait_for_threads(expected: list[str]) -> None:
    deadline = time.monotonic() + 20
    while set(threads()) - set(expected) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    assert set(threads()) - set(expected) == set()


class Breaks(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 2:
            raise RuntimeError("broken")


@pytest.mark.parametrize("ending", ["in order", "with an error"])
def test_every_thread_ends_with_its_trainer_and_the_run_is_closed(tmp_path, ending):
    gc.collect()
    before = threads()
    client = Client()
    calls, guard = client.calls, client.guard
    callbacks = [client, TensorBoardCallback(), *([Breaks()] if ending == "with an error" else [])]
    settings = {"max_steps": 4, "logging_steps": 1, "save_strategy": "steps", "save_steps": 2}
    trainer = Trainer(
        tiny.Regression(),
        tiny.arguments(tmp_path, **settings),
        train_dataset=tiny.regression_data(32),
        callbacks=callbacks,
    )
    if ending == "in order":
        trainer.train()
    else:
        with pytest.raises(RuntimeError, match="broken"):
            trainer.train()
    assert "footplate-client" in threads()  # an evaluation may follow
    del trainer, client, callbacks
    wait_for_threads(before)
    assert calls[0] == "open"
    assert calls[-1] == "close"
    assert calls.count("close") == 1
    assert not guard.is_off


def test_a_guard_that_is_retired_finishes_its_calls_and_starts_again_if_it_must():
    before, guard, done = threads(), Guard("retired"), []
    for number in range(3):
        guard.submit(lambda number=number: (time.sleep(0.05), done.append(number)))
    guard.retire()
    wait_for_threads(before)
    assert done == [0, 1, 2]
    guard.submit(done.append, 3)
    assert guard.flush(10)
    assert done == [0, 1, 2, 3]
    guard.retire()
    wait_for_threads(before)


def test_a_system_that_starts_no_more_threads_ends_no_run(tmp_path, monkeypatch, caplog):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    client = Client()
    data = tiny.regression_data(32)
    args = tiny.arguments(
        tmp_path, max_steps=4, logging_steps=1, save_strategy="steps", save_steps=2, skip_memory_metrics=False
    )
    trainer = Trainer(tiny.Regression(), args, train_dataset=data, eval_dataset=data[:8], callbacks=[client])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert trainer.train().global_step == 4
        trainer.evaluate()
    assert (tmp_path / "checkpoint-4" / "manifest.json").is_file()
    assert (tmp_path / "report.html").is_file()  # written at the end
    assert client.guard.is_off
    assert [r for r in caplog.records if "footplate sync" in r.getMessage()]
    assert trainer.train().global_step == 4  # there are threads again
    assert client.calls[0] == "open"
    assert client.finish(20)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["pipe", "folder", "nested", "types"])
def test_files_that_somebody_else_put_into_the_folder_end_no_run(tmp_path, kind):
    names = ("events.jsonl", "samples.jsonl", "trackers/client.json", "report.html", "log_history.csv")
    contents = {
        "nested": "[" * 100_000 + "\n",
        "types": '{"run_id": 3, "kind": [], "step": "x", "num_sent": -1}\n',
    }
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.write_text(contents[kind])
    client = Client()
    settings = {"eval_strategy": "steps", "eval_steps": 2, "show_samples": 2, "save_strategy": "steps"}
    assert len(train(tmp_path, client, save_steps=4, **settings).drawn) == 4
    assert client.finish(20)
    assert (tmp_path / "checkpoint-4" / "manifest.json").is_file()
    assert '"kind": "log"' in (tmp_path / "events.jsonl").read_text()
    assert '"step": 4' in (tmp_path / "samples.jsonl").read_text()
