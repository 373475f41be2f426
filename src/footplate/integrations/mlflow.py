"""MLflow: parameters, metrics, samples and checkpoints of a run, on a server or in a local database."""

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
from footplate.integrations.known import WAIT_SECONDS, KnowingTracker
from footplate.integrations.mlflow_limits import check_login, clean_name, find_limits, in_batches
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.integrations.values import as_table, flatten, numbers
from footplate.state import TrainerControl, TrainerState
from footplate.words import read_flag

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

TABLES_TAG = "mlflow.loggedArtifacts"  # the tag in which MLflow lists the tables of a run
SEARCH_TAG = "search"  # the name of the search that a run is a trial of
NUM_TABLES = 50  # the tag can hold about 8000 characters


class MLflowCallback(KnowingTracker):
    """Sends a run to MLflow.

    `MLFLOW_TRACKING_URI` or `mlflow.set_tracking_uri` give the address; without them the run is in
    `output_dir/mlflow.db`, with its files beside it. `MLFLOW_EXPERIMENT_NAME`, `MLFLOW_RUN_ID`, `MLFLOW_TAGS`
    (JSON), `MLFLOW_NESTED_RUN`, `MLFLOW_FLATTEN_PARAMS` and `MLFLOW_MAX_LOG_PARAMS` apply, and with
    `HF_MLFLOW_LOG_ARTIFACTS` every sealed checkpoint is uploaded. Your own run that is active when training
    starts is used and not ended.
    """

    name: ClassVar[str] = "mlflow"

    _writers: ClassVar[dict[str, str]] = {}  # the tracker that writes each run, by the run's id at MLflow
    _attached: ClassVar[set[str]] = set()  # the runs that `_ml_flow` made active on the training thread

    def __init__(self) -> None:
        super().__init__()
        self._client: Any = None
        self._uri = ""
        self._active_id: str | None = None  # the user's run that is active on the training thread
        self._is_own = False  # whether this callback sets the run's status
        self._log_artifacts = False
        self._tables: list[str] = []
        self._latest: dict[str, tuple[int, Any]] = {}  # step and value of each curve
        self._stamp: tuple[Any, int] = (None, 0)  # the values written last, and the time of the first attempt

    @property
    def _ml_flow(self) -> Any:
        """The client, with the run active on this thread, as `self._ml_flow.log_param` needs."""
        self.wait_for_service(WAIT_SECONDS)
        mlflow = import_client("mlflow")
        if self.service_id is not None and mlflow.active_run() is None:
            mlflow.set_tracking_uri(self._uri)
            mlflow.start_run(run_id=self.service_id)
            self._attached.add(self.service_id)
        return mlflow

    # ---- calls on the guard's thread ----

    def open(self, run: Run) -> str | None:
        """Begin or continue the run; points that MLflow has are not sent again."""
        mlflow = import_client("mlflow")
        self._log_artifacts = read_flag("HF_MLFLOW_LOG_ARTIFACTS")
        self._uri = self._find_uri(mlflow, run)
        check_login(self._uri, has_token="MLFLOW_TRACKING_TOKEN" in os.environ)
        self._client = mlflow.MlflowClient(tracking_uri=self._uri)
        service_run = self._find_run(mlflow, run)
        service_id = str(service_run.info.run_id)
        writer = self._writers.setdefault(service_id, self.name)
        if writer != self.name:
            raise SetupError(f"{writer} writes to run {service_id} already: each point would be there twice.")
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
        """Write numbers as metrics, in one request, and text as tags."""
        from mlflow.entities import Metric, RunTag
        from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_TAG_VAL_LENGTH

        if values is not self._stamp[0]:  # a second attempt keeps the time: MLflow then sees one point
            self._stamp = values, int(time.time() * 1000)
        named = self.known.without({clean_name(key): value for key, value in values.items()}, step)
        # two logs of one step have the same epoch: send it once
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
        """Write a table that `mlflow.load_table` reads."""
        columns, cells = as_table(rows)
        path = f"samples/{clean_name(source)}/step-{step:08d}.json"
        table = json.dumps({"columns": columns, "data": cells}, ensure_ascii=False)
        self._client.log_text(self.service_id, table, path)
        self._tables = [*(known for known in self._tables if known != path), path][-NUM_TABLES:]
        listed = json.dumps([{"path": path, "type": "table"} for path in self._tables])
        self._client.set_tag(self.service_id, TABLES_TAG, listed)

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Upload the checkpoint's files, if wanted and not yet removed."""
        if not self._log_artifacts or not os.path.isdir(folder):
            return
        try:
            self._client.log_artifacts(self.service_id, folder, f"checkpoint-{step}")
        except FileNotFoundError:
            if os.path.isdir(folder):  # then it was not rotation
                raise
            logger.info("%s was removed while it was uploaded to %s.", folder, self.name)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Mark the run as finished; MLflow still accepts metrics after that."""
        self._set_status("FINISHED")

    def close(self) -> None:
        """Close the run; mark it as failed if training did not end."""
        if self.service_id is not None:
            has_failed = not self._is_ended and self.run is not None and self.run.max_steps > 0
            self._set_status("FAILED" if has_failed else "FINISHED")
            self._writers.pop(self.service_id, None)

    # ---- events of the run ----

    def resume(self, run: Run) -> None:
        """Continue `run`, and remember the run that is active on this thread: MLflow keeps it per thread."""
        super().resume(run)
        mlflow = sys.modules.get("mlflow")  # if it is not imported, no run is active
        active = mlflow.active_run() if hasattr(mlflow, "active_run") else None  # type: ignore[union-attr]
        active_id = active.info.run_id if active is not None else None
        self._active_id = None if active_id in self._attached else active_id

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Send that training has ended, and end the run on this thread if `_ml_flow` made it active."""
        super().on_train_end(args, state, control, **kwargs)
        if self.service_id in self._attached:
            self._attached.discard(self.service_id)
            import_client("mlflow").end_run()

    # ---- helpers ----

    def _find_uri(self, mlflow: Any, run: Run) -> str:
        """The address that is set, else that of a database in the run's folder."""
        found = str(mlflow.get_tracking_uri())
        is_chosen = mlflow.is_tracking_uri_set() or not found.startswith(("sqlite:", "file:"))
        return found if is_chosen else _own_uri(run)

    def _find_run(self, mlflow: Any, run: Run) -> Any:
        """The run at MLflow: the one that is named, active, or continued; else a new one."""
        is_nested = read_flag("MLFLOW_NESTED_RUN") or run.trial is not None
        named = os.getenv("MLFLOW_RUN_ID") or (None if is_nested else self._active_id)
        if named and run.trial is None:  # a trial is a run of its own, with that one as its parent
            return self._client.get_run(named)
        if run.service_id is not None:
            try:
                found = self._client.get_run(run.service_id)
                if found.info.lifecycle_stage == "active":
                    return found
            except mlflow.MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
            logger.warning(
                "Run %s does not exist at %s any more: a new one begins.", run.service_id, self._uri
            )
        parent = named or self._active_id
        tags = {"mlflow.parentRunId": parent} if is_nested and parent else {}
        if run.search_name:
            tags[SEARCH_TAG] = run.search_name
        created = self._client.create_run(
            _find_experiment(self._client, self._uri, run),
            tags=_find_tags(tags),
            run_name=run.trial or run.name,
        )
        run.service_id = created.info.run_id  # so that a second attempt finds it
        return created

    def _log_params(self, service_id: str, run: Run, known: Mapping[str, str]) -> None:
        """Write settings as parameters, and those that MLflow does not accept to a file."""
        from mlflow.entities import Param
        from mlflow.utils.validation import MAX_PARAMS_TAGS_PER_BATCH

        limits = find_limits(self.name, self._uri, os.getenv("MLFLOW_MAX_LOG_PARAMS"))
        wanted = {clean_name(key): str(value) for key, value in _list_params(run)}
        fitting = {key: value for key, value in wanted.items() if len(value) <= limits.value_length}
        kept = dict(islice(fitting.items(), limits.num_params))
        new = [Param(key, value) for key, value in kept.items() if key not in known]
        for batch in in_batches(new, MAX_PARAMS_TAGS_PER_BATCH):
            self._client.log_batch(service_id, params=batch)
        # MLflow cannot change a parameter: new values of a resumed run go to the file too
        missing = [key for key, value in wanted.items() if key not in kept or known.get(key, value) != value]
        if missing:
            path = f"arguments-from-step-{run.first_step}.json" if run.first_step else "arguments.json"
            self._client.log_text(service_id, json.dumps(run.config, indent=2, default=str), path)
            logger.warning(
                "%s does not accept all %d parameters (too many, too long or changed): %s. See its file %s.",
                *(self.name, len(wanted), f"{', '.join(missing[:5])} ({len(missing)} in all)", path),
            )

    def _set_status(self, status: str) -> None:
        if self._is_own and self._client is not None:
            self._client.set_terminated(self.service_id, status)


def _own_uri(run: Run) -> str:
    """The address of a database in the run's folder, with the characters escaped that mean more there.

    The trials of a search share the one in the folder of the search.
    """
    folder = Path(run.output_dir)
    path = str((folder.parent if run.trial == folder.name else folder) / "mlflow.db")
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F")


def _find_experiment(client: Any, uri: str, run: Run) -> str:
    """The id of the experiment that is named, active or default; a missing one is created."""
    name = os.getenv("MLFLOW_EXPERIMENT_NAME") or (run.project if uri == _own_uri(run) else None)
    if name is None:
        from mlflow.tracking.fluent import _get_experiment_id

        return str(_get_experiment_id() or "0")
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    place = None
    if uri.startswith("sqlite:///"):  # files beside the database, not in the current folder
        place = Path(unquote(uri.removeprefix("sqlite:///"))).resolve().with_name("mlartifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=place))


def _find_tags(own: dict[str, str]) -> dict[str, str]:
    """The tags that MLflow itself sets (user, source and so on), `MLFLOW_TAGS`, and our own."""
    from mlflow.tracking.context.registry import resolve_tags

    text = os.getenv("MLFLOW_TAGS")
    try:
        given = {str(key): str(value) for key, value in json.loads(text).items()} if text else {}
    except (ValueError, AttributeError):
        raise SetupError(f'MLFLOW_TAGS={text!r} is not a JSON object such as {{"release": "2.2"}}.') from None
    return dict(resolve_tags({**given, **own}))


def _list_params(run: Run) -> Iterator[tuple[str, Any]]:
    """A trial's values, the settings, then the model's configuration: with a limit, its end is left out."""
    ordered = sorted(
        run.config.items(), key=lambda item: (item[0] not in run.trial_params, item[0] not in run.settings)
    )
    return flatten(ordered, ".") if read_flag("MLFLOW_FLATTEN_PARAMS") else iter(ordered)
