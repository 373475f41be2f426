from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest

from footplate.integrations.mlflow import MLflowCallback
from integrations import tracked
from integrations.mlflow_server import running_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that keeps the files as well, and the variables that lead to it."""
    folder = tmp_path_factory.mktemp("server")
    with (
        pytest.MonkeyPatch.context() as patch,
        running_server(folder, "--artifacts-destination", str(folder)) as uri,
    ):
        for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
            patch.delenv(name)
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        patch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        patch.setenv("HF_MLFLOW_LOG_ARTIFACTS", "1")
        patch.chdir(tmp_path_factory.mktemp("cwd"))
        yield uri
        assert not list(Path.cwd().iterdir())
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])
    ]


def curves_of(client: Any, run_id: str) -> dict[str, list[tuple[int, float]]]:
    return {
        key: [(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)]
        for key in client.get_run(run_id).data.metrics
    }


def test_a_run_reaches_the_server_whole(server: str, tmp_path: Path) -> None:
    callback = MLflowCallback()
    trainer = tracked.run_all(tmp_path, [callback])
    assert callback.finish(60)
    client = mlflow.MlflowClient(server)
    found = client.get_run(callback.service_id)
    curves = curves_of(client, str(callback.service_id))
    for key, expected in tracked.expected_points(trainer.state.log_history).items():
        assert curves[key] == expected, key
    assert curves["ood/loss"][0][0] == tracked.NUM_STEPS
    assert found.info.status == "FINISHED"
    assert found.data.params["learning_rate"] == "0.05"
    table = mlflow.load_table("samples/eval/step-00000008.json", run_ids=[callback.service_id])
    assert table.astype(str).to_dict("records") == tracked.SAMPLES
    copy = Path(client.download_artifacts(callback.service_id, "checkpoint-8", str(tmp_path)))
    weights = "model.safetensors"
    assert (copy / weights).read_bytes() == (
        Path(trainer.args.output_dir) / "checkpoint-8" / weights
    ).read_bytes()


def test_a_killed_and_resumed_run_is_one_run_on_the_server(server: str, tmp_path: Path) -> None:
    variables = {"MLFLOW_EXPERIMENT_NAME": "killed"}
    outcome = tracked.kill_and_resume("footplate.integrations.mlflow", "MLflowCallback", tmp_path, variables)
    client = mlflow.MlflowClient(server)
    experiment = client.get_experiment_by_name("killed")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.run_id for run in runs] == [outcome.service_id]
    tracked.assert_no_gap_and_no_double(curves_of(client, runs[0].info.run_id), outcome)
    assert runs[0].info.status == "FINISHED"
