"""`Session`: all that lives as long as one search, and the trial that is under way."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

from footplate import comm
from footplate.search.desk import Begun, Chief
from footplate.search.notes import save_note
from footplate.search.objective import Evaluated, Objective
from footplate.search.outcomes import COMPLETE, FAILED, PRUNED, Outcome
from footplate.search.spaces import hp_params

MAX_FIRST_FAILURES = 3  # a search whose first trials all fail has a mistake that no further trial mends


class Session:
    """One search, as a process that trains sees it. On several ranks the first one has the chief.

    Args:
        objective: What trials are compared by.
        chief: Whom trials tell how they go; None on the other ranks, which follow the first one.
        folder: Where the record of the search is: another rank than the first notes a failure there.
    """

    def __init__(self, objective: Objective, chief: Chief | None, folder: str | None = None) -> None:
        self.objective = objective
        self.chief = chief
        self._folder = folder
        # of the trial under way
        self.trial: Any = None
        self.number = -1
        self.values: dict[str, Any] = {}
        self.name = ""
        self.evaluated: list[Evaluated] = []
        self.is_pruned = False
        self._began = 0.0

    def begin(self, begun: Begun, trial: Any) -> None:
        """Begin a trial.

        Args:
            begun: Its number, values and name.
            trial: What `model_init` and callbacks are given.
        """
        self.trial = trial
        self.number, self.values, self.name = begun.number, begun.values, begun.name
        self.evaluated, self.is_pruned, self._began = [], False, time.monotonic()

    def note(self, metrics: dict[str, float], step: int) -> float | list[float]:
        """Take the metrics of an evaluation and return the objective, or several. All ranks call this.

        Args:
            metrics: What the evaluation gave.
            step: The update that it belongs to.
        """
        values = self.objective.read(metrics)
        self.evaluated.append(Evaluated(values, step))
        self.is_pruned |= bool(
            comm.ask_first(lambda: self.chief and self.chief.report(self.number, values, step))
        )
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

    def tell_alone(self, outcome: Outcome) -> None:
        """Say how a trial ended whose error ends this process: any rank may be the only one that can."""
        if self.chief is not None:
            self.chief.tell(outcome)
        elif self._folder is not None:
            save_note(self._folder, outcome)

    def _outcome(self, state: str, best: Evaluated | None) -> Outcome:
        return Outcome(
            number=self.number,
            state=state,
            params=dict(hp_params(self.trial)),
            values=best.values if best is not None else None,
            step=best.step if best is not None else None,
            folder=self.name,
            seconds=round(time.monotonic() - self._began, 3),
            reported={str(one.step): one.values for one in self.evaluated},
            run_id=getattr(self.trial, "run_id", None),
        )

    def tell(self, outcome: Outcome) -> None:
        """Say how the trial ended. All ranks call this."""
        self.trial = None
        if self.chief is not None:
            self.chief.tell(outcome)


def check_progress(outcomes: list[Outcome], num_trials: int | None) -> None:
    """Raise if every trial failed: after the first few, or at the end of a short search."""
    limit = min(MAX_FIRST_FAILURES, num_trials or MAX_FIRST_FAILURES)
    if len(outcomes) >= limit and all(outcome.state == FAILED for outcome in outcomes):
        raise RuntimeError(
            f"The first {len(outcomes)} trial(s) of the search failed, so it ends here. The first one: "
            f"{outcomes[0].error}"
        )
