"""ClearML: one task there for one run here, online or as a folder on disk."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.known import KnowingTracker, as_table, numbers
from footplate.integrations.run import Run

WAIT_SECONDS = 60.0  # how long the main thread waits for ClearML where somebody asks for it there
TOTALS = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")


class ClearMLCallback(KnowingTracker):
    """Sends a run to ClearML.

    `CLEARML_PROJECT`, `CLEARML_TASK`, `CLEARML_OFFLINE_MODE` and the client's other variables hold;
    `CLEARML_LOG_MODEL=true` keeps every sealed checkpoint as an artifact. A task of your own, from
    `Task.init()` before training, is used and left open.
    """

    name = "clearml"
    package = "clearml"

    def __init__(self) -> None:
        super().__init__()
        self._log_model = os.getenv("CLEARML_LOG_MODEL", "false").lower() in ("1", "true", "yes", "on")
        self._task: Any = None
        self._is_own = False  # whether it was begun here

    @property
    def _clearml_task(self) -> Any:
        """The task, once all that was sent has reached it."""
        self.wait_for_service(WAIT_SECONDS)
        return self._task

    @property
    def _clearml(self) -> Any:
        """The client, once all that was sent has reached it."""
        self.wait_for_service(WAIT_SECONDS)
        return _import_client()

    def open(self, run: Run) -> str | None:
        """Begin or continue the task; what its folder holds is not written again."""
        client = _import_client()
        running = client.Task.current_task()
        self._is_own = running is None or running is self._task  # it is, where this is a second attempt
        self._task = running or _begin(client, run)
        is_local = self._is_own and client.Task.is_offline() and run.service_id
        self.learn(run, _read_points(Path(self._task.get_offline_mode_folder())) if is_local else None)
        self._task.set_parameters_as_dict({"Transformers": run.settings})
        if run.model.get("config"):
            self._task.set_configuration_object("Model Configuration", config_dict=run.model["config"])
        return str(self._task.id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Numbers as curves, one plot per heading; words as lines of its log."""
        logger = self._task.get_logger()
        new = self.known.without(values, step)
        for key, value in numbers(new).items():
            title, _, series = key.partition("/")
            logger.report_scalar(title, series or key, value=value, iteration=step)
        for key, value in new.items():
            if isinstance(value, str):
                logger.report_text(f"{key} at step {step}: {value}", print_console=False)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """A table."""
        columns, data = as_table(rows)
        logger = self._task.get_logger()
        logger.report_table(source, "samples", iteration=step, table_plot=[columns, *data])

    def write_checkpoint(self, folder: str, step: int) -> None:
        """An artifact, if that is asked for and rotation has left it; offline tasks keep no models."""
        if self._log_model and os.path.isdir(folder):
            # waits: the folder may be rotated away next
            self._task.upload_artifact(f"checkpoint-{step}", artifact_object=folder, wait_on_upload=True)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """The totals as single values."""
        for key in TOTALS:
            if key in metrics:
                self._task.get_logger().report_single_value(key, metrics[key])

    def close(self) -> None:
        """Close a task that was begun here."""
        if self._is_own and self._task is not None:
            self._task.close()
        self._task = None


def _import_client() -> Any:
    try:
        return importlib.import_module("clearml")
    except ImportError as error:
        raise ImportError("report_to='clearml' needs clearml: pip install footplate[clearml].") from error


def _begin(client: Any, run: Run) -> Any:
    """Begin the task, or go on with it."""
    if not client.Task.is_offline() and not _has_credentials():
        raise SetupError(
            "ClearML has no credentials. Run `clearml-init` or set CLEARML_API_ACCESS_KEY and "
            "CLEARML_API_SECRET_KEY; CLEARML_OFFLINE_MODE=1 keeps the run on disk, for "
            "`Task.import_offline_session` later."
        )
    return client.Task.init(
        project_name=os.getenv("CLEARML_PROJECT") or run.project,
        task_name=os.getenv("CLEARML_TASK") or (f"{run.name}-{run.trial}" if run.trial else run.name),
        reuse_last_task_id=run.service_id or False,
        continue_last_task=0 if run.service_id else False,  # a number: what it adds to our steps
        auto_connect_frameworks={"tensorboard": False, "pytorch": False},
        auto_connect_arg_parser=False,
        output_uri=None if client.Task.is_offline() else True,
    )


def _has_credentials() -> bool:
    named = os.getenv("CLEARML_CONFIG_FILE") or os.getenv("TRAINS_CONFIG_FILE") or "~/clearml.conf"
    return bool(os.getenv("CLEARML_API_ACCESS_KEY")) or Path(named).expanduser().is_file()


def _read_points(folder: Path) -> list[tuple[str, int]]:
    """Curve and step of every point in an offline task's folder, up to where a kill has cut it."""
    points = []
    path = folder / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            events = json.loads(line)
        except ValueError:
            continue
        points += [(f"{event['metric']}/{event['variant']}", event["iter"]) for event in events]
    return points
