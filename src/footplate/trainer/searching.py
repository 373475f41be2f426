"""The part of the Trainer that searches: what it runs is in `search.py`, loaded with the first search."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.outputs import BestRun, HPSearchBackend
from footplate.state import TRAINER_STATE_NAME
from footplate.trainer.training import Training


class Searching(Training):
    """Training again and again, each time with other settings."""

    def hyperparameter_search(
        self,
        hp_space: Any = None,
        compute_objective: Callable[[dict[str, float]], Any] | None = None,
        n_trials: int | None = 20,
        direction: str | list[str] | None = None,
        backend: str | HPSearchBackend | None = None,
        hp_name: Callable[[Any], str] | None = None,
        **kwargs: Any,
    ) -> BestRun | list[BestRun]:
        """Train with different settings, and return which were best; a second call goes on after a kill.

        Args:
            hp_space: A function of a trial that gives settings by name, or a dictionary of lists and ranges.
            compute_objective: The number to compare, or several, from the metrics of an evaluation; default:
                `metric_for_best_model`. The best evaluation of a trial counts.
            n_trials: How many trials in all.
            direction: "minimize" or "maximize", or a list of these; default: as the metric needs it.
            backend: "optuna", "ray", "wandb", "random" or "grid"; default: Optuna where it is installed, else
                "random".
            hp_name: The name of a trial, for its folder and for trackers; default `run-<number>`.
            **kwargs: `load_best=True` loads the best model afterwards, `n_jobs=2` runs two trials at the same
                time, `resume=False` begins anew, `timeout` in seconds, `catch`: errors that end a trial only;
                and those of `optuna.create_study`, of `ray.tune.run`, or of a sweep of W&B.
        """
        from footplate.trainer.search import search  # with the backends: only searches need them

        self.hp_space, self.hp_name, self.compute_objective = hp_space, hp_name, compute_objective
        return search(self, hp_space, compute_objective, n_trials, direction, backend, kwargs)

    def _tune_save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint of the run as it is now into a folder of somebody else's search."""
        folder = os.path.join(checkpoint_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        self.save_model(folder, _internal_call=True)
        if self.args.should_save:
            self.state.stateful_callbacks["TrainerControl"] = self.control.state()
            self.state.save_to_json(os.path.join(folder, TRAINER_STATE_NAME))
            self._save_optimizer_and_scheduler(folder)
