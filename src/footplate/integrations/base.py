"""The base of all trackers: a callback that sends a run to a service from its own thread."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from footplate.callbacks.base import TrainerCallback
from footplate.integrations.guard import Guard
from footplate.integrations.headings import add_headings
from footplate.integrations.isolation import call_weakly, undisturbed
from footplate.integrations.ledger import Ledger
from footplate.integrations.run import Run, describe_run
from footplate.integrations.values import declared_by, final_metrics, to_plain
from footplate.state import ExportableState, TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


OPEN_WAIT = 5.0  # seconds; how long training waits for a service to open


class TrackerCallback(TrainerCallback, ExportableState):
    """What all trackers have in common; a subclass defines how its service opens, writes, ends and closes.

    The methods `open` to `close` run on the guard's thread, one after the other, while training continues.
    They may raise: the guard warns, tries again, and finally switches the tracker off. Raise
    `guard.SetupError` for an error that a second attempt cannot fix, such as a missing key. Only for `open`,
    where clients import, seed and change folders, training waits a few seconds, and undoes that afterwards.

    On that thread `self.run` is the run that was opened last. On other threads, call `wait_for_service`
    before you read what `open` has set.
    """

    name: ClassVar[str]  # in `report_to`
    wants_step_data = False

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.service_id: str | None = None
        self.run: Run | None = None
        self.guard = Guard(self.name)
        self._current: Run | None = None  # of the events; `run` follows on the guard's thread
        self._event_id: str | None = None  # the `run_id` that events of this run carry
        self._begin_kwargs: dict[str, Any] = {}  # of the event that begins a run, while `setup` is called
        self._is_ended = False
        self._num_seen = 0  # logs of the run that were submitted, or made before the run began

    # ---- what a service defines ----

    def open(self, run: Run) -> str | None:
        """Begin the run at the service, or continue `run.service_id`; return the run's id there."""
        raise NotImplementedError

    def write(self, values: dict[str, Any], step: int) -> None:
        """Write one log: values by key with heading, at a step."""
        raise NotImplementedError

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write rows with the model's predictions; by default nothing, as not every service shows text."""

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Upload a sealed checkpoint, if the service keeps models; rotation may have removed the folder."""

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Write that training has ended, with its final metrics; an evaluation may still follow."""

    def close(self) -> None:
        """Close the run at the service; no more values follow."""

    # ---- events of the run ----

    def setup(self, args: TrainingArguments, state: TrainerState, model: Any = None, **kwargs: Any) -> None:
        """Begin to report. An override calls this first; then it may `wait_for_service` and add values."""
        if not state.is_world_process_zero:
            return
        kwargs = {**self._begin_kwargs, **kwargs}
        self._event_id = kwargs.get("run_id") or None
        run_id = str(self._event_id or uuid.uuid4().hex[:12])
        if self.run_id != run_id:
            self.run_id, self.service_id = run_id, None
        run = describe_run(args, state, model, run_id)
        self.resume(run)
        num_sent = run.num_sent  # read now: `open` may change it on the other thread
        with undisturbed():
            self.guard.submit(self._open_run, run)
            self.guard.settle(OPEN_WAIT)
        for number, entry in enumerate(state.log_history[num_sent:], num_sent + 1):
            # these were logged before this tracker was added, or lost in a kill
            values = {key: value for key, value in entry.items() if key != "step"}
            self._submit_log(values, int(entry.get("step", 0)), number, kwargs)
        self._num_seen = len(state.log_history)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *given: Any,
        **kwargs: Any,
    ) -> None:
        """Open the run, or continue the one it resumes; an old override may pass the model by position."""
        kwargs.update(zip(("model",), given, strict=False))
        is_fresh = not state.global_step and not state.log_history
        if self._is_begun(**kwargs) and is_fresh:  # an evaluation before it opened the run already
            self.guard.submit(self._restart_count)
            self._num_seen = 0
            return
        self._close_run()
        self.guard.revive()
        self._begin(args, state, **kwargs)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *given: Any,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Send a log, with headings; an old override may pass the model and the logs by position."""
        logs = next((value for value in given if isinstance(value, dict)), logs)
        is_open = self._is_begun(**kwargs)
        if not self._begin(args, state, **kwargs):
            return
        number = len(state.log_history)
        if number > self._num_seen:
            self._submit_log(logs or {}, state.global_step, number, kwargs)
        elif is_open or not number:  # a log that is not in the history, so it has no number
            self._submit_log(logs or {}, state.global_step, None, kwargs)
        self._num_seen = number

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Send the metrics of a prediction, which are not in the log history."""
        if self._begin(args, state, **kwargs):
            self._submit_log(metrics or {}, state.global_step, None, kwargs)

    def on_samples(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        samples: list[dict[str, Any]] | None = None,
        source: str = "eval",
        **kwargs: Any,
    ) -> None:
        """Send rows with the model's predictions."""
        if self._begin(args, state, **kwargs):
            self.guard.submit(self.write_samples, samples or [], source, state.global_step)

    def on_seal(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        checkpoint: str = "",
        checkpoint_step: int = 0,
        **kwargs: Any,
    ) -> None:
        """Send a checkpoint that is complete on disk."""
        if self._begin(args, state, **kwargs):
            self.guard.submit(self.write_checkpoint, checkpoint, checkpoint_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Send that training has ended, and wait briefly for calls that are still in the queue."""
        if self._begin(args, state, **kwargs):
            self.guard.submit(self._end_run, final_metrics(state.log_history), state.global_step)
            self.guard.flush()

    def finish(self, timeout: float | None = None) -> bool:
        """Send everything, close the run and wait; False if the service did not take it in time."""
        self._close_run()
        return self.guard.flush(timeout)

    def wait_for_service(self, timeout: float = 10.0) -> None:
        """Wait until the service has taken everything, so that the client's own objects can be used."""
        self.guard.flush(timeout)

    @property
    def _initialized(self) -> bool:
        """Whether a run is open; old overrides use this name."""
        return self._current is not None

    @_initialized.setter
    def _initialized(self, is_open: bool) -> None:
        if not is_open:
            self._close_run()

    def __del__(self) -> None:
        # with the Trainer the thread ends too: the queue keeps this object until the run is closed
        # a thread that is started while Python ends never runs, and its start is waited for without end
        if getattr(self, "guard", None) is not None and not sys.is_finalizing():
            self._close_run()
            self.guard.retire()

    # ---- what a resume needs ----

    def state(self) -> dict[str, Any]:
        """The ids by which a resumed run is found at the service."""
        return {"args": {}, "attributes": {"run_id": self.run_id, "service_id": self.service_id}}

    def resume(self, run: Run) -> None:
        """Continue `run` from where the ledger says this tracker stopped."""
        self._current = run
        self.guard.at_exit = call_weakly(self._close_run)
        self.guard.sync_command = f"footplate sync {run.output_dir} --to {self.name}"
        entry = Ledger(run.output_dir, self.name).find(run.run_id)
        run.service_id = entry.service_id if entry is not None else self.service_id
        if entry is not None:
            # logs sent before a kill are made again by an exact resume, with the same numbers: not sent twice
            run.num_sent = 0 if run.resume_point.is_start else entry.num_sent
        elif self.service_id is not None:  # the folder was moved without its ledger
            run.num_sent = run.num_logs

    # ---- helpers ----

    def _is_begun(self, **kwargs: Any) -> bool:
        """Whether the run of this event has begun; an event without `run_id` belongs to the current run."""
        run_id = kwargs.get("run_id") or None
        if self._current is not None and self._event_id is None:
            self._event_id = run_id  # an old script began the run without a `run_id`
        return self._current is not None and run_id in (None, self._event_id)

    def _begin(self, args: TrainingArguments, state: TrainerState, **kwargs: Any) -> bool:
        """Begin the run if it has not begun; False if this process does not report."""
        if not state.is_world_process_zero:
            return False
        if not self._is_begun(**kwargs):
            self._close_run()
            model = kwargs.pop("model", None)
            self._begin_kwargs = kwargs
            self.setup(args, state, model, **declared_by(self.setup, kwargs))
            if self._current is None:  # an old override that does not call super
                TrackerCallback.setup(self, args, state, model)
            self._begin_kwargs = {}
        return True

    def _submit_log(
        self, logs: Mapping[str, Any], step: int, number: int | None, kwargs: Mapping[str, Any]
    ) -> None:
        """Queue a log; one with a number among the run's logs is sent once, however often it is made."""
        values = {key: to_plain(value) for key, value in logs.items()}
        values = add_headings(values, kwargs.get("metric_prefixes", ()))
        if number is None:
            self.guard.submit(self.write, values, step)
        else:
            self.guard.submit(self._write_log, values, step, number)

    def _close_run(self) -> None:
        if self._current is not None:
            self.guard.submit(self._close_service)
        self._current = None

    # ---- on the guard's thread ----

    def _open_run(self, run: Run) -> None:
        """Open the run, and write its id to the ledger at once: a kill may follow."""
        self.run = run
        self.service_id = self.open(run)
        self._is_ended = False
        run.live_model = None  # a tracker outlives the run, and must not keep the model in memory
        self._note()

    def _write_log(self, values: dict[str, Any], step: int, number: int) -> None:
        """Write the log with this number, unless it was sent before a restart."""
        assert self.run is not None
        if number > self.run.num_sent:
            self.write(values, step)
            self.run.num_sent = number
            self._note()

    def _end_run(self, metrics: dict[str, Any], step: int) -> None:
        """Write the end, and note it in the ledger."""
        self.end(metrics, step)
        self._is_ended = True
        self._note()

    def _close_service(self) -> None:
        """Close the run, and note in the ledger that everything has arrived."""
        self.close()
        self._note(is_closed=True)

    def _restart_count(self) -> None:
        assert self.run is not None
        self.run.num_sent = 0
        self._note()

    def _note(self, is_closed: bool = False) -> None:
        if self.run is None:
            return
        # a full disk must not raise here: the guard would send the same log again
        with contextlib.suppress(OSError):
            ledger = Ledger(self.run.output_dir, self.name)
            ledger.note(self.run.run_id, self.service_id, self.run.num_sent, self._is_ended, is_closed)
