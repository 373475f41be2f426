"""Trials from Weights & Biases: its service chooses the values of a sweep, each trial is one run there."""

from __future__ import annotations

import copy
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from footplate.disk import read_json, replacing
from footplate.search.outcomes import FAILED, Outcome
from footplate.search.record import TrialRecord
from footplate.search.studies import Asked
from footplate.search.wandb_client import (
    bound_finish,
    check_online,
    check_reachable,
    describe,
    import_wandb,
    interrupt,
)
from footplate.search.wandb_sweep import OBJECTIVE_KEY

logger = logging.getLogger(__name__)

FILE_NAME = "wandb_sweep.json"
STEP_KEY = "train/global_step"  # the axis of a run's values
MAX_FILE_BYTES = 10_000
VARIABLES = (  # that the client sets
    *("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_DIR"),
    *("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH"),
)
CLOSE_SECONDS = 30.0
CHECK_SECONDS = 60.0  # after so long without a run, look whether the service is there
POLL_SECONDS = 0.2


class SweepTrial(dict[str, Any]):
    """The values of a run of a sweep, as code for sweeps reads them: `trial["learning_rate"]`.

    Args:
        number: Which trial of the search it is.
        run_id: The id of the run at W&B.
        values: The values by name.
    """

    def __init__(self, number: int, run_id: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.number, self.run_id = number, run_id

    @property
    def params(self) -> dict[str, Any]:
        """The values, as code for other trials reads them."""
        return dict(self)


class WandbStudy:
    """A sweep of W&B, worked on by the client's own agent.

    The agent calls a function in a thread, stops that thread with an error wherever it is, and keeps errors
    of the function to itself. So that function only waits; the trial runs on the thread that asks for it,
    where signals and errors arrive. `close` must be called at the end.

    Args:
        sweep: The configuration of the sweep; with `sweep_id` only the name of its metric counts.
        record: The trials that have ended. A second call after a kill goes on with the same sweep.
        num_trials: How many trials the search has in all; None for as many as the sweep has.
        sweep_id: A sweep that is there, as `id`, `project/id` or `entity/project/id`.
        project: The project of the sweep; default: `WANDB_PROJECT`.
        entity: The user or team; default: `WANDB_ENTITY`, or that of the key.
        settle: Waits until the client has received everything that was logged; called before this study
            writes to a run or ends it.
    """

    def __init__(
        self,
        sweep: dict[str, Any] | None,
        record: TrialRecord,
        num_trials: int | None = None,
        *,
        sweep_id: str | None = None,
        project: str | None = None,
        entity: str | None = None,
        settle: Callable[[], Any] = lambda: None,
    ) -> None:
        self.wandb = import_wandb()
        self.record, self.settle = record, settle
        self.project, self.entity = project, entity
        self._count = None if num_trials is None else num_trials - len(record.outcomes)  # runs to come
        self._url = check_online(self.wandb)
        self._environment = {name: os.environ.get(name) for name in VARIABLES}
        self._path = self._find_path(sweep, sweep_id)
        self._logs_objective = ((sweep or {}).get("metric") or {}).get("name") == OBJECTIVE_KEY
        self._agent: threading.Thread | None = None
        # of the agent: True for a run, at the end False or an error
        self._events: queue.SimpleQueue[bool | BaseException] = queue.SimpleQueue()
        self._release = threading.Event()  # set: the agent may go on to its next run
        self._is_stopped = False  # whether W&B wants the current run to stop
        self._num_asked = 0
        self._run: Any = None  # the current one

    def ask(self) -> Asked | None:
        """The next run of the sweep; None if the sweep has ended."""
        ended, self._release, self._is_stopped = self._release, threading.Event(), False
        ended.set()
        if self._agent is None:
            self._agent = threading.Thread(target=self._work, name="footplate-sweep", daemon=True)
            self._agent.start()
        if not self._wait():
            return None
        try:
            self._run = self.wandb.init(settings=bound_finish(self.wandb))
        except Exception as error:
            raise self._refusal(error) from error
        self._num_asked += 1
        config = dict(self._run.config)
        values = {key: copy.deepcopy(value) for key, value in config.items() if key != "_wandb"}
        number = max((outcome.number for outcome in self.record.outcomes), default=-1) + 1
        return Asked(SweepTrial(number, str(self._run.id), values), values)

    def report(self, number: int, values: list[float], step: int) -> bool:
        """Log an objective if no metric has its name; True if W&B wants the run to stop."""
        if self._logs_objective:
            self.settle()  # a tracker's thread must not write into the same row meanwhile
            is_open = step >= self._run.step  # else the row of this step is closed
            self._run.log({OBJECTIVE_KEY: values[0], STEP_KEY: step}, step=step if is_open else None)
        return self._is_stopped

    def tell(self, outcome: Outcome) -> None:
        """End the run, with the best objective in its summary."""
        self.settle()
        if outcome.values:
            self._run.summary[OBJECTIVE_KEY] = outcome.values[0]
        self._end_run(int(outcome.state == FAILED))

    def close(self) -> None:
        """End the agent, and a run that is open still, as failed; put the client's variables back."""
        try:
            if self._run is not None:
                self.settle()
                self._end_run(1)
        finally:
            agent = self._agent
            if agent is not None and agent.is_alive():
                if self._num_asked != self._count:
                    interrupt(agent)
                self._release.set()
                agent.join(CLOSE_SECONDS)
            self._restore_environment()

    # ---- the sweep and its runs ----

    @property
    def sweep_id(self) -> str:
        """The id of the sweep, without project and entity."""
        return self._path.rpartition("/")[2]

    def _find_path(self, sweep: dict[str, Any] | None, given: str | None) -> str:
        """The path of the sweep: as given, or that of a search that goes on, or that of a new sweep."""
        file_path = os.path.join(self.record.folder, FILE_NAME)
        if given is not None and given.count("/") > 2:
            raise ValueError(f"sweep_id={given!r}: give it as id, project/id or entity/project/id.")
        path = given or read_path(file_path) or self._create(sweep)
        with replacing(file_path) as file:
            file.write(json.dumps({"sweep": path}).encode("utf-8"))
        return path

    def _create(self, sweep: dict[str, Any] | None) -> str:
        """Create the sweep, and return its path."""
        try:
            name = str(self.wandb.sweep(sweep, project=self.project, entity=self.entity))
            # the client has stored there where the sweep is
            parts = [os.getenv("WANDB_ENTITY"), os.getenv("WANDB_PROJECT"), name]
        except Exception as error:
            raise RuntimeError(
                f"W&B did not create the sweep: {describe(error)}. Check WANDB_API_KEY, "
                f"project={self.project!r}, entity={self.entity!r} and WANDB_BASE_URL, which is {self._url}."
            ) from error
        finally:
            self._restore_environment()
        return "/".join(map(str, parts)) if all(parts) else name

    def _refusal(self, error: BaseException) -> RuntimeError:
        return RuntimeError(
            f"W&B gave no run of sweep {self._path} for the next trial: {describe(error)}. Check the sweep, "
            f"and WANDB_BASE_URL, which is {self._url}. A second call goes on with the same sweep; "
            "resume=False begins another."
        )

    def _wait(self) -> bool:
        """Whether the agent has got a run; while it has none, look whether the service is there."""
        has_warned = False
        while True:
            begun = time.monotonic()
            while time.monotonic() - begun < CHECK_SECONDS:
                try:
                    event = self._events.get(timeout=1.0)
                except queue.Empty:
                    if self._agent is not None and not self._agent.is_alive() and self._events.empty():
                        return False  # it has said so before
                    continue
                if isinstance(event, BaseException):
                    raise self._refusal(event) from event
                return event
            check_reachable(self._url)
            if not has_warned:
                logger.warning(
                    "W&B has given out no run for %d seconds. Is sweep %s paused?", CHECK_SECONDS, self._path
                )
                has_warned = True

    def _restore_environment(self) -> None:
        """Put back the variables that the client sets: later runs must not become part of the sweep."""
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _end_run(self, exit_code: int) -> None:
        run, self._run = self._run, None
        try:
            run.finish(exit_code=exit_code)
        except TimeoutError as error:
            raise RuntimeError(
                f"W&B did not take the last values of run {run.id} within {run.settings.finish_timeout:g} "
                f"seconds. They are in {run.settings.sync_dir}: `wandb sync` sends them. Call the search "
                "again to go on."
            ) from error

    # ---- on the threads of the agent ----

    def _work(self) -> None:
        """Let the agent work until the sweep or the search ends."""
        event: BaseException | bool = False
        try:
            self.wandb.agent(
                self._path, self._take_run, entity=self.entity, project=self.project, count=self._count
            )
        except BaseException as error:
            event = error
        self._events.put(event)

    def _take_run(self) -> None:
        """Say that the agent has got a run, and wait until that has ended."""
        release = self._release
        self._events.put(True)
        while True:
            try:
                while not release.is_set():
                    time.sleep(POLL_SECONDS)  # a wait for the event may hold a lock when the error comes
                return
            except Exception:  # raised here by the agent, from outside: W&B wants the run to stop
                self._is_stopped = True


def read_path(file_path: str) -> str | None:
    """The path of the sweep that an earlier call has created; None without one."""
    try:
        found = read_json(file_path, MAX_FILE_BYTES).get("sweep")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, str) else None
