"""Trials at the same time, in processes of their own."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import optuna
import psutil
import pytest

import tiny
from footplate import Trainer, TrainerCallback, comm
from footplate.search.processes import Worker, dump, environment

SCRIPT = Path(__file__).with_name("side_by_side_script.py")


def start(folder, **options):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])},
    )


def trials(folder):
    path = folder / "search" / "trials.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[1:-1]] if path.exists() else []
    return sorted(lines, key=lambda line: line["number"])


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def build(folder, **options):
    data = tiny.regression_data(32)
    args = tiny.arguments(
        folder, max_steps=6, eval_strategy="steps", eval_steps=2, logging_strategy="no", report=False
    )
    options = {"model_init": tiny.Regression, "train_dataset": data, "eval_dataset": data, **options}
    return Trainer(args=args, **options)


def test_a_process_that_dies_costs_its_trial_only_and_the_best_one_is_loaded(tmp_path):
    process = start(tmp_path, trials=5, dies="run-1")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = trials(tmp_path)
    assert [line["state"] for line in found] == ["complete", "failed", "complete", "complete", "complete"]
    assert "code -9" in found[1]["error"]
    assert len({line["params"]["learning_rate"] for line in found}) == 5
    assert {line["params"].get("width") for line in found if line["state"] == "complete"} <= {8, 16}
    assert [line["folder"] for line in found] == [f"run-{number}" for number in range(5)]
    printed = json.loads(output.splitlines()[-1])
    assert (
        printed["objective"] == printed["again"] == min(line["values"][0] for line in found if line["values"])
    )


@pytest.mark.slow
def test_a_search_that_is_killed_ends_its_processes_and_goes_on_with_the_same_trials(tmp_path):
    process = start(tmp_path, trials=5, sleep=0.2)
    wait_for(lambda: trials(tmp_path) or process.poll() is not None)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    assert 1 <= len(trials(tmp_path)) < 5
    process = start(tmp_path, trials=5)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = trials(tmp_path)
    assert [(line["number"], line["state"]) for line in found] == [(n, "complete") for n in range(5)]
    alone = build(tmp_path / "alone").hyperparameter_search(
        {"learning_rate": {"low": 0.001, "high": 1.0, "log": True}}, n_trials=5, backend="random"
    )
    rates = [line["params"]["learning_rate"] for line in found]
    assert rates == [trial.params["learning_rate"] for trial in alone.run_summary.trials]


def test_optuna_prunes_in_other_processes(tmp_path):
    class Prune(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number == 1 and max(trial.intermediate_values) >= 4

    best = build(tmp_path).hyperparameter_search(
        {"learning_rate": [0.1, 0.01]}, n_trials=3, backend="optuna", n_jobs=2, pruner=Prune()
    )
    found = best.run_summary.trials
    assert [trial.state for trial in found] == ["complete", "pruned", "complete"]
    assert list(found[1].reported) == ["2", "4"]


def test_a_trainer_that_cannot_travel_is_refused_before_the_first_trial(tmp_path):
    class Held(TrainerCallback):
        def __init__(self):
            self.lock = threading.Lock()

    trainer = build(tmp_path, callbacks=[Held()])
    with pytest.raises(ValueError, match=r"cannot travel: .*lock.*leave n_jobs unset"):
        trainer.hyperparameter_search({"learning_rate": [0.1, 0.01]}, n_trials=2, backend="grid", n_jobs=2)
    assert not list(tmp_path.glob("run-*"))


def test_a_process_that_cannot_begin_ends_the_search_with_what_it_printed(tmp_path, monkeypatch):
    module = tmp_path / "only_here.py"
    module.write_text("from footplate import TrainerCallback\nclass Far(TrainerCallback):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    trainer = build(tmp_path / "out", callbacks=[only_here.Far()])
    module.unlink()
    with pytest.raises(RuntimeError, match=r"(?s)before its first trial.*No module named 'only_here'"):
        trainer.hyperparameter_search({"learning_rate": [0.1]}, n_trials=2, backend="random", n_jobs=2)


@pytest.mark.parametrize("count", [0, -2, 1.5])
def test_a_wrong_number_of_jobs_is_refused(tmp_path, count):
    with pytest.raises(ValueError, match="n_jobs="):
        build(tmp_path).hyperparameter_search({"learning_rate": [0.1]}, backend="random", n_jobs=count)


def test_a_trainer_that_has_travelled_trains_as_the_one_that_stayed(tmp_path):
    """What n_jobs and Ray do: `pickle` is enough where all classes can be imported."""
    trainer = build(tmp_path, compute_metrics=None)
    there = pickle.loads(pickle.dumps(trainer))
    assert [type(one) for one in there.callback_handler.callbacks] == [
        type(one) for one in trainer.callback_handler.callbacks
    ]
    first, second = trainer.train(), there.train()
    assert first.training_loss == second.training_loss
    assert trainer.evaluate()["eval_loss"] == there.evaluate()["eval_loss"]


def test_each_process_has_its_share_of_cores_and_devices(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    found = [environment(place, 3) for place in range(3)]
    assert [variables["CUDA_VISIBLE_DEVICES"] for variables in found] == ["4", "5", "4"]
    assert {variables["OMP_NUM_THREADS"] for variables in found} == {"2"}


@pytest.mark.parametrize(
    "options",
    [{"backend": "random", "n_jobs": 2}, pytest.param({"backend": "ray"}, marks=pytest.mark.slow)],
    ids=["n_jobs", "ray"],
)
def test_one_of_several_ranks_starts_no_processes(tmp_path, monkeypatch, options):
    trainer = build(tmp_path)
    monkeypatch.setattr(comm, "world_size", lambda: 2)
    with pytest.raises(ValueError, match="one of 2 ranks"):
        trainer.hyperparameter_search({"learning_rate": [0.1]}, **options)


def test_a_process_that_is_replaced_adds_to_the_log(tmp_path):
    log = tmp_path / "process-0.log"
    for _ in range(2):
        worker = Worker(dump(print_line), log, dict(os.environ))
        worker.process.wait(60)
        worker.close()
    assert log.read_text() == "here\nhere\n"


def print_line(connection):
    print("here")
