"""A tracker as a callback: hears of a run, and tells its service from a thread of its own."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from footplate.callbacks.base import TrainerCallback
from footplate.integrations.guard import Guard
from footplate.integrations.headings import add_headings
from footplate.integrations.ledger import Ledger
from footplate.integrations.run import Run, describe_run
from footplate.integrations.values import declared_by, final_metrics, to_plain
from footplate.state import ExportableState, TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class TrackerCallback(TrainerCallback, ExportableState):
    """What all trackers have in common. A service says how it opens, writes, ends and closes.

    The methods `open` to `close` run on the guard's thread, one after the other, never while training waits.
    They may raise: the guard warns, tries again, and in the end switches the tracker off. What no second
    attempt can mend, such as a missing key, is raised as `guard.SetupError`.

    On that thread `self.run` is the run that was opened last. Elsewhere, call `wait_for_service` before you
    look at what `open` has made.
    """

    name: ClassVar[str]  # as `report_to` names it
    package: ClassVar[str]  # what must be importable
    wants_step_data = False

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.service_id: str | None = None
        self.run: Run | None = None
        self.guard = Guard(self.name)
        self._current: Run | None = None  # what events belong to; the thread's `run` follows
        self._event_id: str | None = None  # by which events name it
        self._told: dict[str, Any] = {}  # what the event that begins a run says of it
        self._is_ended = False
        self._num_seen = 0  # logs of it that were submitted, or made before it began

    # ---- what a service defines ----

    def open(self, run: Run) -> str | None:
        """Begin the run with the service, or go on with `run.service_id`; returns the service's id of it."""
        raise NotImplementedError

    def write(self, values: dict[str, Any], step: int) -> None:
        """One log: values under their headings, at a step."""
        raise NotImplementedError

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """What the model says about a few rows; nothing where the service cannot show text."""

    def write_checkpoint(self, folder: str, step: int) -> None:
        """A sealed checkpoint, for services that keep models; the folder may be gone by now."""

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Training is over, with these final metrics; evaluations and predictions may still follow."""

    def close(self) -> None:
        """Nothing more will come."""

    # ---- what the run tells it ----

    def setup(self, args: TrainingArguments, state: TrainerState, model: Any = None, **kwargs: Any) -> None:
        """Begin to report. An override calls this first; then it may `wait_for_service` and add its own."""
        if not state.is_world_process_zero:
            return
        told = {**self._told, **kwargs}
        self._event_id = told.get("run_id") or None
        run_id = str(self._event_id or uuid.uuid4().hex[:12])
        if self.run_id != run_id:
            self.run_id, self.service_id = run_id, None
        run = describe_run(args, state, model, run_id)
        self.resume(run)
        num_sent = run.num_sent  # read now: `open` may change it on the other thread
        self.guard.submit(self._open_run, run)
        for number, entry in enumerate(state.log_history[num_sent:], num_sent + 1):
            values = {key: value for key, value in entry.items() if key != "step"}  # it missed these before
            self._submit_log(values, int(entry.get("step", 0)), number, told)
        self._num_seen = len(state.log_history)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *given: Any,
        **kwargs: Any,
    ) -> None:
        """Open the run, or go on with the one it resumes; an old override may pass the model by its place."""
        kwargs.update(zip(("model",), given, strict=False))
        is_fresh = not state.global_step and not state.log_history
        if self._is_begun(**kwargs) and is_fresh:  # an evaluation before it opened the run already
            self.guard.submit(self._count_anew)
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
        """Send the log on its way, under its headings; an old override may pass the model before it."""
        logs = next((value for value in given if isinstance(value, dict)), logs)
        is_open = self._is_begun(**kwargs)
        if not self._begin(args, state, **kwargs):
            return
        number = len(state.log_history)
        if number > self._num_seen:
            self._submit_log(logs or {}, state.global_step, number, kwargs)
        elif is_open or not number:  # somebody logs past the history: it cannot be counted
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
        """Send the metrics of a prediction, which are not logged."""
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
        """Send what the model says about a few rows."""
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
        """Tell of a checkpoint that is whole on the disk."""
        if self._begin(args, state, **kwargs):
            self.guard.submit(self.write_checkpoint, checkpoint, checkpoint_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell that training is over, and wait a little for what is still on its way."""
        if self._begin(args, state, **kwargs):
            self.guard.submit(self._end_run, final_metrics(state.log_history), state.global_step)
            self.guard.flush()

    def finish(self, timeout: float | None = None) -> bool:
        """Send everything, close the run and wait for it; False where the service did not take it in time."""
        self._close_run()
        return self.guard.flush(timeout)

    def wait_for_service(self, timeout: float = 10.0) -> None:
        """Wait until the service has taken all that was sent, so that its own objects can be looked at."""
        self.guard.flush(timeout)

    @property
    def _initialized(self) -> bool:
        """Whether a run is open, as old overrides ask."""
        return self._current is not None

    @_initialized.setter
    def _initialized(self, is_open: bool) -> None:
        if not is_open:
            self._close_run()

    # ---- how it remembers ----

    def state(self) -> dict[str, Any]:
        """The ids by which a resumed run finds its way back."""
        return {"args": {}, "attributes": {"run_id": self.run_id, "service_id": self.service_id}}

    def resume(self, run: Run) -> None:
        """Take up `run` where this tracker left it, by what its ledger says."""
        self._current = run
        self.guard.at_exit = self._close_run
        self.guard.remedy = f"footplate sync {run.output_dir} --to {self.name}"
        entry = Ledger(run.output_dir, self.name).find(run.run_id)
        run.service_id = entry.service_id if entry is not None else self.service_id
        if entry is not None:
            # sent before a kill, and made again by an exact resume: once is enough
            run.num_sent = entry.num_sent if run.num_logs or run.first_step else 0
        elif self.service_id is not None:  # the folder was moved without its ledger
            run.num_sent = run.num_logs

    # ---- inside ----

    def _is_begun(self, **kwargs: Any) -> bool:
        """Whether the run of this event is the one that was begun; an event without a name always is."""
        run_id = kwargs.get("run_id") or None
        if self._current is not None and self._event_id is None:
            self._event_id = run_id  # an old script began it, without saying which run it is
        return self._current is not None and run_id in (None, self._event_id)

    def _begin(self, args: TrainingArguments, state: TrainerState, **kwargs: Any) -> bool:
        """Open the run if it is not yet; False where this process does not report."""
        if not state.is_world_process_zero:
            return False
        if not self._is_begun(**kwargs):
            self._close_run()
            self._told = {key: value for key, value in kwargs.items() if key != "model"}
            model = kwargs.get("model")
            self.setup(args, state, model, **declared_by(self.setup, self._told))
            if self._current is None:  # an old override that calls no super: it begins the run by itself
                TrackerCallback.setup(self, args, state, model)
            self._told = {}
        return True

    def _submit_log(
        self, logs: Mapping[str, Any], step: int, number: int | None, kwargs: Mapping[str, Any]
    ) -> None:
        """Queue a log; with its number among the run's logs it is sent once, however often it is made."""
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
        """Open, and write down the id at once."""
        self.run = run
        self.service_id = self.open(run)
        self._is_ended = False
        run.live_model = None  # whoever needs it has it: a service that lives on shall not keep it
        self._note()

    def _write_log(self, values: dict[str, Any], step: int, number: int) -> None:
        """Write the run's log of this number, unless that was done before a restart."""
        assert self.run is not None
        if number > self.run.num_sent:
            self.write(values, step)
            self.run.num_sent = number
            self._note()

    def _end_run(self, metrics: dict[str, Any], step: int) -> None:
        """Tell the end, and write down that it was told."""
        self.end(metrics, step)
        self._is_ended = True
        self._note()

    def _close_service(self) -> None:
        """Close, and write down that all has arrived."""
        self.close()
        self._note(is_closed=True)

    def _count_anew(self) -> None:
        assert self.run is not None
        self.run.num_sent = 0
        self._note()

    def _note(self, is_closed: bool = False) -> None:
        if self.run is None:
            return
        # a full disk must not make the guard send the same log again
        with contextlib.suppress(OSError):
            ledger = Ledger(self.run.output_dir, self.name)
            ledger.note(self.run.run_id, self.service_id, self.run.num_sent, self._is_ended, is_closed)
