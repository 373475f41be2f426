"""Jobs that search: the first rank asks for values, and all train with them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import optuna
from torch import nn

import footplate
from ranks_training import small
from ranks_training.failing import kill_once


class PruneOdd(optuna.pruners.BasePruner):
    """Ends every second trial at its second evaluation."""

    def prune(self, study: Any, trial: Any) -> bool:
        """Whether the trial ends here."""
        return bool(trial.number % 2 and trial.last_step >= 4)


class Rates(footplate.TrainerCallback):
    """Notes what each trial was trained with, and how far it came."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the settings."""
        self.seen.append([state.trial_name, args.learning_rate, args.seed])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the end."""
        self.seen[-1].append(state.global_step)


def search(folder: Path, kind: Any = footplate.Trainer, **options: Any) -> Any:
    """What a search gave, and what this rank trained with."""
    rates = Rates()
    args = small.arguments(
        folder,
        per_device_train_batch_size=3,
        max_steps=8,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="best",
        metric_for_best_model="loss",
    )
    trainer = kind(
        model_init=lambda trial: small.Classifier(),
        args=args,
        train_dataset=small.numbers(24),
        eval_dataset=small.numbers(7, seed=2),
        data_collator=small.collate,
        callbacks=[rates],
    )
    space = {"learning_rate": {"low": 0.001, "high": 0.5, "log": True}, "seed": [1, 2, 3]}
    best: Any = trainer.hyperparameter_search(space, n_trials=5, load_best=True, **options)
    trials = [[one.number, one.state, one.params, one.values, one.step] for one in best.run_summary.trials]
    return {
        "seen": rates.seen,
        "trials": trials,
        "best": [best.run_id, best.objective, best.hyperparameters],
        "checkpoint": Path(best.run_summary.best_checkpoint).name,
        "loss": trainer.evaluate()["eval_loss"],
    }


def pruned(folder: Path) -> Any:
    """A search by Optuna that prunes."""
    return search(folder, backend="optuna", pruner=PruneOdd())


def by_chance(folder: Path) -> Any:
    """A search without a package."""
    return search(folder, backend="random")


class Failing(footplate.Trainer):
    """Raises in the middle of the second trial, each time it is made, on one rank."""

    failing_rank = 0

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if self.state.trial_name == "run-1" and model.training and self.state.global_step == 3:
            if self.args.process_index == self.failing_rank:
                print(f"raised at {time.time()}", flush=True)
                raise ValueError("these rows are upside down")
            self.be_busy()
        return super().compute_loss(model, inputs, *args, **kwargs)

    def be_busy(self) -> None:
        """What the other rank does meanwhile."""


class FailingLast(Failing):
    """The same on the second rank, while the first one is in a call that takes long."""

    failing_rank = 1

    def be_busy(self) -> None:
        """Do not listen: this rank is ended by force, and cannot write down anything."""
        time.sleep(25)


def first_fails(folder: Path) -> Any:
    """A search of which a trial raises on the rank that writes."""
    return search(folder, Failing, backend="optuna")


def last_fails(folder: Path) -> Any:
    """A search of which a trial raises on the rank that does not write."""
    return search(folder, FailingLast, backend="optuna")


def last_is_killed(folder: Path) -> Any:
    """A search of which a trial loses a rank, once."""
    return search(folder, Killed, backend="optuna")


class Killed(footplate.Trainer):
    """Loses its second rank in the middle of the second trial, when that is made for the first time."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        is_there = self.state.trial_name == "run-1" and model.training and self.state.global_step == 3
        if is_there and self.args.process_index == 1:
            kill_once(Path(str(self.args.output_dir)).parent)
        return super().compute_loss(model, inputs, *args, **kwargs)
