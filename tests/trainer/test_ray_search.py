"""A search by Ray Tune: its processes, its schedulers, its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("ray_search_script.py")


def read_trials(folder):
    lines = (folder / "search" / "trials.jsonl").read_text().splitlines()[1:]
    return sorted((json.loads(line) for line in lines), key=lambda line: line["number"])


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The folder of the searches, and what the script printed."""
    pytest.importorskip("ray.tune", reason="needs Ray: make test-slow installs it")
    folder = tmp_path_factory.mktemp("ray")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_four_trials_one_of_which_fails(searched):
    folder, results = searched
    first, trials = results["first"], read_trials(folder / "grid")
    assert [trial["state"] for trial in trials] == ["complete", "complete", "failed", "complete"]
    assert "the rate is too high" in trials[2]["error"]
    assert first["id"] == first["ids"][1]
    assert first["values"] == {"learning_rate": 0.1}
    assert first["objective"] == first["again"] == trials[1]["values"][0]
    assert [trial["folder"] for trial in trials if trial["folder"]] == [
        f"run-{first['ids'][number]}" for number in (0, 1, 3)
    ]
    assert (folder / "grid" / f"run-{first['id']}" / trials[1]["checkpoint"]).is_dir()
    assert (folder / "grid" / "report.html").is_file()


@pytest.mark.slow
def test_a_second_call_makes_no_further_trial(searched):
    _, results = searched
    assert results["second"] == results["first"]


@pytest.mark.slow
def test_a_scheduler_of_ray_ends_trials(searched):
    folder, results = searched
    trials = read_trials(folder / "stopped")
    assert len(trials) == 4
    assert {trial["state"] for trial in trials} == {"complete", "pruned"}
    assert results["stopped"]["id"] in results["stopped"]["ids"]
    assert all(trial["folder"] == f"seed-{trial['params']['seed']}" for trial in trials)
