"""`hyperparameter_search(backend="wandb")`: the real client against a server on the loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from search.test_wandb_study import service, variables  # noqa: F401

SCRIPT = Path(__file__).with_name("sweep_search_script.py")


def test_a_search_is_a_sweep_and_each_trial_a_run(tmp_path, service):  # noqa: F811
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "out")],
        cwd=tmp_path,
        env=variables(tmp_path, service.address),
        capture_output=True,
        text=True,
        timeout=200,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert done.returncode == 0, done.stderr[-5000:]
    run_id, objective, values, sweep_id, again = json.loads(lines[0].removeprefix("SEEN "))
    (sweep,) = service.sweeps.values()
    assert (sweep.id, sweep.project) == (sweep_id, "a-project")
    assert sweep.config["metric"] == {"name": "eval/loss", "goal": "minimize"}
    runs = list(service.runs.values())
    assert [run.exit_code for run in runs] == [0, 1, 0]
    assert {path.name for path in (tmp_path / "out").glob("run-*")} == {f"run-{run.id}" for run in runs}
    (best,) = (run for run in runs if run.id == run_id)
    assert values == best.args
    assert objective == again == best.summary["objective"]
    assert objective == min(run.summary["objective"] for run in (runs[0], runs[2]))
    assert [row["eval/loss"] for row in best.history if "eval/loss" in row][-1] == pytest.approx(objective)
    lines = (tmp_path / "out" / "search" / "trials.jsonl").read_text().splitlines()
    assert [json.loads(line)["state"] for line in lines[1:]] == ["complete", "failed", "complete"]
    assert not (tmp_path / "out" / "run-0").exists()
