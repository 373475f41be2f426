from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from footplate.integrations.clearml import ClearMLCallback
from footplate.integrations.guard import SetupError
from footplate.integrations.run import Run
from integrations import tracked


def offline(folder: Path) -> dict[str, str]:
    """Variables that keep ClearML on this disk and below this folder."""
    return {
        "CLEARML_OFFLINE_MODE": "1",
        "CLEARML_CACHE_DIR": str(folder / "clearml"),
        "CLEARML_CONFIG_FILE": str(folder / "clearml.conf"),
        "HOME": str(folder),
    }


def read_session(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The only task of a folder, and its events."""
    (path,) = folder.glob("clearml/offline/*/task.json")
    lines = path.with_name("metrics.jsonl").read_text().splitlines()
    return json.loads(path.read_text()), [event for line in lines for event in json.loads(line)]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was killed and resumed, and the session it has left."""
    folder = tmp_path_factory.mktemp("clearml")
    environment = {**offline(folder), "CLEARML_PROJECT": "my-project", "CLEARML_TASK": "my-task"}
    environment["CLEARML_LOG_MODEL"] = "true"
    module = "footplate.integrations.clearml"
    outcome = tracked.kill_and_resume(module, "ClearMLCallback", folder / "run", environment)
    return outcome, *read_session(folder)


@pytest.mark.slow
def test_killed_and_resumed_it_is_one_task_without_gaps_or_doubles(resumed: Any) -> None:
    outcome, task, events = resumed
    assert task["id"] == outcome.service_id
    assert (task["project_name"], task["name"]) == ("my-project", "my-task")
    curves: dict[str, list[tuple[int, float]]] = {}
    for event in events:
        if event["type"] == "training_stats_scalar":
            key = f"{event['metric']}/{event['variant']}"
            curves.setdefault(key, []).append((event["iter"], event["value"]))
    tracked.assert_no_gap_and_no_double(curves, outcome)
    assert [value for key, points in curves.items() if key.endswith("/train_loss") for _, value in points]


@pytest.mark.slow
def test_settings_are_parameters_and_the_model_a_configuration(resumed: Any) -> None:
    _, task, _ = resumed
    assert task["hyperparams"]["Transformers"]["learning_rate"]["value"] == "0.05"
    assert "hidden_size" in task["configuration"]["Model Configuration"]["value"]


@pytest.mark.slow
def test_samples_are_a_table_and_checkpoints_are_artifacts(resumed: Any) -> None:
    _, task, events = resumed
    (table,) = [event for event in events if event["variant"] == "samples"]
    assert (table["metric"], table["iter"]) == ("eval", tracked.NUM_STEPS)
    assert "x = 2" in table["plot_str"]
    artifacts = {artifact["key"]: artifact for artifact in task["execution"]["artifacts"]}
    assert set(artifacts) == {f"checkpoint-{step}" for step in (2, 4, 6, 8)}
    assert "model.safetensors" in artifacts["checkpoint-8"]["type_data"]["preview"]


def test_without_credentials_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**offline(tmp_path), "CLEARML_OFFLINE_MODE": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLEARML_API_ACCESS_KEY", raising=False)
    with pytest.raises(SetupError, match=r"clearml-init.*CLEARML_OFFLINE_MODE=1"):
        ClearMLCallback().open(Run(run_id="r1", name="n", output_dir=str(tmp_path)))


@pytest.mark.slow
def test_a_task_of_the_users_own_is_used_and_left_open(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from clearml import Task
from integrations import tracked
from footplate.integrations.clearml import ClearMLCallback

own = Task.init("theirs", "their-task", auto_connect_frameworks=False, auto_resource_monitoring=False)
tracker = ClearMLCallback()
tracked.run_all(Path({str(tmp_path / "run")!r}), [tracker], save_strategy="no", max_steps=2)
assert tracker._clearml_task is own
assert tracker.finish(30)
own.get_logger().report_scalar("after", "end", 1, iteration=3)
own.close()
"""
    tracked.run_code(code, offline(tmp_path))
    task, events = read_session(tmp_path)
    assert (task["project_name"], task["name"]) == ("theirs", "their-task")
    assert [e["iter"] for e in events if (e["metric"], e["variant"]) == ("train", "loss")] == [1, 2]
    assert any(event["metric"] == "after" for event in events)
