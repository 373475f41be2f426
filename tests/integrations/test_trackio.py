from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from integrations import tracked


def local(folder: Path) -> dict[str, str]:
    """Variables that keep Trackio below this folder."""
    return {"TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}


def read_database(folder: Path, project: str = "huggingface") -> dict[str, Any]:
    """The runs of a project: rows of metrics, and configurations."""
    with sqlite3.connect(folder / "trackio" / f"{project}.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        configs = database.execute("SELECT run_name, config FROM configs").fetchall()
    return {
        "rows": [(name, step, json.loads(values)) for name, step, values in rows],
        "configs": {name: json.loads(config) for name, config in configs},
    }


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was killed and resumed, and what the database says of it."""
    folder = tmp_path_factory.mktemp("trackio")
    module = "footplate.integrations.trackio"
    outcome = tracked.kill_and_resume(module, "TrackioCallback", folder / "run", local(folder))
    return outcome, read_database(folder)


@pytest.mark.slow
def test_killed_and_resumed_it_is_one_run_without_gaps_or_doubles(resumed: Any) -> None:
    outcome, database = resumed
    assert {name for name, _, _ in database["rows"]} == {"a-line"} == {outcome.service_id}
    curves: dict[str, list[tuple[int, float]]] = {}
    for _, step, values in database["rows"]:
        for key, value in values.items():
            curves.setdefault(key, []).append((step, value))
    tracked.assert_no_gap_and_no_double(curves, outcome)
    assert {key.split("/")[0] for key in curves} == {"train", "eval", "ood"}


def test_settings_and_model_are_the_config(resumed: Any) -> None:
    _, database = resumed
    config = database["configs"]["a-line"]
    assert config["learning_rate"] == 0.05
    assert config["hidden_size"] == 2
    assert config["model/num_parameters"] == 2


def test_samples_are_a_table(resumed: Any) -> None:
    _, database = resumed
    ((step, table),) = [(s, v["eval/samples"]) for _, s, v in database["rows"] if "eval/samples" in v]
    assert step == tracked.NUM_STEPS
    assert table["_value"] == tracked.SAMPLES


@pytest.mark.slow
def test_own_runs_projects_and_values_of_subclasses(tmp_path: Path) -> None:
    """The user's run is used and left open; a new training with the same name is a new run."""
    code = f"""
from pathlib import Path
import trackio
from integrations import tracked
from footplate.integrations.trackio import TrackioCallback

class Mine(TrackioCallback):
    def on_evaluate(self, args, state, control, **kwargs):
        self._trackio.log({{"mine": state.global_step}}, step=state.global_step)

own = trackio.init(project="theirs", name="their-run", embed=False)
tracker = TrackioCallback()
tracked.run_all(Path({str(tmp_path / "one")!r}), [tracker], save_strategy="no")
assert tracker.finish(30)
trackio.log({{"after": 1}})
trackio.finish()
for folder in ("two", "three"):
    tracker = Mine()
    settings = dict(save_strategy="no", project="other", max_steps=2)
    tracked.run_all(Path({str(tmp_path)!r}, folder), [tracker], **settings)
    assert tracker.finish(30)
"""
    tracked.run_code(code, local(tmp_path))
    theirs = read_database(tmp_path, "theirs")
    assert {name for name, _, _ in theirs["rows"]} == {"their-run"}
    assert [s for _, s, v in theirs["rows"] if "train/loss" in v] == list(range(1, tracked.NUM_STEPS + 1))
    assert theirs["configs"]["their-run"]["learning_rate"] == 0.05
    assert any("after" in values for _, _, values in theirs["rows"])
    other = read_database(tmp_path, "other")
    assert [s for _, s, v in other["rows"] if "mine" in v] == [2, 2]
    with sqlite3.connect(tmp_path / "trackio" / "other.db") as database:
        assert database.execute("SELECT COUNT(DISTINCT run_id) FROM metrics").fetchone() == (2,)
