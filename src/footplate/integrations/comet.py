"""Comet: one experiment there for one run here, online or as an archive on disk."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import zipfile
from pathlib import Path
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.known import KnowingTracker, as_table, numbers
from footplate.integrations.run import Run

logger = logging.getLogger(__name__)

WAIT_SECONDS = 60.0  # how long the main thread waits for Comet where somebody asks for it there
MODES = ("get", "create", "get_or_create")


class CometCallback(KnowingTracker):
    """Sends a run to Comet.

    `COMET_START_MODE` or `COMET_MODE` ("get_or_create", "get", "create"), `COMET_START_ONLINE`,
    `COMET_PROJECT_NAME`, `COMET_EXPERIMENT_KEY`, `COMET_OFFLINE_DIRECTORY` and the client's other variables
    hold; `COMET_LOG_ASSETS=true` uploads the sealed checkpoints that are there at the end. An experiment that
    runs already is used and left open.
    """

    name = "comet_ml"
    package = "comet_ml"

    def __init__(self) -> None:
        super().__init__()
        self._log_assets = os.getenv("COMET_LOG_ASSETS", "false").lower() in ("1", "true", "yes")
        self._service: Any = None  # the experiment
        self._is_own = False  # whether it was begun here
        self._checkpoints: list[tuple[str, int]] = []

    @property
    def _experiment(self) -> Any:
        """The experiment, once all that was sent has reached it."""
        self.wait_for_service(WAIT_SECONDS)
        return self._service

    def open(self, run: Run) -> str | None:
        """Begin or continue the experiment; an archive that a kill has prevented is written anew."""
        client = _import_client()
        running = client.get_running_experiment()
        self._is_own = running is None or running is self._service  # it is, where this is a second attempt
        self._service = running or client.start(**_start_options(client, run))
        folder = getattr(self._service, "offline_directory", None)
        if folder is not None and self._is_own:
            self.learn(run, _read_points(Path(folder), self._service.get_key()))
        else:
            self.learn(run, None)
        parameters = {"args": run.settings, "config": run.model.get("config", {})}
        self._service.log_parameters(_flatten(parameters))
        self._service.log_other("model/num_parameters", run.model.get("num_parameters"))
        return str(self._service.get_key())

    def write(self, values: dict[str, Any], step: int) -> None:
        """Numbers as metrics, words as notes."""
        new = self.known.without(values, step)
        self._service.log_metrics(numbers(new), step=step, epoch=values.get("train/epoch"))
        for key, value in new.items():
            if isinstance(value, str):
                self._service.log_other(key, value)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """A table."""
        columns, data = as_table(rows)
        self._service.log_table(f"{source}-samples-{step}.csv", data, headers=columns)

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Remember it: those that are still there at the end are uploaded, if that is asked for."""
        self._checkpoints.append((folder, step))

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Upload the checkpoints that rotation has left, if that is asked for."""
        kept = [(folder, at) for folder, at in self._checkpoints if os.path.isdir(folder)]
        for folder, at in kept if self._log_assets else ():
            self._service.log_asset_folder(folder, step=at, log_file_name=True, recursive=True)
        self._checkpoints = []

    def close(self) -> None:
        """End an experiment that was begun here."""
        if self._is_own and self._service is not None:
            self._service.end()
        self._service = None


def _import_client() -> Any:
    try:
        return importlib.import_module("comet_ml")
    except ImportError as error:
        raise ImportError("report_to='comet_ml' needs comet_ml: pip install footplate[comet_ml].") from error


def _start_options(client: Any, run: Run) -> dict[str, Any]:
    """How the client begins this experiment, or goes on with it."""
    settings = client.get_config()
    mode = (os.getenv("COMET_START_MODE") or os.getenv("COMET_MODE") or "get_or_create").lower()
    if mode not in MODES:
        raise SetupError(f"COMET_MODE={mode!r} is none of {', '.join(MODES)}.")
    is_offline = settings["comet.start.online"] is False
    if not is_offline and not settings["comet.api_key"]:
        raise SetupError(
            "Comet has no API key. Run `comet login` or set COMET_API_KEY; COMET_START_ONLINE=0 keeps the "
            "run on disk, for `comet upload` later."
        )
    # Comet wants at least 32 letters; made from the run's name they are the same after a kill
    key = hashlib.sha256(run.run_id.encode()).hexdigest()[:32]
    return {
        "project_name": settings["comet.project_name"] or run.project,
        "experiment_key": os.getenv("COMET_EXPERIMENT_KEY") or run.service_id or key,
        "mode": "create" if run.trial and not run.service_id else mode,
        # it would start a second CodeCarbon, and ask the network where this machine stands
        "experiment_config": client.ExperimentConfig(name=run.trial or run.name, auto_log_co2=False),
    }


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level, with `/` between the names."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(_flatten(value, f"{name}/") if isinstance(value, dict) and value else {name: value})
    return flat


def _read_points(folder: Path, key: str) -> list[tuple[str, int]]:
    """Metric and step of every point in the archives of this experiment; a kill leaves none."""
    points = []
    for path in folder.glob(f"{key}*.zip"):
        try:
            with zipfile.ZipFile(path) as archive:
                messages = [json.loads(line) for line in archive.read("messages.json").splitlines()]
        except (zipfile.BadZipFile, KeyError, OSError):  # begun by a leg that was killed, or by this one
            continue
        metrics = [message["payload"]["metric"] for message in messages if message["type"] == "metric_msg"]
        points += [(metric["metricName"], metric["step"]) for metric in metrics if metric["step"] is not None]
    return points
