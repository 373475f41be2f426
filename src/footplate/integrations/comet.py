"""Comet: each run is one experiment, online or in an archive on disk."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.known import WAIT_SECONDS, KnowingTracker
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.integrations.values import as_table, flatten, numbers
from footplate.words import read_flag

MODES = ("get", "create", "get_or_create")


class CometCallback(KnowingTracker):
    """Sends a run to Comet.

    `COMET_START_MODE` or `COMET_MODE` ("get_or_create", "get", "create"), `COMET_START_ONLINE`,
    `COMET_PROJECT_NAME`, `COMET_EXPERIMENT_KEY`, `COMET_OFFLINE_DIRECTORY` and the client's other environment
    variables apply; `COMET_LOG_ASSETS=true` uploads the sealed checkpoints that exist at the end. An
    experiment that is already running is used and not ended.
    """

    name = "comet_ml"

    def __init__(self) -> None:
        super().__init__()
        self._log_assets = read_flag("COMET_LOG_ASSETS")
        self._service: Any = None  # the experiment
        self._is_own = False  # whether this callback began it
        self._checkpoints: list[tuple[str, int]] = []

    @property
    def _experiment(self) -> Any:
        """The experiment; waits until it has received everything that was sent."""
        self.wait_for_service(WAIT_SECONDS)
        return self._service

    def open(self, run: Run) -> str | None:
        """Begin or continue the experiment; a kill leaves no archive, so everything is written again."""
        client = import_client("comet_ml")
        running = client.get_running_experiment()
        self._is_own = running is None or running is self._service  # a second attempt finds its own
        self._service = running or client.start(**_start_options(client, run))
        folder = getattr(self._service, "offline_directory", None)
        is_local = folder is not None and self._is_own
        self.learn(run, _read_points(Path(str(folder)), self._service.get_key()) if is_local else None)
        trial = {"trial": run.trial_params} if run.trial_params else {}
        parameters = {"args": run.settings, "config": run.model.get("config", {}), **trial}
        self._service.log_parameters(dict(flatten(parameters.items(), "/")))
        self._service.log_other("model/num_parameters", run.model.get("num_parameters"))
        return str(self._service.get_key())

    def write(self, values: dict[str, Any], step: int) -> None:
        """Write numbers as metrics and text as notes."""
        new = self.known.without(values, step)
        self._service.log_metrics(numbers(new), step=step, epoch=values.get("train/epoch"))
        for key, value in new.items():
            if isinstance(value, str):
                self._service.log_other(key, value)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write a table."""
        columns, data = as_table(rows)
        self._service.log_table(f"{source}-samples-{step}.csv", data, headers=columns)

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Remember the checkpoint for `end`."""
        self._checkpoints.append((folder, step))

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Upload the checkpoints that rotation has not removed, if wanted."""
        kept = [(folder, at) for folder, at in self._checkpoints if os.path.isdir(folder)]
        for folder, at in kept if self._log_assets else ():
            self._service.log_asset_folder(folder, step=at, log_file_name=True, recursive=True)
        self._checkpoints = []

    def close(self) -> None:
        """End the experiment, if this callback began it."""
        if self._is_own and self._service is not None:
            self._service.end()
        self._service = None


def _start_options(client: Any, run: Run) -> dict[str, Any]:
    """The options with which the client begins or continues this experiment."""
    settings = client.get_config()
    mode = (os.getenv("COMET_START_MODE") or os.getenv("COMET_MODE") or "get_or_create").lower()
    if mode not in MODES:
        raise SetupError(f"COMET_MODE={mode!r} is not one of {', '.join(MODES)}.")
    is_offline = settings["comet.start.online"] is False
    if not is_offline and not settings["comet.api_key"]:
        raise SetupError(
            "Comet has no API key. Run `comet login` or set COMET_API_KEY; COMET_START_ONLINE=0 keeps the "
            "run on disk, for `comet upload` later."
        )
    # Comet wants at least 32 letters; a hash of the run's id is the same after a kill
    key = hashlib.sha256(run.run_id.encode()).hexdigest()[:32]
    return {
        "project_name": settings["comet.project_name"] or run.project,
        "experiment_key": os.getenv("COMET_EXPERIMENT_KEY") or run.service_id or key,
        "mode": "create" if run.trial and not run.service_id else mode,
        # auto_log_co2 starts a second CodeCarbon, which asks the network where this machine is
        "experiment_config": client.ExperimentConfig(
            name=run.trial or run.name,
            tags=[run.search_name] if run.search_name else None,
            auto_log_co2=False,
        ),
    }


def _read_points(folder: Path, key: str) -> list[tuple[str, int]]:
    """Metric and step of every point in the archives of this experiment."""
    points = []
    for path in folder.glob(f"{key}*.zip"):
        try:
            with zipfile.ZipFile(path) as archive:
                messages = [json.loads(line) for line in archive.read("messages.json").splitlines()]
        except (zipfile.BadZipFile, KeyError, OSError):  # not complete: of a killed process, or of this one
            continue
        metrics = [message["payload"]["metric"] for message in messages if message["type"] == "metric_msg"]
        points += [(metric["metricName"], metric["step"]) for metric in metrics if metric["step"] is not None]
    return points
