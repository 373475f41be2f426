"""Weights & Biases: one run there for one run here, online or offline."""

from __future__ import annotations

import importlib
import json
import logging
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.integrations.guard import SetupError
from footplate.integrations.known import KnowingTracker, as_table
from footplate.integrations.run import Run
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

STEP_KEY = "train/global_step"
FLUSH_SECONDS = 1.0  # how much of an offline run a kill may lose; the client's own value is 15
TOTALS = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")
WAIT_SECONDS = 60.0  # how long the main thread waits for W&B where somebody asks for it there

_holders: dict[str, list[WandbCallback]] = {}  # of each run that was begun here; the last one ends it
# by run and key: the last step that was sent, and the callback it is from
_sent: dict[str, dict[str, tuple[int, int]]] = {}
_sharing = threading.Lock()


class WandbCallback(KnowingTracker):
    """Sends a run to Weights & Biases.

    `WANDB_PROJECT`, `WANDB_NAME`, `WANDB_RUN_ID`, `WANDB_MODE` and the client's other variables hold.
    `WANDB_LOG_MODEL` is "checkpoint" (every sealed checkpoint becomes an artifact), "end" (the last or best
    one does) or "false"; `WANDB_WATCH` is "gradients", "parameters", "all" or "false". A run of your own,
    from `wandb.init()` before training, is used and left open.
    """

    name = "wandb"
    package = "wandb"

    def __init__(self) -> None:
        super().__init__()
        self._log_model = _find_log_model()
        self._service: Any = None  # the run at W&B
        self._is_own = False  # whether it was begun here
        self._last_step = -1  # of what W&B has already
        self._written: dict[str, int] = {}  # the last step by run, of what this process has sent
        self._final_checkpoint: str | None = None

    @property
    def _wandb(self) -> Any:
        """The client, once all that was sent has reached it, so that `self._wandb.log` finds the run."""
        self.wait_for_service(WAIT_SECONDS)
        for other in _holders.get(self.service_id or "", ())[:]:
            other.wait_for_service(WAIT_SECONDS)
        return _import_client()

    # ---- what the service does ----

    def open(self, run: Run) -> str | None:
        """Begin or continue the run; what W&B already has of it is not sent again."""
        client = _import_client()
        is_open = client.run is not None and client.run is self._service
        if self._service is not None and not (is_open and self._service.id == _find_id(run)):
            self.close()  # the run of an earlier train()
        if self._service is None:
            self._take_run(client, run)
        last_step = _find_last_step(self._service) if self._is_own else None
        self.learn(run, None if last_step is None else ())
        # the client answers before its file is whole, so that a run that was just closed is known here only
        self._last_step = max(-1 if last_step is None else last_step, self._written.get(self._service.id, -1))
        self._service.config.update(_config_of(run), allow_val_change=True)
        self._service.define_metric(STEP_KEY)
        self._service.define_metric("*", step_metric=STEP_KEY, step_sync=True)
        return str(self._service.id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """One row per step, under the run's own step and W&B's."""
        if step <= self._last_step:
            return
        with _sharing:  # nobody else may close the row in between
            self._write_row(self._claim(values, step), step)

    def _write_row(self, values: dict[str, Any], step: int) -> None:
        if not values:
            return
        # W&B drops what comes for a row that somebody else's `log` has closed: a new row, then, whose place
        # on the axis is still right
        own_step = step if step >= self._service.step else None
        self._service.log({**values, STEP_KEY: step}, step=own_step)
        self._written[self._service.id] = step

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """A table."""
        columns, data = as_table(rows)
        table = _import_client().Table(columns=columns, data=data, allow_mixed_types=True)
        self.write({f"{source}/samples": table}, step)

    def write_checkpoint(self, folder: str, step: int) -> None:
        """An artifact, if every checkpoint is wanted."""
        self._final_checkpoint = folder
        if self._log_model == "checkpoint":
            self._log_artifact(folder, [f"checkpoint_global_step_{step}"])

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """The final numbers as the run's summary, and the model if it is wanted."""
        self._service.summary.update({key: metrics[key] for key in TOTALS if key in metrics})
        if self._log_model not in ("checkpoint", "end"):
            return
        if self._final_checkpoint is None:
            wanted = f"WANDB_LOG_MODEL={self._log_model}"
            logger.warning("%s keeps no model: none was saved, which save_strategy decides.", wanted)
        self._log_artifact(self._final_checkpoint, ["final_model"])

    def close(self) -> None:
        """Finish a run that was begun here, unless another callback still writes to it."""
        if self._service is not None and self._is_own:
            with _sharing:
                others = [holder for holder in _holders.pop(self._service.id, []) if holder is not self]
                if others:
                    _holders[self._service.id] = others
                else:
                    _sent.pop(self._service.id, None)
                    self._service.finish()
        self._service = None

    # ---- what the run tells it ----

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *given: Any,
        **kwargs: Any,
    ) -> None:
        """Open the run, and let it watch the model where `WANDB_WATCH` asks for that."""
        super().on_train_begin(args, state, control, *given, **kwargs)
        watched = os.getenv("WANDB_WATCH", "false").lower()
        if watched in ("gradients", "parameters", "all") and state.is_world_process_zero:
            # here and not on the guard's thread: hooks must not appear in the middle of a forward
            _watch(self._wandb, kwargs.get("model", *given[:1]), watched, max(100, state.logging_steps))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell that training is over; the best checkpoint is the model where it was loaded at the end."""
        if args.load_best_model_at_end and state.best_model_checkpoint:
            self.guard.submit(setattr, self, "_final_checkpoint", state.best_model_checkpoint)
        super().on_train_end(args, state, control, **kwargs)

    # ---- inside ----

    def _take_run(self, client: Any, run: Run) -> None:
        """Begin the run, or share the one that is there: the user's, or that of another callback."""
        with _sharing:
            self._service = client.run
            if self._service is None:
                self._service = client.init(**_init_options(client, run))
                _holders[self._service.id] = []
            self._is_own = self._service.id in _holders
            if self._is_own:
                _holders[self._service.id].append(self)

    def _claim(self, values: dict[str, Any], step: int) -> dict[str, Any]:
        """The values that no other callback has sent to this run: a point is told once, whoever is first."""
        sent = _sent.setdefault(self._service.id, {})
        own = (step, id(self))
        is_free = {key: sent.get(key, own)[1] == own[1] or step > sent[key][0] for key in values}
        free = {key: value for key, value in values.items() if is_free[key]}
        sent.update(dict.fromkeys(free, own))
        return free

    def _log_artifact(self, folder: str | None, aliases: list[str]) -> None:
        """Keep a sealed checkpoint as a version of the run's model, unless it was rotated away."""
        if folder is None or not Path(folder, "trainer_state.json").is_file():
            logger.info("wandb: no checkpoint to keep as %s.", ", ".join(aliases))
            return
        state = json.loads(Path(folder, "trainer_state.json").read_text(encoding="utf-8"))
        metadata = {key: state[key] for key in ("global_step", "epoch", "best_metric")}
        artifact = _import_client().Artifact(f"model-{self._service.id}", type="model", metadata=metadata)
        artifact.add_dir(folder)
        self._service.log_artifact(artifact, aliases=[*aliases, f"epoch_{round(state['epoch'] or 0, 2)}"])


def _import_client() -> Any:
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise ImportError("report_to='wandb' needs wandb: pip install footplate[wandb].") from error


def _find_log_model() -> str:
    """What `WANDB_LOG_MODEL` asks for."""
    wanted = os.getenv("WANDB_LOG_MODEL", "false").lower()
    if wanted not in ("checkpoint", "end", "false"):
        logger.warning('WANDB_LOG_MODEL=%r means nothing; use "checkpoint", "end" or "false".', wanted)
    return wanted


def _find_id(run: Run) -> str:
    return os.getenv("WANDB_RUN_ID") or run.service_id or run.run_id


def _init_options(client: Any, run: Run) -> dict[str, Any]:
    """How the client begins this run, or goes on with it."""
    mode = _find_mode(client)
    name = run.settings.get("run_name") or os.getenv("WANDB_NAME") or run.name
    options: dict[str, Any] = {"project": os.getenv("WANDB_PROJECT") or run.project, "mode": mode}
    options.update({"name": run.trial, "group": name} if run.trial else {"name": name})
    if not os.getenv("WANDB_RESUME_FROM") and not os.getenv("WANDB_FORK_FROM"):
        options.update(id=_find_id(run), resume=os.getenv("WANDB_RESUME") or "allow")
    interval = "x_transaction_log_flush_interval"
    if interval in getattr(client.Settings, "model_fields", {}):
        options["settings"] = client.Settings(**{interval: FLUSH_SECONDS})
    return options


def _find_mode(client: Any) -> str:
    """Online, offline or disabled; an error where online would mean to ask for a key."""
    if os.getenv("WANDB_DISABLED", "").lower() in ("1", "true", "yes", "on"):
        return "disabled"
    mode = os.getenv("WANDB_MODE") or client.setup().settings.mode
    mode = {"dryrun": "offline", "run": "online"}.get(mode, mode)
    if mode in ("online", "shared") and not _has_key(client):
        raise SetupError(
            "W&B has no API key. Run `wandb login` or set WANDB_API_KEY; WANDB_MODE=offline keeps the run on "
            "disk, for `wandb sync` later."
        )
    return str(mode)


def _has_key(client: Any) -> bool:
    try:
        return bool(client.login(prompt=False))
    except TypeError:  # an older client, which has another way to ask without asking the user
        return client.api.api_key is not None


def _config_of(run: Run) -> dict[str, Any]:
    return {**run.config, "model/num_parameters": run.model.get("num_parameters")}


def _watch(client: Any, model: Any, what: str, every: int) -> None:
    """Have W&B record gradients or parameters."""
    try:
        client.watch(model, log=what, log_freq=every)
    except Exception as error:
        logger.warning("wandb does not watch the model: %s", error)


# ---- what earlier legs of an offline run have left on disk ----

BLOCK_SIZE, HEADER_SIZE = 32 * 1024, 7  # of the LevelDB log format, in which the client keeps its records
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def _find_last_step(service: Any) -> int | None:
    """The last step that W&B has of this run, -1 where there is none, None where nobody knows."""
    if service.settings.mode != "offline":
        return int(service.starting_step) - 1
    legs = Path(service.settings.wandb_dir).glob(f"offline-run-*-{service.id}/run-{service.id}.wandb")
    earlier = [path for path in legs if path.parent.name != Path(service.settings.sync_dir).name]
    parse = importlib.import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    last_step = -1
    for path in earlier:
        for data in _read_records(path.read_bytes()):
            for item in parse(data).history.item:
                if "_step" in (item.key, *item.nested_key):
                    last_step = max(last_step, int(json.loads(item.value_json)))
    return last_step if earlier else None


def _read_records(data: bytes) -> Iterator[bytes]:
    """The whole records of a log, whatever its end looks like after a kill."""
    position, record = HEADER_SIZE, b""  # the file has a header as long as that of a record
    while position + HEADER_SIZE <= len(data):
        left = BLOCK_SIZE - position % BLOCK_SIZE
        if left < HEADER_SIZE:  # the rest of a block that has no room for another record
            position += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, position)
        position += HEADER_SIZE
        if kind not in (FULL, FIRST, MIDDLE, LAST) or position + size > len(data):
            return
        piece = data[position : position + size]
        record = piece if kind in (FULL, FIRST) else record + piece
        if kind in (FULL, LAST):
            yield record
        position += size
