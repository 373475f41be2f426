"""What a search found: the best trials, their checkpoints, and all trials as a table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from footplate.outputs import BestRun
from footplate.search.outcomes import Outcome, find_best
from footplate.search.record import FILE_NAME, FOLDER_NAME, read_record


@dataclass(frozen=True)
class SearchSummary:
    """All trials of a search, as `BestRun.run_summary` has them.

    Args:
        output_dir: The folder of the search.
        objective: What trials were compared by.
        directions: "minimize" or "maximize" for each objective.
        trials: How each trial ended.
    """

    output_dir: str
    objective: str
    directions: list[str]
    trials: list[Outcome]

    @property
    def best(self) -> list[Outcome]:
        """The best trial; with several objectives, all that no other one surpasses."""
        return find_best(self.trials, self.directions)

    @property
    def best_checkpoint(self) -> str | None:
        """The checkpoint of the best trial's best evaluation; None if none was saved then."""
        best = self.best
        return self.checkpoint_of(best[0]) if best else None

    def checkpoint_of(self, outcome: Outcome) -> str | None:
        """The checkpoint of a trial's best evaluation; None if none was saved then."""
        if outcome.checkpoint is None or outcome.folder is None:
            return None
        return os.path.join(self.output_dir, outcome.folder, outcome.checkpoint)

    def best_run(self) -> BestRun:
        """The best trial as the API returns it."""
        runs = self.best_runs()
        if not runs:
            raise RuntimeError(
                f"No trial of the {len(self.trials)} came to its end, so there is no best one. "
                f"{self.output_dir}/search/trials.jsonl says why."
            )
        return runs[0]

    def best_runs(self) -> list[BestRun]:
        """The best trials as the API returns them; the objective is a list if there are several."""
        is_single = len(self.directions) == 1
        runs = []
        for outcome in self.best:
            values = outcome.values or []
            objective: Any = values[0] if is_single else list(values)
            runs.append(BestRun(outcome.run_id or str(outcome.number), objective, dict(outcome.params), self))
        return runs

    def __str__(self) -> str:
        return "\n".join(describe_outcome(outcome) for outcome in self.trials)

    __repr__ = __str__


def load_summary(output_dir: str) -> SearchSummary:
    """The search of a folder, from its file.

    Args:
        output_dir: The folder of the search.
    """
    found = read_record(os.path.join(output_dir, FOLDER_NAME, FILE_NAME))
    if found is None:
        raise FileNotFoundError(f"{output_dir} holds no search: there is no {FOLDER_NAME}/{FILE_NAME}.")
    about, outcomes = found
    return SearchSummary(
        output_dir, str(about.get("objective")), list(about.get("directions") or ()), outcomes
    )


def describe_outcome(outcome: Outcome) -> str:
    """A trial in a line."""
    values = " ".join(f"{value:.6g}" for value in outcome.values or ())
    params = " ".join(f"{name}={_short(value)}" for name, value in outcome.params.items())
    end = outcome.error.splitlines()[-1][:200] if outcome.error else values
    return f"trial {outcome.number}: {outcome.state} {end} ({params})"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
