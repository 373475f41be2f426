from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from footplate.integrations.comet import CometCallback
from footplate.integrations.guard import SetupError
from footplate.integrations.run import Run
from integrations import tracked


def offline(folder: Path) -> dict[str, str]:
    """Variables that keep Comet on this disk and below this folder."""
    return {
        "COMET_START_ONLINE": "0",
        "COMET_OFFLINE_DIRECTORY": str(folder / "archives"),
        "COMET_LOGGING_CONSOLE": "ERROR",
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }


def read_archives(folder: Path) -> list[dict[str, Any]]:
    """The experiments in a folder of archives: what each is, and its messages."""
    experiments = []
    for path in sorted(folder.glob("archives/*.zip"), key=lambda path: path.stat().st_mtime):
        with zipfile.ZipFile(path) as archive:
            if "messages.json" not in archive.namelist():  # begun by a process that was killed
                continue
            messages = [json.loads(line) for line in archive.read("messages.json").splitlines()]
            names = archive.namelist()
            experiments.append(
                {**json.loads(archive.read("experiment.json")), "messages": messages, "names": names}
            )
    return experiments


def payloads(experiment: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [message["payload"] for message in experiment["messages"] if message["type"] == kind]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was killed and resumed, and the archive that the second process has made."""
    folder = tmp_path_factory.mktemp("comet")
    environment = {**offline(folder), "COMET_PROJECT_NAME": "my-project", "COMET_LOG_ASSETS": "true"}
    module = "footplate.integrations.comet"
    outcome = tracked.kill_and_resume(module, "CometCallback", folder / "run", environment)
    (experiment,) = read_archives(folder)
    return outcome, experiment


@pytest.mark.slow
def test_killed_and_resumed_it_is_one_experiment_without_gaps_or_doubles(resumed: Any) -> None:
    outcome, experiment = resumed
    assert experiment["offline_id"] == outcome.service_id
    assert experiment["project_name"] == "my-project"
    curves: dict[str, list[tuple[int, float]]] = {}
    for payload in payloads(experiment, "metric_msg"):
        metric = payload["metric"]
        curves.setdefault(metric["metricName"], []).append((metric["step"], metric["metricValue"]))
    tracked.assert_no_gap_and_no_double(curves, outcome)


def test_settings_and_model_are_parameters(resumed: Any) -> None:
    _, experiment = resumed
    named = [p.get("param") or p["params"] for p in payloads(experiment, "parameter_msg")]
    parameters = {param["paramName"]: param["paramValue"] for param in named}
    assert float(parameters["args/learning_rate"]) == 0.05
    assert int(parameters["config/hidden_size"]) == 2
    assert parameters["config/nested/name"] == "line"
    others = {payload["key"]: payload["value"] for payload in payloads(experiment, "log_other")}
    assert others["Name"] == "a-line"
    assert others["model/num_parameters"] == 2


def test_samples_are_a_table_and_checkpoints_are_assets(resumed: Any) -> None:
    _, experiment = resumed
    files = [payload["additional_params"] or {} for payload in payloads(experiment, "file_upload")]
    names = {str(file.get("fileName")) for file in files}
    assert f"eval-samples-{tracked.NUM_STEPS}.csv" in names
    assert f"checkpoint-{tracked.NUM_STEPS}/model.safetensors" in names


@pytest.mark.slow
def test_a_running_experiment_is_used_and_left_open(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
import comet_ml
from integrations import tracked
from footplate.integrations.comet import CometCallback

own = comet_ml.start(experiment_key="b" * 32, experiment_config=comet_ml.ExperimentConfig(auto_log_co2=False))
tracker = CometCallback()
tracked.run_all(Path({str(tmp_path / "run")!r}), [tracker], save_strategy="no")
assert tracker._experiment is own
assert tracker.finish(30)
own.log_metric("after", 1)
own.end()
"""
    tracked.run_code(code, offline(tmp_path))
    (experiment,) = read_archives(tmp_path)
    metrics = [payload["metric"]["metricName"] for payload in payloads(experiment, "metric_msg")]
    assert experiment["offline_id"] == "b" * 32
    assert metrics.count("train/loss") == tracked.NUM_STEPS
    assert metrics.count("after") == 1


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"COMET_START_ONLINE": "1"}, r"comet login.*COMET_START_ONLINE=0"),
        ({"COMET_MODE": "sometimes"}, "COMET_MODE='sometimes' is not one of get, create"),
    ],
)
def test_without_a_key_or_with_an_unknown_mode_it_says_so_and_never_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in {**offline(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("COMET_API_KEY", raising=False)
    with pytest.raises(SetupError, match=message):
        CometCallback().open(Run(run_id="r1", name="n", output_dir=str(tmp_path)))
