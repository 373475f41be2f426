"""Trackio: a local database of runs, or a Hugging Face Space."""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
import weakref
from contextlib import closing
from typing import TYPE_CHECKING, Any

from footplate.integrations.known import KnowingTracker, as_table
from footplate.integrations.run import Run
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

WAIT_SECONDS = 60.0  # how long the main thread waits for Trackio where somebody asks for it there

_BEGUN_HERE: weakref.WeakSet[Any] = weakref.WeakSet()  # all other runs are the user's own


class TrackioCallback(KnowingTracker):
    """Sends a run to Trackio.

    `args.project`, `trackio_space_id`, `trackio_bucket_id` and `hub_private_repo` say where to;
    `TRACKIO_DIR`, `TRACKIO_SPACE_ID`, `TRACKIO_SERVER_URL` and the client's other variables hold. A run of
    your own, from `trackio.init()` before training, is used and left open.
    """

    name = "trackio"
    package = "trackio"

    def __init__(self) -> None:
        super().__init__()
        self._service: Any = None  # the run at Trackio
        self._given: Any = None  # one that the user has begun

    @property
    def _trackio(self) -> Any:
        """The client, once all that was sent has reached it; `log` finds the run on this thread, too."""
        self.wait_for_service(WAIT_SECONDS)
        client = _import_client()
        current = client.context_vars.current_run
        if current.get() is None:
            current.set(self._service)
        return client

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *given: Any,
        **kwargs: Any,
    ) -> None:
        """Open the run; one of the user's own is known on this thread only."""
        if "trackio" in sys.modules:
            current = _import_client().context_vars.current_run.get()
            self._given = None if current in _BEGUN_HERE else current
        super().on_train_begin(args, state, control, *given, **kwargs)

    def open(self, run: Run) -> str | None:
        """Begin or continue the run; points past the resumed step are deleted where the database is local."""
        if self._given is not None:
            self._service = self._given
            self._service.config.update(_config_of(run))
            self.learn(run, None)
            return str(self._service.name)
        name = run.service_id or (f"{run.name}-{run.trial}" if run.trial else run.name)
        self._service = _import_client().init(
            project=run.project,
            name=name,
            space_id=run.settings.get("trackio_space_id"),
            bucket_id=run.settings.get("trackio_bucket_id"),
            private=run.settings.get("hub_private_repo"),
            config=_config_of(run),
            resume="allow" if run.service_id else "never",
            embed=False,
        )
        _BEGUN_HERE.add(self._service)
        self.learn(run, _rewind(self._service, run.first_step) if run.service_id else ())
        return str(self._service.name)

    def write(self, values: dict[str, Any], step: int) -> None:
        """One row of the run's table."""
        new = self.known.without(values, step)
        if new:
            self._service.log(new, step=step)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """A table."""
        columns, data = as_table(rows)
        self.write({f"{source}/samples": _import_client().Table(columns=columns, data=data)}, step)

    def close(self) -> None:
        """Finish a run that was begun here."""
        if self._service is not None and self._service is not self._given:
            self._service.finish()
        self._service = None


def _import_client() -> Any:
    try:
        return importlib.import_module("trackio")
    except ImportError as error:
        raise ImportError("report_to='trackio' needs trackio: pip install footplate[trackio].") from error


def _config_of(run: Run) -> dict[str, Any]:
    """Settings and sizes, without the names that Trackio keeps for itself."""
    config = {**run.config, "model/num_parameters": run.model.get("num_parameters")}
    return {key: value for key, value in config.items() if not key.startswith("_")}


def _rewind(service: Any, last_step: int) -> list[tuple[str, int]] | None:
    """Delete what lies past a step, and name the points that stay; None where the database is elsewhere."""
    client = _import_client()
    if client.context_vars.current_server.get() is not None:
        return None
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    try:
        with closing(sqlite3.connect(storage.get_project_db_path(service.project), timeout=30)) as database:
            with database:
                database.execute("DELETE FROM metrics WHERE run_id = ? AND step > ?", (service.id, last_step))
            rows = database.execute("SELECT step, metrics FROM metrics WHERE run_id = ?", (service.id,))
            return [(key, step) for step, values in rows for key in json.loads(values)]
    except sqlite3.Error:  # another version keeps its tables in another way
        return None
