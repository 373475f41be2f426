"""Kubeflow Trainer: progress, remaining time and last metrics of a training job."""

from __future__ import annotations

import json
import logging
import os
import ssl
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from footplate.integrations.base import TrackerCallback
from footplate.integrations.guard import SetupError
from footplate.integrations.run import Run
from footplate.integrations.values import numbers
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

TIMEOUT = 5.0  # seconds for one report


class KubeflowCallback(TrackerCallback):
    """Reports the progress of training to the controller of a TrainJob.

    The controller sets `KUBEFLOW_TRAINER_SERVER_URL`, and `KUBEFLOW_TRAINER_SERVER_CA_CERT` and
    `KUBEFLOW_TRAINER_SERVER_TOKEN` to paths. A report that fails is not repeated: the next one replaces it.
    """

    name = "kubeflow"
    min_seconds: ClassVar[float] = 5.0  # between two reports

    def __init__(self) -> None:
        super().__init__()
        self._url = ""
        self._context: ssl.SSLContext | None = None
        self._metrics: dict[str, float] = {}
        self._begun = self._reported = 0.0
        self._has_warned = False

    def open(self, run: Run) -> str | None:
        """Report that training begins or resumes."""
        self._url = os.getenv("KUBEFLOW_TRAINER_SERVER_URL", "")
        if not self._url:
            raise SetupError(
                "KUBEFLOW_TRAINER_SERVER_URL is not set. A TrainJob sets it if the feature gate "
                "TrainJobRuntimeStatus is on; elsewhere remove 'kubeflow' from report_to."
            )
        certificate = os.getenv("KUBEFLOW_TRAINER_SERVER_CA_CERT")
        self._context = ssl.create_default_context(cafile=certificate) if certificate else None
        self._metrics, self._begun = {}, time.monotonic()
        if run.max_steps > 0:
            self._try_to_post(_percent(run, run.first_step), None, {"total_steps": run.max_steps})
        return run.run_id

    def write(self, values: dict[str, Any], step: int) -> None:
        """Keep the numbers for the next report."""
        self._metrics.update(numbers(values))

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Send the last report; if it fails, the guard tries again."""
        self._post(100, 0, {**self._metrics, "current_step": step})

    # ---- events of the run ----

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Report every `min_seconds`."""
        now = time.monotonic()
        if now - self._reported >= self.min_seconds and state.max_steps > 0 and self._current is not None:
            self._reported = now
            self.guard.submit(self._report, state.global_step, state.epoch)

    # ---- on the guard's thread ----

    def _report(self, step: int, epoch: float | None) -> None:
        assert self.run is not None
        steps = {"current_step": step, "total_steps": self.run.max_steps}
        epochs = {} if epoch is None else {"current_epoch": round(epoch, 2)}
        seconds_per_step = (time.monotonic() - self._begun) / max(step - self.run.first_step, 1)
        left = int(seconds_per_step * (self.run.max_steps - step))
        self._try_to_post(_percent(self.run, step), left, {**self._metrics, **steps, **epochs})

    def _try_to_post(self, percent: int, left: int | None, metrics: dict[str, Any]) -> None:
        try:
            self._post(percent, left, metrics)
        except OSError as error:  # errors of urllib are OSErrors too
            level = logging.DEBUG if self._has_warned else logging.WARNING
            logger.log(level, "Progress was not reported to %s: %s. Training goes on.", self._url, error)
            self._has_warned = True

    def _post(self, percent: int, left: int | None, metrics: dict[str, Any]) -> None:
        status: dict[str, Any] = {
            "lastUpdatedTime": datetime.now(timezone.utc).isoformat(),
            "progressPercentage": percent,
            "metrics": [{"name": name, "value": str(value)} for name, value in metrics.items()],
        }
        if left is not None:
            status["estimatedRemainingSeconds"] = max(left, 0)
        request = urllib.request.Request(
            self._url,
            data=json.dumps({"trainerStatus": status}).encode(),
            headers={"Authorization": f"Bearer {_read_token()}", "Content-Type": "application/json"},
            method="POST",
        )
        urllib.request.urlopen(request, timeout=TIMEOUT, context=self._context).close()


def _percent(run: Run, step: int) -> int:
    """The percentage done; 100 is kept for `end`."""
    return min(100 * step // run.max_steps, 99)


def _read_token() -> str:
    """The token, read for each report because the cluster changes it."""
    path = os.getenv("KUBEFLOW_TRAINER_SERVER_TOKEN", "")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SetupError(
            f"KUBEFLOW_TRAINER_SERVER_TOKEN={path!r} is not a file with a token: {error}."
        ) from error
