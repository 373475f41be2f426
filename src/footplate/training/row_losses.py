"""The loss of every row of a batch from one forward: by the formula that gives what `compute_loss` gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from footplate.batch import IGNORED_LABEL

Part = tuple[torch.Tensor, torch.Tensor]  # of each row: the sum over its items, and how many they are
Formula = Callable[[Sequence[torch.Tensor], Any], "list[Part] | None"]

HALF = (torch.float16, torch.bfloat16)


class RowLosses(NamedTuple):
    """The losses of a batch by one formula."""

    rows: torch.Tensor  # of each row, in float64
    batch: float  # of the batch as a whole: every item weighs the same


def compute_row_losses(name: str, answers: Sequence[torch.Tensor], labels: Any) -> RowLosses | None:
    """The loss of each row by the formula of this name; None where outputs and labels do not fit it."""
    try:
        parts = FORMULAS[name](answers, labels)
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError):  # other shapes and kinds
        return None
    if parts is None:
        return None
    rows = torch.stack([sums.double() / counts for sums, counts in parts]).mean(0)
    whole = torch.stack([sums.double().sum() / counts.sum() for sums, counts in parts]).mean()
    return RowLosses(rows, float(whole))  # host sync


def are_same(losses: Any, others: Any, precision: torch.dtype) -> bool:
    """Whether these losses are the same but for rounding, NaN being the same as NaN.

    Args:
        losses: Some losses.
        others: As many, computed in another way.
        precision: Of the outputs that they were computed from.
    """
    first, second = (torch.as_tensor(one, dtype=torch.float64).cpu().reshape(-1) for one in (losses, others))
    # a row alone goes through other kernels than a batch: its last bits differ
    relative, absolute = (2e-2, 1e-2) if precision in HALF else (1e-4, 1e-5)
    return len(first) == len(second) and torch.allclose(
        first, second, rtol=relative, atol=absolute, equal_nan=True
    )


# ---- formulas: None, or an error of torch, where they do not fit ----


def of_classes(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """One class for each row, or the right one of several choices."""
    scores = answers[0]
    if scores.ndim != 2 or labels.numel() != len(scores):
        return None
    return _cross_entropy(scores.unsqueeze(1), labels.reshape(-1, 1))


def of_tokens(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """One class for each token."""
    scores = answers[0]
    return _cross_entropy(scores, labels) if scores.ndim == 3 and labels.shape == scores.shape[:2] else None


def of_next_tokens(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """The next token at each place."""
    scores = answers[0]
    if scores.ndim != 3 or labels.shape != scores.shape[:2]:
        return None
    return _cross_entropy(scores[:, :-1], labels[:, 1:])


def of_next_tokens_and_first(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """The same, divided by a count that has the first label too, which nothing predicts."""
    found = of_next_tokens(answers, labels)
    return found and [(sums, labels.ne(IGNORED_LABEL).sum(1)) for sums, _ in found]


def of_places(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """One class for each pixel or token, with the classes in the second dimension."""
    scores = answers[0]
    if scores.ndim < 3 or labels.shape != (scores.shape[0], *scores.shape[2:]):
        return None
    return _cross_entropy(scores.flatten(2).transpose(1, 2), labels.flatten(1))


def of_spans(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """The first and the last token of an answer; one that lies outside of the row does not count."""
    if not isinstance(labels, tuple) or len(labels) != 2 or len(answers) < 2:
        return None
    parts: list[Part] = []
    for scores, places in zip(answers, labels, strict=False):
        if scores.ndim != 2:
            return None
        inside = places.reshape(-1).clamp(min=0)
        inside = inside.masked_fill(inside >= scores.shape[1], IGNORED_LABEL)
        parts += _cross_entropy(scores.unsqueeze(1), inside.unsqueeze(1)) or []
    return parts if len(parts) == 2 else None


def of_squares(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """The mean square of the differences."""
    return _compare(answers[0], labels, functional.mse_loss)


def of_distances(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """The mean of the differences."""
    return _compare(answers[0], labels, functional.l1_loss)


def of_flags(answers: Sequence[torch.Tensor], labels: Any) -> list[Part] | None:
    """A yes or no for each class."""
    return _compare(answers[0], labels, functional.binary_cross_entropy_with_logits)


FORMULAS: dict[str, Formula] = {
    "classes": of_classes,
    "next tokens": of_next_tokens,
    "next tokens and first": of_next_tokens_and_first,
    "tokens": of_tokens,
    "places": of_places,
    "spans": of_spans,
    "squares": of_squares,
    "flags": of_flags,
    "distances": of_distances,
}


def _cross_entropy(scores: torch.Tensor, labels: torch.Tensor) -> list[Part] | None:
    """Of scores for each row, item and class, and the class of each item."""
    if labels.is_floating_point() or not scores.is_floating_point() or not labels.numel():
        return None
    counted = labels.ne(IGNORED_LABEL)
    # a label that is no class would be an error of a device that cannot be recovered from
    if int(labels.max()) >= scores.shape[-1] or bool((counted & (labels < 0)).any()):  # host sync
        return None
    losses = functional.cross_entropy(
        scores.flatten(0, 1).float(), labels.flatten().long(), reduction="none", ignore_index=IGNORED_LABEL
    )
    return [(losses.view(labels.shape).sum(1), counted.sum(1))]


def _compare(values: torch.Tensor, labels: Any, measure: Callable[..., torch.Tensor]) -> list[Part] | None:
    """Of one number or several for each row, and as many that are right."""
    if not values.is_floating_point() or not labels.is_floating_point() or not values.ndim:
        return None
    if values.numel() != labels.numel() or len(values) != len(labels):
        return None
    values = values.float().reshape(len(values), -1)
    losses = measure(values, labels.to(values.dtype).reshape(values.shape), reduction="none")
    return [(losses.sum(1), torch.full((len(values),), losses.shape[1], device=losses.device))]
