"""MLflow: parameters, metrics, sample tables and checkpoints of a run, on a server or in a local database."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from footplate.integrations.guard import SetupError
from footplate.integrations.known import KnowingTracker, as_table, numbers
from footplate.integrations.mlflow_limits import check_login, clean_name, find_limits, flatten, in_batches
from footplate.integrations.run import Run
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

TABLES_TAG = "mlflow.loggedArtifacts"  # what MLflow's own readers and its pages take for tables
NUM_TABLES = 50  # the tag holds no more than some 8000 characters
TRUE_WORDS = ("1", "ON", "YES", "TRUE")
WAIT_SECONDS = 60.0  # how long the training thread waits for MLflow where somebody asks for it there


class MLflowCallback(KnowingTracker):
    """Sends a run to MLflow.

    `MLFLOW_TRACKING_URI` or `mlflow.set_tracking_uri` say where; without them the run is kept in
    `output_dir/mlflow.db`, its files beside it. `MLFLOW_EXPERIMENT_NAME`, `MLFLOW_RUN_ID`, `MLFLOW_TAGS`
    (JSON), `MLFLOW_NESTED_RUN`, `MLFLOW_FLATTEN_PARAMS` and `MLFLOW_MAX_LOG_PARAMS` hold, and with
    `HF_MLFLOW_LOG_ARTIFACTS` every sealed checkpoint is uploaded. A run of your own that is active when
    training starts is used, and left open.
    """

    name: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    _writers: ClassVar[dict[str, str]] = {}  # run at MLflow: tracker that writes it
    _attached: ClassVar[set[str]] = set()  # runs that were made active for the training thread

    def __init__(self) -> None:
        super().__init__()
        self._client: Any = None
        self._uri = ""
        self._active_id: str | None = None  # the run that the training thread had open
        self._is_own = False  # whether its status is ours to set
        self._log_artifacts = False
        self._tables: list[str] = []
        self._latest: dict[str, tuple[int, Any]] = {}  # of a curve; two logs of a step share the epoch
        self._stamp: tuple[Any, int] = (None, 0)  # what was written last, and when

    @property
    def _ml_flow(self) -> Any:
        """The client, with the run active on this thread, so that `self._ml_flow.log_param` finds it."""
        self.wait_for_service(WAIT_SECONDS)
        mlflow = _import_client()
        if self.service_id is not None and mlflow.active_run() is None:
            mlflow.set_tracking_uri(self._uri)
            mlflow.start_run(run_id=self.service_id)
            self._attached.add(self.service_id)
        return mlflow

    # ---- what the service does ----

    def open(self, run: Run) -> str | None:
        """Begin the run or go on with it; what MLflow already has of it is not sent again."""
        mlflow = _import_client()
        self._log_artifacts = is_set("HF_MLFLOW_LOG_ARTIFACTS")
        self._uri = self._find_uri(mlflow, run)
        check_login(self._uri, has_token="MLFLOW_TRACKING_TOKEN" in os.environ)
        self._client = mlflow.MlflowClient(tracking_uri=self._uri)
        service_run = self._find_run(mlflow, run)
        service_id = str(service_run.info.run_id)
        writer = self._writers.setdefault(service_id, self.name)
        if writer != self.name:
            raise SetupError(f"{writer} writes to run {service_id} already, and points would be there twice.")
        self._is_own = service_id != self._active_id
        if self._is_own and service_run.info.status != "RUNNING":
            self._client.update_run(service_id, status="RUNNING")
        is_continued = service_id == run.service_id
        points = ((metric.key, metric.step) for metric in service_run.data.to_proto().metrics)
        self.learn(run, points if is_continued else ())
        self._latest = {}
        self._tables = [entry["path"] for entry in json.loads(service_run.data.tags.get(TABLES_TAG, "[]"))]
        self._log_params(service_id, run, service_run.data.params)
        return service_id

    def write(self, values: dict[str, Any], step: int) -> None:
        """Numbers as metrics, in one request; words as tags."""
        from mlflow.entities import Metric, RunTag
        from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_TAG_VAL_LENGTH

        if values is not self._stamp[0]:  # a second attempt keeps the time: MLflow then has it once
            self._stamp = values, int(time.time() * 1000)
        named = self.known.without({clean_name(key): value for key, value in values.items()}, step)
        new = {key: value for key, value in named.items() if self._latest.get(key) != (step, value)}
        tags = [
            RunTag(key, value[:MAX_TAG_VAL_LENGTH]) for key, value in new.items() if isinstance(value, str)
        ]
        metrics = [Metric(key, float(value), self._stamp[1], step) for key, value in numbers(new).items()]
        for batch in in_batches(metrics, MAX_METRICS_PER_BATCH):
            self._client.log_batch(self.service_id, metrics=batch)
        if tags:
            self._client.log_batch(self.service_id, tags=tags)
        self._latest.update({key: (step, value) for key, value in new.items()})

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """A table among the run's files, which `mlflow.load_table` reads."""
        columns, cells = as_table(rows)
        path = f"samples/{clean_name(source)}/step-{step:08d}.json"
        table = json.dumps({"columns": columns, "data": cells}, ensure_ascii=False)
        self._client.log_text(self.service_id, table, path)
        self._tables = [*(known for known in self._tables if known != path), path][-NUM_TABLES:]
        listed = json.dumps([{"path": path, "type": "table"} for path in self._tables])
        self._client.set_tag(self.service_id, TABLES_TAG, listed)

    def write_checkpoint(self, folder: str, step: int) -> None:
        """The checkpoint's files, if they are wanted and still there."""
        if not self._log_artifacts or not os.path.isdir(folder):
            return
        try:
            self._client.log_artifacts(self.service_id, folder, f"checkpoint-{step}")
        except FileNotFoundError:
            if os.path.isdir(folder):
                raise
            logger.info("%s was removed while it was uploaded to %s.", folder, self.name)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Mark the run finished; MLflow takes metrics after that all the same."""
        self._set_status("FINISHED")

    def close(self) -> None:
        """Leave the run; one whose training broke off is marked failed."""
        if self.service_id is not None:
            broke_off = not self._is_ended and self.run is not None and self.run.max_steps > 0
            self._set_status("FAILED" if broke_off else "FINISHED")
            self._writers.pop(self.service_id, None)

    # ---- what the run tells it ----

    def resume(self, run: Run) -> None:
        """Take up `run`, and notice which run this thread has open: MLflow keeps that per thread."""
        super().resume(run)
        mlflow = sys.modules.get("mlflow")  # whoever has a run open has imported it
        active = mlflow.active_run() if hasattr(mlflow, "active_run") else None  # type: ignore[union-attr]
        active_id = active.info.run_id if active is not None else None
        self._active_id = None if active_id in self._attached else active_id

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell that training is over, and give back the thread's active run if it was lent."""
        super().on_train_end(args, state, control, **kwargs)
        if self.service_id in self._attached:
            self._attached.discard(self.service_id)
            _import_client().end_run()

    # ---- inside ----

    def _find_uri(self, mlflow: Any, run: Run) -> str:
        """Where the run is kept: what is set, else a database of its own."""
        found = str(mlflow.get_tracking_uri())
        is_chosen = mlflow.is_tracking_uri_set() or not found.startswith(("sqlite:", "file:"))
        return found if is_chosen else _own_uri(run)

    def _find_run(self, mlflow: Any, run: Run) -> Any:
        """The run at MLflow: the one that is named, open, or known from before; else a new one."""
        is_nested = is_set("MLFLOW_NESTED_RUN")
        named = os.getenv("MLFLOW_RUN_ID") or (None if is_nested else self._active_id)
        if named:
            return self._client.get_run(named)
        if run.service_id is not None:
            try:
                found = self._client.get_run(run.service_id)
                if found.info.lifecycle_stage == "active":
                    return found
            except mlflow.MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
            logger.warning("Run %s is no longer at %s: a new one begins.", run.service_id, self._uri)
        parent = {"mlflow.parentRunId": self._active_id} if is_nested and self._active_id else {}
        created = self._client.create_run(
            _find_experiment(self._client, self._uri, run), tags=_find_tags(parent), run_name=run.name
        )
        run.service_id = created.info.run_id  # a second attempt at opening finds it
        return created

    def _log_params(self, service_id: str, run: Run, known: Mapping[str, str]) -> None:
        """Settings as parameters; those that MLflow does not take, in a file."""
        from mlflow.entities import Param
        from mlflow.utils.validation import MAX_PARAMS_TAGS_PER_BATCH

        limits = find_limits(self.name, self._uri, os.getenv("MLFLOW_MAX_LOG_PARAMS"))
        wanted = {clean_name(key): str(value) for key, value in _list_params(run)}
        fitting = {key: value for key, value in wanted.items() if len(value) <= limits.value_length}
        kept = dict(islice(fitting.items(), limits.num_params))
        new = [Param(key, value) for key, value in kept.items() if key not in known]
        for batch in in_batches(new, MAX_PARAMS_TAGS_PER_BATCH):
            self._client.log_batch(service_id, params=batch)
        # MLflow never changes a parameter: a resumed run's new values have to go elsewhere too
        missing = [key for key, value in wanted.items() if key not in kept or known.get(key, value) != value]
        if missing:
            path = f"arguments-from-step-{run.first_step}.json" if run.first_step else "arguments.json"
            self._client.log_text(service_id, json.dumps(run.config, indent=2, default=str), path)
            logger.warning(
                "%s takes not all %d parameters (too many, too long or changed): %s. They are in its %s.",
                *(self.name, len(wanted), f"{', '.join(missing[:5])} ({len(missing)} in all)", path),
            )

    def _set_status(self, status: str) -> None:
        if self._is_own and self._client is not None:
            self._client.set_terminated(self.service_id, status)


def _import_client() -> Any:
    try:
        import mlflow
    except ImportError as error:
        raise ImportError(
            f"report_to='mlflow' needs mlflow: pip install footplate[mlflow]. ({error})"
        ) from error
    return mlflow


def is_set(variable: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.getenv(variable, "").upper() in TRUE_WORDS


def _own_uri(run: Run) -> str:
    """A database in the run's folder; what an address reads otherwise is escaped, no more."""
    path = str(Path(run.output_dir, "mlflow.db"))
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F")


def _find_experiment(client: Any, uri: str, run: Run) -> str:
    """The id of the experiment that is named, set or usual here; made if need be."""
    name = os.getenv("MLFLOW_EXPERIMENT_NAME") or (run.project if uri == _own_uri(run) else None)
    if name is None:
        from mlflow.tracking.fluent import _get_experiment_id

        return str(_get_experiment_id() or "0")
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    place = None
    if uri.startswith("sqlite:///"):  # files beside the database, not in the folder the script was started in
        place = Path(unquote(uri.removeprefix("sqlite:///"))).resolve().with_name("mlartifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=place))


def _find_tags(own: dict[str, str]) -> dict[str, str]:
    """Who started what from where, as MLflow finds out, and `MLFLOW_TAGS`."""
    from mlflow.tracking.context.registry import resolve_tags

    text = os.getenv("MLFLOW_TAGS")
    try:
        given = {str(key): str(value) for key, value in json.loads(text).items()} if text else {}
    except (ValueError, AttributeError):
        raise SetupError(f'MLFLOW_TAGS={text!r} is no JSON object such as {{"release": "2.2"}}.') from None
    return dict(resolve_tags({**given, **own}))


def _list_params(run: Run) -> Iterator[tuple[str, Any]]:
    """The settings, then what the model's configuration adds: a limit cuts from the end."""
    ordered = sorted(run.config.items(), key=lambda item: item[0] not in run.settings)
    return flatten(ordered) if is_set("MLFLOW_FLATTEN_PARAMS") else iter(ordered)
