from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from footplate.integrations.dagshub import DagsHubCallback
from footplate.integrations.guard import SetupError
from footplate.integrations.run import Run
from integrations import tracked
from integrations.mlflow_server import open_door, running_server


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No login and no variables of MLflow's, and a working directory that stays empty."""
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "DAGSHUB_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DAGSHUB_DISABLE_ANALYTICS", "1")
    monkeypatch.setattr("dagshub.common.config.cache_location", str(tmp_path / "tokens"))
    monkeypatch.setattr("dagshub.auth.tokens._token_storage", None)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    yield
    assert not list((tmp_path / "cwd").iterdir())


def test_a_run_goes_to_the_repository_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner").mkdir()
    uri = f"sqlite:///{tmp_path}/owner/repository.mlflow"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    callback = DagsHubCallback()
    trainer = tracked.run_all(tmp_path / "out", [callback])
    assert callback.finish(60), callback.guard.error
    client = mlflow.MlflowClient(uri)
    for key, expected in tracked.expected_points(trainer.state.log_history).items():
        history = client.get_metric_history(callback.service_id, key)
        assert [(point.step, point.value) for point in history] == expected, key
    assert client.get_run(callback.service_id).data.params["learning_rate"] == "0.05"


@pytest.mark.parametrize("uri", [None, "https://example.com/", "https://dagshub.com/owner/repository"])
def test_what_is_no_repository_is_refused(
    uri: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if uri is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(SetupError, match="MLFLOW_TRACKING_URI"):
        DagsHubCallback().open(Run("abc", "a-name", str(tmp_path)))


def test_without_a_login_nobody_is_asked_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://dagshub.com/owner/repository.mlflow")
    with pytest.raises(SetupError, match="No DagsHub login: set DAGSHUB_USER_TOKEN"):
        DagsHubCallback().open(Run("abc", "a-name", str(tmp_path)))


@pytest.mark.slow
def test_a_run_passes_dagshub_s_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server").mkdir()
    files = str(tmp_path / "files")
    options = ["--no-serve-artifacts", "--default-artifact-root", files]
    with running_server(tmp_path / "server", *options) as target, open_door(target) as door:
        uri = f"http://127.0.0.1:{door.server_port}/owner/repository.mlflow"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "somebody")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
        callback = DagsHubCallback()
        trainer = tracked.run_all(tmp_path / "out", [callback])
        assert callback.finish(60), callback.guard.error
        client = mlflow.MlflowClient(target)
        history = client.get_metric_history(callback.service_id, "eval/loss")
    expected = tracked.expected_points(trainer.state.log_history)["eval/loss"]
    assert [(point.step, point.value) for point in history] == expected
    assert set(door.paths) == {"/owner/repository.mlflow"}
    assert all(login is not None and login.startswith("Basic ") for login in door.logins)
