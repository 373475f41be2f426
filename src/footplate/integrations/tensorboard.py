"""TensorBoard: event files beside the run."""

from __future__ import annotations

import html
import importlib
import json
import os
import re
import socket
import time
from typing import Any

from footplate.integrations.base import TrackerCallback
from footplate.integrations.inside import is_within
from footplate.integrations.run import Run
from footplate.integrations.values import columns_of


class TensorBoardCallback(TrackerCallback):
    """Writes event files that TensorBoard shows.

    They are in `logging_dir`, else `TENSORBOARD_LOGGING_DIR`, else `output_dir/runs/<date>_<host>`. A resumed
    run continues in its folder, and the points that it makes again replace the old ones.

    Args:
        tb_writer: Your own writer; close it yourself.
    """

    name = "tensorboard"

    def __init__(self, tb_writer: Any = None) -> None:
        super().__init__()
        self.logging_dir: str | None = None
        self._writer = tb_writer
        self._is_own = tb_writer is None
        self._last_values: dict[str, float] = {}

    @property
    def tb_writer(self) -> Any:
        """The writer; waits until it is open and has written everything."""
        self.wait_for_service()
        return self._writer

    @tb_writer.setter
    def tb_writer(self, writer: Any) -> None:
        self._writer, self._is_own = writer, False

    def open(self, run: Run) -> str | None:
        """Open the writer, and write the settings and the model's configuration."""
        folder = os.path.join(run.output_dir, run.service_id or _choose_folder(run))
        if run.service_id and not is_within(folder, run.output_dir, _find_base(run)):
            folder = os.path.join(run.output_dir, _choose_folder(run))
        self.logging_dir = folder
        self._last_values = {}
        if self._is_own:
            purge_step = run.first_step + 1 if run.first_step else None
            _wait_for_a_later_name(folder)
            self._writer = _find_module("").SummaryWriter(log_dir=folder, purge_step=purge_step)
            run.num_sent = min(run.num_sent, run.num_logs)  # later logs are purged, so send them again
        self._writer.add_text("args", _as_code(run.settings), run.first_step)
        if run.model.get("config"):
            self._writer.add_text("model_config", _as_code(run.model["config"]), run.first_step)
        self._writer.flush()
        inside = os.path.relpath(folder, run.output_dir)
        return folder if inside.startswith("..") else inside  # relative: the run's folder can be moved

    def write(self, values: dict[str, Any], step: int) -> None:
        """Write numbers as curves and text as text."""
        for key, value in values.items():
            if isinstance(value, str):
                self._writer.add_text(key, value, step)
            elif isinstance(value, (int, float)):
                self._writer.add_scalar(key, value, step)
                self._last_values[key] = value
        self._writer.flush()

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write a table."""
        self._writer.add_text(f"{source}/samples", _as_table(rows), step)
        self._writer.flush()

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Write settings and last values for the page that compares runs."""
        writer = getattr(self._writer, "file_writer", None)
        if writer is None or self.run is None:
            return
        # not by SummaryWriter.add_hparams, which begins a second run in another folder
        settings = {key: _as_setting(value) for key, value in self.run.config.items() if value is not None}
        build = _find_module(".summary", like=self._writer).hparams
        for summary in build(settings, self._last_values):
            writer.add_summary(summary)
        self._writer.flush()

    def close(self) -> None:
        """Close the writer, if it is not the user's."""
        if self._writer is not None and self._is_own:
            self._writer.close()
            self._writer = None


def _choose_folder(run: Run) -> str:
    """The folder of a new run: in the run's own folder, unless another is set."""
    base = _find_base(run)
    trial = [run.trial] if run.trial else []
    if base is not None:
        return os.path.join(base, *trial)
    now = f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}"
    return os.path.join("runs", now, *trial)


def _find_base(run: Run) -> str | None:
    """The folder that is set for event files; None if none is."""
    given = run.logging_dir or os.getenv("TENSORBOARD_LOGGING_DIR")
    return os.path.abspath(os.path.expanduser(given)) if given else None


def _wait_for_a_later_name(folder: str) -> None:
    """Wait, at most a second, until a new event file sorts behind those in `folder`.

    Names begin with the second of their birth, and TensorBoard reads files in the order of names. Within
    one second a counter follows as text, so file 10 would be read before file 9 and its points drawn first.
    """
    if not os.path.isdir(folder):
        return
    this_second = int(time.time())
    if any(f"tfevents.{this_second}." in name for name in os.listdir(folder)):
        time.sleep(this_second + 1 - time.time())


def _find_module(part: str, like: Any = None) -> Any:
    """A module of torch's writer, else of tensorboardX; of the one that made `like`, if given."""
    homes = ["torch.utils.tensorboard", "tensorboardX"]
    if type(like).__module__.startswith("tensorboardX"):
        homes.reverse()
    for home in homes:
        try:
            importlib.import_module(home)
            return importlib.import_module(home + part)
        except ImportError:
            continue
    raise ImportError("report_to='tensorboard' needs tensorboard: pip install footplate[tensorboard].")


def _as_setting(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else json.dumps(value, default=str)


def _as_code(values: dict[str, Any]) -> str:
    """Values as an indented block, which TensorBoard's markdown shows unchanged."""
    text = json.dumps(values, indent=2, default=str, ensure_ascii=False)
    return "\n".join(f"    {line}" for line in text.splitlines())


def _as_table(rows: list[dict[str, Any]]) -> str:
    """Rows as a markdown table, with the text of each cell escaped."""
    columns = columns_of(rows)
    lines = [[_as_cell(column) for column in columns], ["---"] * len(columns)]
    lines += [[_as_cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _as_cell(value: Any) -> str:
    text = re.sub(r"([\\`*_{}\[\]#|])", r"\\\1", html.escape(str(value), quote=False))
    return re.sub(r"\r\n|\r|\n", "<br>", text)
