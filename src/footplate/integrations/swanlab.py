"""SwanLab: each run is one run there, online or offline."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.known import WAIT_SECONDS, KnowingTracker
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run

logger = logging.getLogger(__name__)

NO_KEY = (
    "SwanLab has no API key. Run `swanlab login` or set SWANLAB_API_KEY; SWANLAB_MODE=offline keeps the run "
    "on disk, for `swanlab sync` later."
)
MODES = {"cloud": "online", "cloud-only": "online"}  # names of earlier versions


class SwanLabCallback(KnowingTracker):
    """Sends a run to SwanLab.

    `SWANLAB_PROJECT`, `SWANLAB_MODE` ("online", "local", "offline", "disabled"), `SWANLAB_LOG_DIR`,
    `SWANLAB_RUN_ID`, `SWANLAB_RESUME` and the client's other environment variables apply. Your own run, from
    `swanlab.init()` before training, is used and not finished. SwanLab keeps no models.
    """

    name = "swanlab"

    def __init__(self) -> None:
        super().__init__()
        self._log_model = os.getenv("SWANLAB_LOG_MODEL")
        self._service: Any = None  # the run at SwanLab
        self._is_own = False  # whether this callback began it

    @property
    def _swanlab(self) -> Any:
        """The client, for `self._swanlab.log`; waits until it has received everything that was sent."""
        self.wait_for_service(WAIT_SECONDS)
        return _import_client()

    def open(self, run: Run) -> str | None:
        """Begin or continue the run; points that its earlier files have are not written again."""
        if self._log_model is not None:
            logger.warning("SWANLAB_LOG_MODEL=%r has no effect: SwanLab keeps no models.", self._log_model)
        client = _import_client()
        running = client.get_run() if client.has_run() else None
        self._is_own = running is None or running is self._service  # a second attempt finds its own
        self._service = running or _begin(client, run)
        is_local = self._is_own and run.service_id and _find_mode() in ("offline", "local")
        self.learn(run, _read_points(client, self._service.id) if is_local else None)
        sizes = {"model_num_parameters": run.model.get("num_parameters")}
        self._service.config.update({**run.config, **sizes})
        return str(self._service.id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Write numbers as curves and text as text."""
        text = _import_client().Text
        new = self.known.without(values, step)
        shown = {key: text(value) if isinstance(value, str) else value for key, value in new.items()}
        if shown:
            self._service.log(shown, step=step)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write one text per row."""
        text = _import_client().Text
        cards = [text("\n".join(f"{key}: {value}" for key, value in row.items())) for row in rows]
        self.write({f"{source}/samples": cards}, step)

    def close(self) -> None:
        """Finish the run, if this callback began it."""
        if self._is_own and self._service is not None:
            self._service.finish()
        self._service = None


def _import_client() -> Any:
    with _plain_project_hidden():
        return import_client("swanlab")


@contextlib.contextmanager
def _plain_project_hidden() -> Iterator[str | None]:
    """Unset `SWANLAB_PROJECT` for a while and give its value: some clients read the variable as JSON."""
    project = os.environ.get("SWANLAB_PROJECT")
    if project is None or project.startswith("{"):
        yield None
        return
    del os.environ["SWANLAB_PROJECT"]
    try:
        yield project
    finally:
        os.environ["SWANLAB_PROJECT"] = project


def _find_mode() -> str:
    mode = os.getenv("SWANLAB_MODE", "online")
    return MODES.get(mode, mode)


def _begin(client: Any, run: Run) -> Any:
    """Begin or continue the run, without asking the user for a key."""
    mode = _find_mode()
    with _plain_project_hidden() as project:
        try:
            return client.init(
                project=project or os.getenv("SWANLAB_PROJ_NAME") or run.project,
                name=run.trial_name,
                group=run.search_name,
                mode=mode,
                id=os.getenv("SWANLAB_RUN_ID") or run.service_id or run.run_id,
                resume=os.getenv("SWANLAB_RESUME") or "allow",
                settings=client.Settings(interactive=False),
            )
        except RuntimeError as error:
            if mode == "online" and not os.getenv("SWANLAB_API_KEY"):
                raise SetupError(NO_KEY) from error
            raise


def _read_points(client: Any, run_id: str) -> list[tuple[str, int]] | None:
    """Curve and step of every point in the files of a run; None if only this process has written any."""
    with _plain_project_hidden():
        folders = list(Path(client.Settings().log_dir).glob(f"run-*-{run_id}"))  # one for each process
    paths = [path for folder in folders for path in folder.glob("*.swanlab")]
    return [point for path in paths for point in _read_file(path)] if len(folders) > 1 else None


def _read_file(path: Path) -> Iterator[tuple[str, int]]:
    """The points in one file, up to where a kill cut it."""
    reader = importlib.import_module("swanlab.sdk.internal.core_python.store").DataStoreReader()
    parse = importlib.import_module("swanlab.proto.swanlab.record.v1.record_pb2").Record.FromString
    try:
        reader.open(path)
        for data in reader:
            record = parse(data)
            kind = record.WhichOneof("record_type")
            if kind in ("scalar", "media"):
                yield getattr(record, kind).key, getattr(record, kind).step
    except Exception as error:
        logger.debug("swanlab: %s ends early: %s", path, error)
