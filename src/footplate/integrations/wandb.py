"""Weights & Biases: each run is one run there, online or offline."""

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
from footplate.integrations.known import TOTALS, WAIT_SECONDS, KnowingTracker
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.integrations.values import as_table
from footplate.state import TrainerControl, TrainerState
from footplate.words import read_flag

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

STEP_KEY = "train/global_step"
FLUSH_SECONDS = 1.0  # a kill may lose this much of an offline run; the client's default is 15

_holders: dict[str, list[WandbCallback]] = {}  # callbacks by run; the last one ends the run
# by run and key: the last step that was sent, and the id of the callback that sent it
_sent: dict[str, dict[str, tuple[int, int]]] = {}
_sharing = threading.Lock()


class WandbCallback(KnowingTracker):
    """Sends a run to Weights & Biases.

    `WANDB_PROJECT`, `WANDB_NAME`, `WANDB_RUN_ID`, `WANDB_MODE` and the client's other environment variables
    apply. `WANDB_LOG_MODEL` is "checkpoint" (every sealed checkpoint becomes an artifact), "end" (the last or
    best one does) or "false"; `WANDB_WATCH` is "gradients", "parameters", "all" or "false". Your own run,
    from `wandb.init()` before training, is used and not finished.
    """

    name = "wandb"

    def __init__(self) -> None:
        super().__init__()
        self._log_model = _find_log_model()
        self._service: Any = None  # the run at W&B
        self._is_own = False  # whether a callback began it
        self._last_step = -1  # the last step that W&B has of the run
        self._written: dict[str, int] = {}  # by run: the last step that this process has sent
        self._final_checkpoint: str | None = None

    @property
    def _wandb(self) -> Any:
        """The client, as `self._wandb.log` needs it; waits until it has received everything that was sent."""
        self.wait_for_service(WAIT_SECONDS)
        for other in _holders.get(self.service_id or "", ())[:]:
            other.wait_for_service(WAIT_SECONDS)
        return import_client("wandb")

    # ---- calls on the guard's thread ----

    def open(self, run: Run) -> str | None:
        """Begin or continue the run; steps that W&B has are not sent again."""
        client = import_client("wandb")
        is_open = client.run is not None and client.run is self._service
        if self._service is not None and not (is_open and self._service.id == _find_id(run)):
            self.close()  # the run of an earlier train()
        if self._service is None:
            self._begin_or_share(client, run)
        last_step = _find_last_step(self._service) if self._is_own else None
        self.learn(run, None if last_step is None else ())
        # finish() returns before the client's file is complete: after it, only we know the last step
        self._last_step = max(-1 if last_step is None else last_step, self._written.get(self._service.id, -1))
        self._service.config.update(
            _find_new(self._service.config, run.config_and_size), allow_val_change=True
        )
        self._service.define_metric(STEP_KEY)
        self._service.define_metric("*", step_metric=STEP_KEY, step_sync=True)
        return str(self._service.id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Write one row per step, with our step as W&B's step too."""
        if step <= self._last_step:
            return
        with _sharing:  # another callback must not close the row in between
            self._write_row(self._claim(values, step), step)

    def _write_row(self, values: dict[str, Any], step: int) -> None:
        if not values:
            return
        # W&B drops values for a row that a `log` call of the user has closed: use a new row then; STEP_KEY
        # still puts it at the right place on the axis
        own_step = step if step >= self._service.step else None
        self._service.log({**values, STEP_KEY: step}, step=own_step)
        self._written[self._service.id] = step

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write a table."""
        columns, data = as_table(rows)
        table = import_client("wandb").Table(columns=columns, data=data, allow_mixed_types=True)
        self.write({f"{source}/samples": table}, step)

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Upload the checkpoint as an artifact, if every checkpoint is wanted."""
        self._final_checkpoint = folder
        if self._log_model == "checkpoint":
            self._log_artifact(folder, [f"checkpoint_global_step_{step}"])

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Write the totals to the run's summary, and upload the model if wanted."""
        self._service.summary.update({key: metrics[key] for key in TOTALS if key in metrics})
        if self._log_model not in ("checkpoint", "end"):
            return
        if self._final_checkpoint is None:
            wanted = f"WANDB_LOG_MODEL={self._log_model}"
            logger.warning("%s uploads no model, because no checkpoint was saved: set save_strategy.", wanted)
        self._log_artifact(self._final_checkpoint, ["final_model"])

    def close(self) -> None:
        """Finish the run if a callback began it and no other callback still writes to it."""
        if self._service is not None and self._is_own:
            with _sharing:
                others = [holder for holder in _holders.pop(self._service.id, []) if holder is not self]
                if others:
                    _holders[self._service.id] = others
                else:
                    _sent.pop(self._service.id, None)
                    self._service.finish()
        self._service = None

    # ---- events of the run ----

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *given: Any,
        **kwargs: Any,
    ) -> None:
        """Open the run, and watch the model if `WANDB_WATCH` says so."""
        super().on_train_begin(args, state, control, *given, **kwargs)
        watched = os.getenv("WANDB_WATCH", "false").lower()
        if watched in ("gradients", "parameters", "all") and state.is_world_process_zero:
            # on this thread, not on the guard's: hooks must not be added during a forward
            _watch(self._wandb, kwargs.get("model", *given[:1]), watched, max(100, state.logging_steps))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Send that training has ended; if the best model was loaded, its checkpoint is the final one."""
        if args.load_best_model_at_end and state.best_model_checkpoint:
            self.guard.submit(setattr, self, "_final_checkpoint", state.best_model_checkpoint)
        super().on_train_end(args, state, control, **kwargs)

    # ---- helpers ----

    def _begin_or_share(self, client: Any, run: Run) -> None:
        """Begin the run, or share the run of the user or of another callback."""
        with _sharing:
            self._service = client.run
            if self._service is None:
                self._service = client.init(**_init_options(client, run))
                _holders[self._service.id] = []
            self._is_own = self._service.id in _holders
            if self._is_own:
                _holders[self._service.id].append(self)

    def _claim(self, values: dict[str, Any], step: int) -> dict[str, Any]:
        """The values that no other callback has sent to this run: each point is sent once."""
        sent = _sent.setdefault(self._service.id, {})
        own = (step, id(self))
        is_free = {key: sent.get(key, own)[1] == own[1] or step > sent[key][0] for key in values}
        free = {key: value for key, value in values.items() if is_free[key]}
        sent.update(dict.fromkeys(free, own))
        return free

    def _log_artifact(self, folder: str | None, aliases: list[str]) -> None:
        """Upload a sealed checkpoint as a version of the run's model, unless rotation removed it."""
        if folder is None or not Path(folder, "trainer_state.json").is_file():
            logger.info("wandb: no checkpoint to upload as %s.", ", ".join(aliases))
            return
        state = json.loads(Path(folder, "trainer_state.json").read_text(encoding="utf-8"))
        metadata = {key: state[key] for key in ("global_step", "epoch", "best_metric")}
        artifact = import_client("wandb").Artifact(
            f"model-{self._service.id}", type="model", metadata=metadata
        )
        artifact.add_dir(folder)
        self._service.log_artifact(artifact, aliases=[*aliases, f"epoch_{round(state['epoch'] or 0, 2)}"])


def _find_log_model() -> str:
    """The value of `WANDB_LOG_MODEL`."""
    wanted = os.getenv("WANDB_LOG_MODEL", "false").lower()
    if wanted not in ("checkpoint", "end", "false"):
        logger.warning('WANDB_LOG_MODEL=%r has no effect; use "checkpoint", "end" or "false".', wanted)
    return wanted


def _find_id(run: Run) -> str:
    return os.getenv("WANDB_RUN_ID") or run.service_id or run.run_id


def _find_new(config: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a run does not have yet: the client warns of each that its sweep has chosen."""
    return {key: value for key, value in settings.items() if key not in config or config[key] != value}


def _init_options(client: Any, run: Run) -> dict[str, Any]:
    """The options with which the client begins or continues this run."""
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
    """Online, offline or disabled; raises if there is no key: the client would ask the user for one."""
    if read_flag("WANDB_DISABLED"):
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
    except TypeError:  # an older client has no `prompt`
        return client.api.api_key is not None


def _watch(client: Any, model: Any, what: str, every: int) -> None:
    """Let W&B record gradients or parameters."""
    try:
        client.watch(model, log=what, log_freq=every)
    except Exception as error:
        logger.warning("wandb cannot watch the model: %s", error)


# ---- what earlier processes of an offline run have left on disk ----

BLOCK_SIZE, HEADER_SIZE = 32 * 1024, 7  # bytes, in the LevelDB log format that the client writes
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def _find_last_step(service: Any) -> int | None:
    """The last step that W&B has of this run; -1 if it has none, None if that cannot be known."""
    if service.settings.mode != "offline":
        return int(service.starting_step) - 1
    paths = Path(service.settings.wandb_dir).glob(f"offline-run-*-{service.id}/run-{service.id}.wandb")
    earlier = [path for path in paths if path.parent.name != Path(service.settings.sync_dir).name]
    parse = importlib.import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    last_step = -1
    for path in earlier:
        for data in _read_records(path.read_bytes()):
            for item in parse(data).history.item:
                if "_step" in (item.key, *item.nested_key):
                    last_step = max(last_step, int(json.loads(item.value_json)))
    return last_step if earlier else None


def _read_records(data: bytes) -> Iterator[bytes]:
    """The complete records of a log, up to where a kill cut it."""
    position, record = HEADER_SIZE, b""  # the file begins with a header of the same size
    while position + HEADER_SIZE <= len(data):
        left = BLOCK_SIZE - position % BLOCK_SIZE
        if left < HEADER_SIZE:  # too little room for a header: records continue in the next block
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
