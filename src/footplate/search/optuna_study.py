"""Trials from Optuna: its samplers and pruners, its journal file in the folder of the search."""

from __future__ import annotations

import copy
import math
import os
from typing import Any

from footplate.search.outcomes import COMPLETE, PRUNED, Outcome
from footplate.search.ranges import Space
from footplate.search.record import TrialRecord, cut_partial_line
from footplate.search.studies import Asked, check_values

JOURNAL_NAME = "optuna.log"
STUDY_NAME = "footplate"


class OptunaStudy:
    """A study of Optuna that goes on after a kill as if there had been none.

    Args:
        space: What a trial chooses.
        directions: "minimize" or "maximize" for each objective.
        record: The trials that have ended.
        seed: Of the sampler, unless `options` have one.
        options: Arguments of `optuna.create_study`.
        is_parallel: Several trials run at the same time.
    """

    def __init__(
        self,
        space: Space,
        directions: list[str],
        record: TrialRecord,
        seed: int,
        options: dict[str, Any],
        is_parallel: bool = False,
    ) -> None:
        self.optuna = import_optuna()
        self.space, self.directions, self.record = space, directions, record
        options = {"study_name": STUDY_NAME, **options}
        if options.get("sampler") is None:
            # with constant_liar, trials under way count as bad: others keep away from them
            options["sampler"] = self.optuna.samplers.TPESampler(seed=seed, constant_liar=is_parallel)
        is_own = options.get("storage") is None
        if is_own:
            options["storage"] = open_journal(self.optuna, os.path.join(record.folder, JOURNAL_NAME))
            options["load_if_exists"] = True
        self.study = self.optuna.create_study(directions=directions, **options)
        self._trials: dict[int, Any] = {}  # those under way
        self._left: list[Any] = []  # trials that a killed process had begun
        self._reported: dict[int, dict[int, float]] = {}  # theirs, by update, before the kill
        if is_own:
            self._resume()

    def ask(self) -> Asked:
        """The next trial, or one that a killed process had begun."""
        trial = self._left.pop(0) if self._left else self.study.ask()
        self._trials[trial.number] = trial
        return Asked(trial, check_values(self.space(trial)))

    def report(self, number: int, values: list[float], step: int) -> bool:
        """Report an objective at its update; True if the pruner ends the trial."""
        if len(self.directions) > 1 or math.isnan(values[0]):  # pruners know one objective
            return False
        trial, reported = self._trials[number], self._reported.get(number, {})
        if step not in reported:
            trial.report(values[0], step)
        elif step < max(reported):  # it was asked before the kill, and the trial went on
            return False
        return bool(trial.should_prune())

    def tell(self, outcome: Outcome) -> None:
        """Tell Optuna how the trial ended."""
        self.study.tell(self._trials.pop(outcome.number), *end_of(self.optuna, outcome))
        self._reported.pop(outcome.number, None)

    def _resume(self) -> None:
        """Take up trials that were under way, and bring the sampler to where it was."""
        past = self.study.get_trials(deepcopy=False)
        if not past:
            return
        rehearse(self.optuna, self.study, past, self.directions)
        running = [trial for trial in past if trial.state == self.optuna.trial.TrialState.RUNNING]
        for trial in running:
            outcome = self.record.find(trial.number)
            if outcome is not None:  # killed between the two files
                self.study.tell(trial.number, *end_of(self.optuna, outcome))
                continue
            self._reported[trial.number] = dict(trial.intermediate_values)
            sampler = self.study.sampler
            # what a trial draws when it is made was drawn above already
            self.study.sampler = copy.deepcopy(sampler)
            try:
                self._left.append(self.optuna.Trial(self.study, trial._trial_id))
            finally:
                self.study.sampler = sampler


def end_of(optuna: Any, outcome: Outcome) -> tuple[Any, Any]:
    """Values and state of a trial's end, as Optuna takes them."""
    states = optuna.trial.TrialState
    if outcome.state == COMPLETE:
        return outcome.values, states.COMPLETE
    return None, states.PRUNED if outcome.state == PRUNED else states.FAIL


def rehearse(optuna: Any, study: Any, past: list[Any], directions: list[str]) -> None:
    """Let the sampler draw again, in memory, what it drew for these trials: then it draws what came next.

    Args:
        optuna: The package.
        study: The study that goes on.
        past: Its trials in order.
        directions: Its directions.
    """
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        rehearsal = optuna.create_study(
            directions=directions, sampler=study.sampler, pruner=study.pruner, study_name=study.study_name
        )
        for frozen in past:
            trial = rehearsal.ask(frozen.distributions)
            for step, value in sorted(frozen.intermediate_values.items()):
                trial.report(value, step)
            if frozen.state.is_finished():
                rehearsal.tell(
                    trial, frozen.values if frozen.state.name == "COMPLETE" else None, frozen.state
                )
    finally:
        optuna.logging.set_verbosity(level)


class NoLock:
    """Stands for Optuna's own lock, which stays behind after a kill and makes the next process wait."""

    def acquire(self) -> bool:
        """Nobody else writes this file: the folder of the search is locked."""
        return True

    def release(self) -> None:
        """There is nothing to let go of."""


def open_journal(optuna: Any, path: str) -> Any:
    """Optuna's journal in a file; what a kill has cut at its end is removed first."""
    cut_partial_line(path)
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(path, lock_obj=NoLock()))


def import_optuna() -> Any:
    """The package; without it, an error that says what to do."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "backend='optuna' needs a package: pip install 'footplate[search]'. backend='random' and "
            "backend='grid' need none."
        ) from error
    return optuna


def is_prune(error: BaseException) -> bool:
    """Whether a user's own code has pruned the trial."""
    return any(kind.__name__ == "TrialPruned" for kind in type(error).__mro__)
