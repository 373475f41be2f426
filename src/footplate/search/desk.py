"""`Desk`: hands out the trials of a search, hears how they go, and writes how they ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from footplate.search.outcomes import Outcome
from footplate.search.record import TrialRecord
from footplate.search.studies import Study
from footplate.search.trial import Domain, suggest


class Begun(NamedTuple):
    """A trial that was handed out, in values that travel between processes.

    Args:
        number: Which trial of the search it is.
        params: The values that were chosen, by name.
        values: The settings that the space made of them.
        name: The name of the trial, which its folder gets.
    """

    number: int
    params: dict[str, Any]
    values: dict[str, Any]
    name: str


class Chief(Protocol):
    """Whom a trial tells how it goes."""

    def report(self, number: int, values: list[float], step: int) -> bool:
        """Take the objectives of an evaluation of a trial; True if it should end here."""

    def tell(self, outcome: Outcome) -> None:
        """Take how a trial ended."""


class Desk:
    """Study and record of a search; several trials may be under way.

    Args:
        study: Where trials come from.
        record: The trials that have ended.
        num_trials: How many trials the search has in all; None for as many as the study has.
        seconds: After these no further trial begins; None for no such limit.
        name_trial: The name of a trial; default: `run-<number>`.
    """

    def __init__(
        self,
        study: Study,
        record: TrialRecord,
        num_trials: int | None = None,
        seconds: float | None = None,
        name_trial: Callable[[Any], str] | None = None,
    ) -> None:
        self.study, self.record, self.num_trials = study, record, num_trials
        self._name_trial = name_trial
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._has_begun = False
        self.trials: dict[int, Any] = {}  # those under way
        self._names: dict[int, str] = {}

    def ask(self) -> Begun | None:
        """Begin the next trial; None if no further one begins."""
        if self.num_trials is not None and len(self.record.outcomes) + len(self.trials) >= self.num_trials:
            return None
        # at least one, however short the time
        if self._has_begun and self._deadline is not None and time.monotonic() >= self._deadline:
            return None
        asked = self.study.ask()
        if asked is None:
            return None
        trial, self._has_begun = asked.trial, True
        own = f"run-{getattr(trial, 'run_id', trial.number)}"  # a run of a sweep has an id there
        name = own if self._name_trial is None else str(self._name_trial(trial))
        taken = {outcome.folder for outcome in self.record.outcomes}.union(self._names.values())
        if name in taken:
            name = f"{name}-{trial.number}"  # two trials may be given one name
        self.record.clear_unfinished(name)
        self.trials[trial.number], self._names[trial.number] = trial, name
        return Begun(trial.number, dict(trial.params), asked.values, name)

    def choose(self, number: int, domain: Domain) -> Any:
        """The value of a further name, which a trial under way asks for."""
        return suggest(self.trials[number], domain)

    def report(self, number: int, values: list[float], step: int) -> bool:
        """Take the objectives of an evaluation of a trial; True if it should end here."""
        return self.study.report(number, values, step)

    def tell(self, outcome: Outcome) -> None:
        """Write how a trial ended, and tell the study."""
        self.record.add(outcome)  # first: a kill before the next line is mended from here
        self.study.tell(outcome)
        self.trials.pop(outcome.number, None)
        self._names.pop(outcome.number, None)
