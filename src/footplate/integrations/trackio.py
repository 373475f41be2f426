"""Trackio: runs in a local database or a Hugging Face Space."""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
import weakref
from contextlib import closing
from typing import TYPE_CHECKING, Any

from footplate.integrations.known import WAIT_SECONDS, KnowingTracker
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.integrations.values import as_table
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

_BEGUN_HERE: weakref.WeakSet[Any] = weakref.WeakSet()  # all other runs are of the user


class TrackioCallback(KnowingTracker):
    """Sends a run to Trackio.

    `args.project`, `trackio_space_id`, `trackio_bucket_id` and `hub_private_repo` give the place;
    `TRACKIO_DIR`, `TRACKIO_SPACE_ID`, `TRACKIO_SERVER_URL` and the client's other environment variables
    apply. Your own run, from `trackio.init()` before training, is used and not finished.
    """

    name = "trackio"

    def __init__(self) -> None:
        super().__init__()
        self._service: Any = None  # the run at Trackio
        self._given: Any = None  # the run that the user has begun, if any

    @property
    def _trackio(self) -> Any:
        """The client, with the run active on this thread too; waits until everything has been sent."""
        self.wait_for_service(WAIT_SECONDS)
        client = import_client("trackio")
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
        """Open the run; a run of the user is found here, because Trackio keeps it per thread."""
        if "trackio" in sys.modules:
            current = import_client("trackio").context_vars.current_run.get()
            self._given = None if current in _BEGUN_HERE else current
        super().on_train_begin(args, state, control, *given, **kwargs)

    def open(self, run: Run) -> str | None:
        """Begin or continue the run; a local database drops the points that a resumed run makes again."""
        if self._given is not None:
            self._service = self._given
            self._service.config.update(_config_of(run))
            self.learn(run, None)
            return str(self._service.name)
        self._service = import_client("trackio").init(
            project=run.project,
            name=run.service_id or run.trial_name,
            group=run.search_name,
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
        """Write one row of the run's table."""
        new = self.known.without(values, step)
        if new:
            self._service.log(new, step=step)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write a table."""
        columns, data = as_table(rows)
        self.write({f"{source}/samples": import_client("trackio").Table(columns=columns, data=data)}, step)

    def close(self) -> None:
        """Finish the run, if this callback began it."""
        if self._service is not None and self._service is not self._given:
            self._service.finish()
        self._service = None


def _config_of(run: Run) -> dict[str, Any]:
    """Settings and size, without names that begin with an underscore: those are Trackio's own."""
    return {key: value for key, value in run.config_and_size.items() if not key.startswith("_")}


def _rewind(service: Any, last_step: int) -> list[tuple[str, int]] | None:
    """Delete the points after a step and return those that stay; None if the database is not local."""
    client = import_client("trackio")
    if client.context_vars.current_server.get() is not None:
        return None
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    try:
        with closing(sqlite3.connect(storage.get_project_db_path(service.project), timeout=30)) as database:
            with database:
                database.execute("DELETE FROM metrics WHERE run_id = ? AND step > ?", (service.id, last_step))
            rows = database.execute("SELECT step, metrics FROM metrics WHERE run_id = ?", (service.id,))
            return [(key, step) for step, values in rows for key in json.loads(values)]
    except sqlite3.Error:  # another version may have other tables
        return None
