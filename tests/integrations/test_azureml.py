from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import mlflow
import pytest

from footplate.integrations.azureml import AzureMLCallback
from footplate.integrations.guard import SetupError
from footplate.integrations.mlflow import MLflowCallback
from footplate.integrations.run import Run
from integrations import tracked
from integrations.certificates import make_certificate
from integrations.mlflow_server import open_door, running_server

WORKSPACE = (
    "/mlflow/v2.0/subscriptions/s-1/resourceGroups/group"
    "/providers/Microsoft.MachineLearningServices/workspaces/space"
)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variables of MLflow's but those that keep it silent, and a working directory that stays empty."""
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    yield
    assert not list((tmp_path / "cwd").iterdir())


def test_a_run_goes_where_the_variable_says_within_azure_s_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"sqlite:///{tmp_path}/azure.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    callback = AzureMLCallback()
    trainer = tracked.build_tracked_trainer(tmp_path / "out", [callback], max_steps=2)
    trainer.model.config = Wide()
    trainer.train()
    assert callback.finish(60)
    client = mlflow.MlflowClient(uri)
    data = client.get_run(callback.service_id).data
    assert len(data.params) == 200
    assert set(trainer.args.to_dict()) <= set(data.params)
    assert "long" not in data.params
    assert "azure_ml does not accept all" in caplog.text
    assert [item.path for item in client.list_artifacts(callback.service_id)] == ["arguments.json"]
    history = client.get_metric_history(callback.service_id, "train/loss")
    assert [(point.step, point.value) for point in history] == tracked.expected_points(
        trainer.state.log_history
    )["train/loss"]


class Wide:
    """A configuration with more than Azure takes."""

    def to_dict(self) -> dict[str, Any]:
        return {"long": "x" * 501, **{f"setting_{number}": number for number in range(200)}}


def test_without_an_address_it_says_where_to_find_it(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="MLFLOW_TRACKING_URI is not set"):
        AzureMLCallback().open(Run("abc", "a-name", str(tmp_path)))


def test_without_a_login_nobody_is_asked_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"azureml://localhost:9{WORKSPACE}")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "dev")  # no metadata service is looked for
    for callback in (AzureMLCallback(), MLflowCallback()):
        with pytest.raises(SetupError, match="There is no Azure login: run `az login`"):
            callback.open(Run("abc", "a-name", str(tmp_path)))


class CoreRun:
    """What azureml-core gives a job, as far as it is used; it cannot be installed beside the others."""

    id = "core-1"

    def __init__(self) -> None:
        self.logged: list[tuple[str, float, int | None]] = []
        self.tables: dict[str, Any] = {}

    def log(self, name: str, value: float, description: str = "", step: int | None = None) -> None:
        self.logged.append((name, value, step))

    def log_table(self, name: str, value: dict[str, list[Any]], description: str = "") -> None:
        self.tables[name] = value


class OfflineCoreRun(CoreRun):
    """Its stand-in outside a job, which knows no steps."""

    def log(self, name: str, value: float, description: str = "") -> None:  # type: ignore[override]
        self.logged.append((name, value, None))


@pytest.mark.parametrize("kind", [CoreRun, OfflineCoreRun])
def test_a_run_of_azureml_core_gets_every_metric(kind: type[CoreRun], tmp_path: Path) -> None:
    core = kind()
    callback = AzureMLCallback(azureml_run=core)
    trainer = tracked.run_all(tmp_path / "out", [callback])
    assert callback.finish(60)
    expected = tracked.expected_points(trainer.state.log_history)["train/loss"]
    found = [(step, value) for name, value, step in core.logged if name == "train/loss"]
    assert found == [(step if kind is CoreRun else None, value) for step, value in expected]
    assert core.tables["eval/samples"]["prediction"] == ["4.7", "<b>6.9</b>"]
    assert callback.service_id == "core-1"


@pytest.mark.slow
def test_azure_s_own_plugin_brings_a_job_s_run_to_its_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    token = jwt.encode({"exp": time.time() + 3600}, "a key that is long enough for this")
    (tmp_path / "server").mkdir()
    options = ["--no-serve-artifacts", "--default-artifact-root", str(tmp_path / "files")]
    with running_server(tmp_path / "server", *options) as target, open_door(target, certificate) as door:
        client = mlflow.MlflowClient(target)
        job = client.create_run("0").info.run_id
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"azureml://localhost:{door.server_port}{WORKSPACE}")
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)
        monkeypatch.setenv("MLFLOW_RUN_ID", job)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "0")
        callback = AzureMLCallback()
        trainer = tracked.run_all(tmp_path / "out", [callback])
        assert callback.finish(60), callback.guard.error
        data = client.get_run(job).data
        for key, expected in tracked.expected_points(trainer.state.log_history).items():
            assert [(p.step, p.value) for p in client.get_metric_history(job, key)] == expected, key
    assert callback.service_id == job
    assert data.params["learning_rate"] == "0.05"
    assert "ood/loss" in data.metrics
    assert door.logins == {f"Bearer {token}"}
    assert set(door.paths) == {WORKSPACE}
