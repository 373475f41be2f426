"""`Session`: all that lives as long as one search, and the trial that is under way."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from footplate import comm
from footplate.search.objective import Evaluated, Objective
from footplate.search.outcomes import COMPLETE, FAILED, PRUNED, Outcome
from footplate.search.record import TrialRecord
from footplate.search.studies import Study
from footplate.search.trial import fixed_trial

MAX_FIRST_FAILURES = 3  # a search whose first trials all fail has a mistake that no further trial mends


class Chief(NamedTuple):
    """What the first rank has: it asks for trials, and writes how they ended."""

    study: Study
    record: TrialRecord


class Session:
    """One search. Every rank has one; the first rank asks, and all follow.

    Args:
        objective: What trials are compared by.
        chief: Study and record, on the first rank.
        name_trial: The name of a trial, which its folder gets; default: `run-<number>`.
    """

    def __init__(
        self, objective: Objective, chief: Chief | None, name_trial: Callable[[Any], str] | None = None
    ) -> None:
        self.objective = objective
        self.chief = chief
        self._name_trial = name_trial
        # of the trial under way
        self.trial: Any = None
        self.values: dict[str, Any] = {}
        self.name = ""
        self.evaluated: list[Evaluated] = []
        self.is_pruned = False
        self._began = 0.0

    def ask(self, num_trials: int | None, deadline: float | None) -> bool:
        """Begin the next trial; False if the search is over. All ranks call this.

        Args:
            num_trials: How many trials the search has in all.
            deadline: When it ends, by `time.monotonic`.
        """
        found = comm.ask_first(lambda: self._ask(num_trials, deadline))
        if found is None:
            return False
        number, params, self.values, self.name = found
        if self.chief is None:
            self.trial = fixed_trial(number, params)
        self.evaluated, self.is_pruned, self._began = [], False, time.monotonic()
        return True

    def _ask(
        self, num_trials: int | None, deadline: float | None
    ) -> tuple[int, dict[str, Any], dict[str, Any], str] | None:
        """On the first rank: number, values, settings and name of the next trial."""
        assert self.chief is not None
        study, record = self.chief
        if num_trials is not None and len(record.outcomes) >= num_trials:
            return None
        if deadline is not None and time.monotonic() >= deadline:
            return None
        asked = study.ask()
        if asked is None:
            return None
        self.trial = asked.trial
        number = self.trial.number
        name = f"run-{number}" if self._name_trial is None else str(self._name_trial(self.trial))
        if any(outcome.folder == name for outcome in record.outcomes):
            name = f"{name}-{number}"  # two trials may be given one name
        record.clear_unfinished(name)
        return number, dict(self.trial.params), asked.values, name

    def note(self, metrics: dict[str, float], step: int) -> float | list[float]:
        """Take the metrics of an evaluation and return the objective, or several. All ranks call this.

        Args:
            metrics: What the evaluation gave.
            step: The update that it belongs to.
        """
        values = self.objective.read(metrics)
        self.evaluated.append(Evaluated(values, step))
        self.is_pruned |= bool(comm.ask_first(lambda: self.chief and self.chief.study.report(values, step)))
        return values[0] if len(values) == 1 else values

    def finish(self, best_step: int | None, find_checkpoint: Callable[[int], str | None]) -> Outcome:
        """How the trial ended that came to its end.

        Args:
            best_step: The update that the run itself calls its best.
            find_checkpoint: The name of the checkpoint of an update, if it is there.
        """
        best = self.objective.choose(self.evaluated, best_step)
        outcome = self._outcome(PRUNED if self.is_pruned else COMPLETE, best)
        if best is None or any(value != value for value in best.values):
            return self.fail(ValueError(f"the objective is {None if best is None else best.values}"))
        return outcome.replace(checkpoint=find_checkpoint(best.step))

    def fail(self, error: BaseException, is_prune: bool = False) -> Outcome:
        """How a trial ended that an error has ended; the error lets go of what its frames hold."""
        best = self.objective.choose(self.evaluated, None)
        outcome = self._outcome(PRUNED if is_prune else FAILED, best)
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        current: BaseException | None = error
        while current is not None:  # frames hold models and batches
            traceback.clear_frames(current.__traceback__)
            current = current.__cause__ or current.__context__
        return outcome.replace(error=None if is_prune else text[:2000])

    def _outcome(self, state: str, best: Evaluated | None) -> Outcome:
        return Outcome(
            number=self.trial.number,
            state=state,
            params=dict(self.trial.params),
            values=best.values if best is not None else None,
            step=best.step if best is not None else None,
            folder=self.name,
            seconds=round(time.monotonic() - self._began, 3),
            reported={str(one.step): one.values for one in self.evaluated},
        )

    def tell(self, outcome: Outcome) -> None:
        """Write how a trial ended, and tell the study. All ranks call this."""
        self.trial = None
        if self.chief is not None:
            self.chief.record.add(outcome)  # first: a kill before the next line is mended from here
            self.chief.study.tell(outcome)


def check_progress(outcomes: list[Outcome], num_trials: int | None) -> None:
    """Raise if every trial failed: after the first few, or at the end of a short search."""
    limit = min(MAX_FIRST_FAILURES, num_trials or MAX_FIRST_FAILURES)
    if len(outcomes) >= limit and all(outcome.state == FAILED for outcome in outcomes):
        raise RuntimeError(
            f"The first {len(outcomes)} trial(s) of the search failed, so it ends here. The first one: "
            f"{outcomes[0].error}"
        )
