"""Sweeps of W&B: its real client and agent, in a process of their own, against a server on the loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from search.wandb_service import KEY, ServiceRun, WandbService

TESTS = Path(__file__).parents[1]
SPACE = {"learning_rate": {"low": 1e-3, "high": 1e-1, "log": True}, "seed": [1, 2, 3]}


class Seen(NamedTuple):
    """What a process said about its search."""

    told: dict[str, Any]
    stderr: str


@pytest.fixture
def service() -> Iterator[WandbService]:
    service = WandbService()
    yield service
    service.close()
    assert service.unknown == []


def variables(folder: Path, address: str) -> dict[str, str]:
    """Variables with which the client talks to the loopback, and writes below this folder only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    folders = {
        name: str(folder / "wandb") for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR")
    }
    (folder / "wandb").mkdir(parents=True, exist_ok=True)
    return {
        **kept,
        **folders,
        "PYTHONPATH": str(TESTS),
        "NETRC": str(folder / "netrc"),
        "WANDB_BASE_URL": address,
        "WANDB_API_KEY": KEY,
        "WANDB_CONSOLE": "off",
    }


def search(folder: Path, address: str, more: dict[str, str] | None = None, **told: Any) -> Seen:
    """Search in a process of its own."""
    command = [sys.executable, "-m", "search.sweep_script", str(folder / "search"), json.dumps(told)]
    environment = {**variables(folder, address), **(more or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert lines, done.stderr
    return Seen(json.loads(lines[0].removeprefix("SEEN ")), done.stderr)


def points(run: ServiceRun, key: str) -> list[tuple[int, float]]:
    return [(row["train/global_step"], row[key]) for row in run.history if key in row]


@pytest.mark.slow
def test_a_sweep_with_a_real_trainer(tmp_path: Path, service: WandbService) -> None:
    service.stops = {1: 2}
    seen = search(
        tmp_path,
        service.address,
        space=SPACE,
        num_trials=4,
        num_asked=3,  # it ends before the agent thinks that it does
        metric="eval/loss",
        delay={"1": 0.5},
        fails_in=2,
    )
    told = seen.told
    assert told["error"] is None
    (sweep,) = service.sweeps.values()
    assert (sweep.id, sweep.project, sweep.config["name"]) == (told["sweep"], "a-project", "a-search")
    assert sweep.config["metric"] == {"name": "eval/loss", "goal": "minimize"}
    # trials run where the search was called, and afterwards everything is as it was
    assert told["threads"] == ["MainThread"]
    assert (told["agents"], told["open_run"], told["is_environment_kept"]) == ([], False, True)
    assert told["close_seconds"] < 8
    # each trial is one run, with the values that the service drew, and no run is left over
    runs = list(service.runs.values())
    outcomes = told["outcomes"]
    assert [one["folder"] for one in outcomes] == [f"run-{run.id}" for run in runs]
    assert [one["params"] for one in outcomes] == [run.args for run in runs]
    assert [one["state"] for one in outcomes] == ["complete", "pruned", "failed"]
    assert [run.exit_code for run in runs] == [0, 0, 1]
    assert [run.summary["objective"] for run in runs] == [one["values"][0] for one in outcomes]
    for run in runs:
        settings = {key: run.config[key] for key in run.args}
        assert (settings, run.config["num_train_epochs"]) == (run.args, 1)
    # the tracker wrote into that run, up to the last value
    assert [len(points(run, "eval/loss")) for run in runs if run is not runs[1]] == [4, 4]
    assert 0 < len(points(runs[1], "eval/loss")) < 4
    assert [step for step, _ in points(runs[0], "train/loss")] == [2, 4, 6, 8]
    assert "train/train_runtime" in runs[0].history[-1]
    assert "was locked by" not in seen.stderr


@pytest.mark.slow
def test_an_error_reaches_the_caller_and_a_second_call_goes_on(tmp_path: Path, service: WandbService) -> None:
    grid = {"method": "grid", "parameters": {"seed": {"values": [1, 2, 3]}, "max_steps": {"value": 4}}}
    first = search(tmp_path, service.address, space=grid, num_trials=9, raises_in=1).told
    assert first["error"] == "MemoryError('no room for the model')"
    assert (first["agents"], first["open_run"], first["is_environment_kept"]) == ([], False, True)
    assert [run.exit_code for run in service.runs.values()] == [0, 1]
    second = search(tmp_path, service.address, space=grid, num_trials=9).told
    assert second["error"] is None
    assert first["sweep"] == second["sweep"]
    assert len(service.sweeps) == 1
    # the service counts the run that failed; after the last value of the grid it ends the search
    assert [one["params"]["seed"] for one in second["outcomes"]] == [1, 3]
    assert [one["number"] for one in second["outcomes"]] == [0, 1]
    # without a metric of its own, the objective is logged under that name
    (sweep,) = service.sweeps.values()
    last = list(service.runs.values())[-1]
    assert sweep.config["metric"]["name"] == "objective"
    assert [value for _, value in points(last, "objective")] == [
        value for _, value in points(last, "eval/loss")
    ]


@pytest.mark.slow
def test_a_service_that_dies_ends_the_search_in_time(tmp_path: Path, service: WandbService) -> None:
    service.dies_at = 3
    begun = time.monotonic()
    seen = search(
        tmp_path, service.address, {"WANDB_FINISH_TIMEOUT": "3"}, space=SPACE, num_trials=3, delay={"0": 1}
    )
    assert "W&B did not take the last values of run swept000 within 3 seconds" in seen.told["error"]
    assert "`wandb sync`" in seen.told["error"]
    assert [one["state"] for one in seen.told["outcomes"]] == ["complete"]
    assert time.monotonic() - begun < 60


REFUSALS = """
import os, sys
from footplate.search.record import TrialRecord
from footplate.search.wandb_study import WandbStudy
import wandb

SWEEP = {"method": "random", "parameters": {"seed": {"values": [1]}}}

def refused(**environment):
    before = dict(os.environ)
    os.environ.update(environment)
    if wandb.run is None:
        wandb.teardown()  # it reads its variables once in a process
    try:
        WandbStudy(SWEEP, TrialRecord("search", {}), 1)
    except Exception as error:
        print(type(error).__name__, error)
    os.environ.clear()
    os.environ.update(before)

refused(WANDB_MODE="offline")
refused(WANDB_MODE="disabled")
refused(WANDB_DISABLED="true")
wandb.teardown()
run = wandb.init(mode="offline", id="mine")
refused()
run.finish()
refused()
refused(WANDB_BASE_URL="http://127.0.0.1:9")
refused(WANDB_API_KEY="0" * 40)
wandb.teardown()
for name in ("nobody/nothing/gone", "a/b/c/d"):
    try:
        study = WandbStudy(None, TrialRecord("search", {}), 1, sweep_id=name)
        study.ask()
    except Exception as error:
        print(type(error).__name__, error)
        study.close()
print(study.ask())
"""


def test_every_refusal_comes_before_a_trial_and_names_the_setting(
    tmp_path: Path, service: WandbService
) -> None:
    service.refuses = {"UpsertSweep"}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", REFUSALS],
        cwd=tmp_path,
        env=variables(tmp_path, service.address),
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 10, done.stdout + done.stderr
    for line, mode in zip(
        lines, ("WANDB_MODE=offline", "WANDB_MODE=disabled", "WANDB_DISABLED"), strict=False
    ):
        assert line.startswith("ValueError")
        assert f"{mode} keeps the client away" in line
    assert "ValueError Run mine of W&B is open" in lines[3]
    assert "RuntimeError W&B did not create the sweep" in lines[4]
    assert "permission denied" in lines[4]
    assert (
        "ConnectionError The service of W&B does not answer at WANDB_BASE_URL=http://127.0.0.1:9" in lines[5]
    )
    assert "RuntimeError W&B did not create the sweep" in lines[6]
    assert "WANDB_API_KEY" in lines[6]
    assert "RuntimeError W&B gave no run of sweep nobody/nothing/gone for the next trial" in lines[7]
    assert "not found" in lines[7]
    assert "ValueError sweep_id='a/b/c/d': give it as" in lines[8]
    assert lines[9] == "None"  # an agent that has ended is not waited for
    assert service.runs == {}
    assert time.monotonic() - begun < 60


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from footplate.search.wandb_client import import_wandb

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"pip install 'footplate\[wandb\]'"):
        import_wandb()
