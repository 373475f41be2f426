"""Jobs that search: the first rank asks for values, and all train with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna

import footplate
from ranks_training import small


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


def search(folder: Path, **options: Any) -> Any:
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
    trainer = footplate.Trainer(
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
