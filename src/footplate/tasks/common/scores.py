"""Metrics of several tasks, from the libraries made for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from footplate.tasks.common.problems import TaskError


def measure(names: tuple[str, ...], predictions: Any, references: Any) -> dict[str, float]:
    """The metrics that are named; several of them also give their mean as `combined_score`."""
    unknown = [name for name in names if name not in SCORES]
    if unknown:
        raise TaskError(
            f"--metric_name {unknown[0]}: there is no such metric. Choose among {sorted(SCORES)}."
        )
    results: dict[str, float] = {}
    for name in names:
        results[name] = float(SCORES[name](np.asarray(references), np.asarray(predictions)))
    return results


def with_mean(results: dict[str, float]) -> dict[str, float]:
    """The results and, if there are several, their mean."""
    if len(results) < 2:
        return results
    return {**results, "combined_score": float(np.mean(list(results.values())))}


def accuracy(references: Any, predictions: Any) -> float:
    """The share of predictions that are right."""
    return float((predictions == references).mean())


def mse(references: Any, predictions: Any) -> float:
    """The mean of squared differences."""
    return float(((predictions - references) ** 2).mean())


def f1(references: Any, predictions: Any) -> float:
    """F1 of the class 1; over all flags together if several classes may be true at once."""
    from sklearn.metrics import f1_score

    if references.ndim > 1:
        return float(f1_score(references, predictions, average="micro", zero_division=0))
    is_binary = set(np.unique(references)) | set(np.unique(predictions)) <= {0, 1}
    average = "binary" if is_binary else "macro"
    return float(f1_score(references, predictions, average=average, zero_division=0))


def matthews_correlation(references: Any, predictions: Any) -> float:
    """Matthews' correlation coefficient."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(references, predictions))


def pearson(references: Any, predictions: Any) -> float:
    """Pearson's correlation."""
    from scipy.stats import pearsonr

    return float(pearsonr(predictions, references)[0])


def spearmanr(references: Any, predictions: Any) -> float:
    """Spearman's rank correlation."""
    from scipy.stats import spearmanr as correlate

    return float(correlate(predictions, references)[0])


SCORES = {
    "accuracy": accuracy,
    "f1": f1,
    "mse": mse,
    "matthews_correlation": matthews_correlation,
    "pearson": pearson,
    "spearmanr": spearmanr,
}
