from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from footplate.integrations.guard import SetupError
from footplate.integrations.kubeflow import KubeflowCallback
from footplate.integrations.registry import build_trackers
from footplate.integrations.run import Run
from integrations import tracked
from integrations.certificates import make_certificate


class Controller(HTTPServer):
    """The controller's end: keeps what is posted, and answers as it is told to."""

    answer = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Listener)
        self.statuses: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []


class Listener(BaseHTTPRequestHandler):
    server: Controller

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.answer == 200:
            self.server.statuses.append(body["trainerStatus"])
            self.server.tokens.append(self.headers["Authorization"])
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    """A controller behind TLS, named by the variables that a TrainJob sets."""
    certificate, key = make_certificate(tmp_path)
    server = Controller()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", f"https://localhost:{server.server_port}/status")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_CA_CERT", str(certificate))
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", str(tmp_path / "token"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    # these tests pass the callback; in a TrainJob the arguments would add another one
    monkeypatch.setenv("DISABLE_KUBEFLOW_INTEGRATION", "1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Eager(KubeflowCallback):
    """Reports every update."""

    min_seconds = 0.0


def metrics(status: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in status["metrics"]}


def test_progress_time_left_and_metrics_are_posted(controller: Controller, tmp_path: Path) -> None:
    callback = Eager()
    trainer = tracked.run_all(tmp_path / "out", [callback])
    assert callback.finish(30)
    statuses = controller.statuses
    assert [status["progressPercentage"] for status in statuses] == [0, 12, 25, 37, 50, 62, 75, 87, 99, 100]
    assert metrics(statuses[0]) == {"total_steps": "8"}
    last = metrics(statuses[-1])
    assert last["train/loss"] == str(tracked.expected_points(trainer.state.log_history)["train/loss"][-1][1])
    assert last["eval/loss"] == str(tracked.expected_points(trainer.state.log_history)["eval/loss"][-1][1])
    assert last["current_step"] == "8"
    assert statuses[-1]["estimatedRemainingSeconds"] == 0
    assert {"current_step": "4", "total_steps": "8", "current_epoch": "0.25"}.items() <= metrics(
        statuses[4]
    ).items()
    assert all(datetime.fromisoformat(status["lastUpdatedTime"]).tzinfo for status in statuses)
    assert set(controller.tokens) == {"Bearer secret"}


def test_reports_are_seconds_apart(controller: Controller, tmp_path: Path) -> None:
    callback = KubeflowCallback()
    tracked.build_tracked_trainer(tmp_path / "out", [callback]).train()
    assert callback.finish(30)
    assert [status["progressPercentage"] for status in controller.statuses] == [0, 12, 100]


def test_a_resumed_run_goes_on_from_its_step(controller: Controller, tmp_path: Path) -> None:
    tracked.build_tracked_trainer(tmp_path / "out", []).train()
    callback = Eager()
    trainer = tracked.build_tracked_trainer(tmp_path / "out", [callback])
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    assert callback.finish(30)
    assert [status["progressPercentage"] for status in controller.statuses] == [50, 62, 75, 87, 99, 100]


def test_a_controller_that_fails_is_tried_again_with_the_next_report(
    controller: Controller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = Eager()
    run = Run("abc", "a-name", str(tmp_path), max_steps=10)
    controller.answer = 503
    callback._open_run(run)
    callback._report(1, 0.1)
    controller.answer = 200
    callback._report(2, 0.2)
    assert [status["progressPercentage"] for status in controller.statuses] == [20]
    assert len([record for record in caplog.records if "503" in record.message]) == 1


def test_a_token_that_changes_is_read_anew(controller: Controller, tmp_path: Path) -> None:
    callback = Eager()
    callback._open_run(Run("abc", "a-name", str(tmp_path), max_steps=10))
    (tmp_path / "token").write_text("fresh")
    callback._report(1, None)
    assert controller.tokens == ["Bearer secret", "Bearer fresh"]


def test_a_certificate_of_somebody_else_is_not_trusted(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_CA_CERT", str(make_certificate(tmp_path / "other")[0]))
    KubeflowCallback()._open_run(Run("abc", "a-name", str(tmp_path), max_steps=10))
    assert controller.statuses == []
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


@pytest.mark.parametrize("missing", ["KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN"])
def test_what_is_not_set_is_named(
    missing: str, controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(missing)
    with pytest.raises(SetupError, match=missing):
        KubeflowCallback()._open_run(Run("abc", "a-name", str(tmp_path), max_steps=10))


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_trackers("kubeflow") == [KubeflowCallback]
    monkeypatch.setenv("DISABLE_KUBEFLOW_INTEGRATION", "TRUE")
    assert build_trackers("kubeflow") == []


@pytest.mark.parametrize("switch", [None, "true"])
def test_inside_a_train_job_it_is_among_the_trackers(tmp_path, monkeypatch, switch):
    from footplate import TrainingArguments

    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL", raising=False)
    assert TrainingArguments(str(tmp_path), report_to="none").report_to == []
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", "http://localhost")
    if switch is not None:
        monkeypatch.setenv("DISABLE_KUBEFLOW_INTEGRATION", switch)
    added = [] if switch else ["kubeflow"]
    assert TrainingArguments(str(tmp_path), report_to="none").report_to == added
    assert TrainingArguments(str(tmp_path), report_to="wandb").report_to == ["wandb", *added]
    assert TrainingArguments(str(tmp_path), report_to=["kubeflow"]).report_to == ["kubeflow"]
