"""What a callback receives to let the model predict rows that the callback chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from footplate.state import TrainerControl


@dataclass(frozen=True)
class Predictor:
    """Reads rows, predicts them and sends the result to the callbacks, without a change in the run.

    Every event receives one as `predictor`. The fields are functions, because what they return changes: a
    subclass may set other label names, and `evaluate()` may be given another dataset.

    Args:
        eval_sets: The evaluation sets by name: those being evaluated now, else those of the Trainer.
        label_names: The entries of a batch that are labels; empty if neither forward nor the user names any.
        read: `(dataset)` to its batches, as evaluation reads them. Reading may draw random numbers: iterate
            inside `footplate.rng.scoped()` to leave those of the run as they are.
        predict: `(batch)` to the model's predictions and the labels. The model's modes, the records and the
            random numbers of the run stay as they are.
        tell: `(args, state, control, samples=rows, source=name)` calls `on_samples` of every callback and
            returns the control.
    """

    eval_sets: Callable[[], dict[str, Any]]
    label_names: Callable[[], Sequence[str]]
    read: Callable[[Any], Iterable[Any]]
    predict: Callable[[Any], tuple[Any, Any]]
    tell: Callable[..., TrainerControl]


def name_eval_sets(datasets: Any) -> dict[str, Any]:
    """Evaluation sets by the names that samples are shown under: `eval`, or `eval_<name>` of several."""
    if isinstance(datasets, dict):
        return {f"eval_{name}": dataset for name, dataset in datasets.items()}
    return {} if datasets is None else {"eval": datasets}
