"""ClearML: each run is one task, online or in a folder on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.known import TOTALS, WAIT_SECONDS, KnowingTracker
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.integrations.values import as_table, numbers
from footplate.words import read_flag


class ClearMLCallback(KnowingTracker):
    """Sends a run to ClearML.

    `CLEARML_PROJECT`, `CLEARML_TASK`, `CLEARML_OFFLINE_MODE` and the client's other environment variables
    apply; `CLEARML_LOG_MODEL=true` uploads every sealed checkpoint as an artifact. Your own task, from
    `Task.init()` before training, is used and not closed.
    """

    name = "clearml"

    def __init__(self) -> None:
        super().__init__()
        self._log_model = read_flag("CLEARML_LOG_MODEL")
        self._task: Any = None
        self._is_own = False  # whether this callback began it

    @property
    def _clearml_task(self) -> Any:
        """The task; waits until it has received everything that was sent."""
        self.wait_for_service(WAIT_SECONDS)
        return self._task

    @property
    def _clearml(self) -> Any:
        """The client; waits until it has received everything that was sent."""
        self.wait_for_service(WAIT_SECONDS)
        return import_client("clearml")

    def open(self, run: Run) -> str | None:
        """Begin or continue the task; points that its folder has are not written again."""
        client = import_client("clearml")
        running = client.Task.current_task()
        self._is_own = running is None or running is self._task  # a second attempt finds its own
        self._task = running or _begin(client, run)
        is_local = self._is_own and client.Task.is_offline() and run.service_id
        self.learn(run, _read_points(Path(self._task.get_offline_mode_folder())) if is_local else None)
        trial = {"Trial": run.trial_params} if run.trial_params else {}
        self._task.set_parameters_as_dict({"Transformers": run.settings, **trial})
        if run.model.get("config"):
            self._task.set_configuration_object("Model Configuration", config_dict=run.model["config"])
        return str(self._task.id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Write numbers as curves, with one plot per heading, and text as lines of the task's log."""
        logger = self._task.get_logger()
        new = self.known.without(values, step)
        for key, value in numbers(new).items():
            title, _, series = key.partition("/")
            logger.report_scalar(title, series or key, value=value, iteration=step)
        for key, value in new.items():
            if isinstance(value, str):
                logger.report_text(f"{key} at step {step}: {value}", print_console=False)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write a table."""
        columns, data = as_table(rows)
        logger = self._task.get_logger()
        logger.report_table(source, "samples", iteration=step, table_plot=[columns, *data])

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Upload the checkpoint as an artifact, if wanted; offline tasks keep no models."""
        if self._log_model and os.path.isdir(folder):
            # wait for the upload: rotation may remove the folder next
            self._task.upload_artifact(f"checkpoint-{step}", artifact_object=folder, wait_on_upload=True)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Write the totals as single values."""
        for key in TOTALS:
            if key in metrics:
                self._task.get_logger().report_single_value(key, metrics[key])

    def close(self) -> None:
        """Close the task, if this callback began it."""
        if self._is_own and self._task is not None:
            self._task.close()
        self._task = None


def _begin(client: Any, run: Run) -> Any:
    """Begin or continue the task."""
    if not client.Task.is_offline() and not _has_credentials():
        raise SetupError(
            "ClearML has no credentials. Run `clearml-init` or set CLEARML_API_ACCESS_KEY and "
            "CLEARML_API_SECRET_KEY; CLEARML_OFFLINE_MODE=1 keeps the run on disk, for "
            "`Task.import_offline_session` later."
        )
    return client.Task.init(
        project_name=os.getenv("CLEARML_PROJECT") or run.project,
        task_name=os.getenv("CLEARML_TASK") or run.trial_name,
        tags=[run.search_name] if run.search_name else None,
        reuse_last_task_id=run.service_id or False,
        # a number is added to our steps; True would add the last step of the task
        continue_last_task=0 if run.service_id else False,
        auto_connect_frameworks={"tensorboard": False, "pytorch": False},
        auto_connect_arg_parser=False,
        output_uri=None if client.Task.is_offline() else True,
    )


def _has_credentials() -> bool:
    named = os.getenv("CLEARML_CONFIG_FILE") or os.getenv("TRAINS_CONFIG_FILE") or "~/clearml.conf"
    return bool(os.getenv("CLEARML_API_ACCESS_KEY")) or Path(named).expanduser().is_file()


def _read_points(folder: Path) -> list[tuple[str, int]]:
    """Curve and step of every point in the folder of an offline task; a line that a kill cut is skipped."""
    points = []
    path = folder / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            events = json.loads(line)
        except ValueError:
            continue
        points += [(f"{event['metric']}/{event['variant']}", event["iter"]) for event in events]
    return points
