"""The loss of each row by a formula, against the loss of that row alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from footplate.training.row_losses import FORMULAS, are_same, compute_row_losses


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def classes(*shape, num=5, ignored=()):
    labels = torch.randint(num, shape, generator=torch.Generator().manual_seed(1))
    for place in ignored:
        labels[place] = -100
    return labels


def shifted(scores, labels, count=None):
    total = functional.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    return total / (labels[:, 1:] if count is None else labels).ne(-100).sum()


def spans(scores, ends, labels):
    return sum(map(functional.cross_entropy, (scores, ends), labels)) / 2


TOKENS = classes(6, 7, ignored=[(0, slice(3)), (2, slice(0, 6)), (4, 2)])
CASES = {
    "classes": ((draw(6, 5),), classes(6), functional.cross_entropy),
    "tokens": ((draw(6, 7, 5),), TOKENS, lambda s, t: functional.cross_entropy(s.flatten(0, 1), t.flatten())),
    "next tokens": ((draw(6, 7, 5),), TOKENS, shifted),
    "next tokens and first": ((draw(6, 7, 5),), TOKENS, lambda s, t: shifted(s, t, "all")),
    "places": ((draw(6, 5, 3, 4),), classes(6, 3, 4, ignored=[(1, 2)]), functional.cross_entropy),
    "spans": ((draw(6, 9), draw(6, 9) + 1), (classes(6, num=9), classes(6, num=9)), spans),
    "squares": ((draw(6, 3),), draw(6, 3) + 1, functional.mse_loss),
    "distances": ((draw(6, 1),), draw(6, 1) - 1, functional.l1_loss),
    "flags": ((draw(6, 3),), (draw(6, 3) > 0).float(), functional.binary_cross_entropy_with_logits),
}


def take(labels, place):
    row = slice(place, place + 1)
    return tuple(part[row] for part in labels) if isinstance(labels, tuple) else labels[row]


@pytest.mark.parametrize("name", CASES)
def test_a_formula_gives_each_row_what_the_row_alone_has(name):
    answers, labels, loss = CASES[name]
    found = compute_row_losses(name, answers, labels)
    alone = [loss(*(answer[i : i + 1] for answer in answers), take(labels, i)) for i in range(6)]
    assert are_same(found.rows, alone, torch.float32)
    assert are_same(found.batch, loss(*answers, labels), torch.float32)


def test_every_formula_is_tested():
    assert set(CASES) == set(FORMULAS)


def test_a_row_without_a_label_that_counts_has_no_loss():
    labels = torch.full((2, 4), -100)
    labels[1, 2] = 3
    found = compute_row_losses("tokens", [draw(2, 4, 5)], labels)
    assert found.rows.isnan().tolist() == [True, False]


@pytest.mark.parametrize(
    ("name", "answers", "labels"),
    [
        ("classes", [draw(6, 5)], classes(6) + 5),  # no class of the model
        ("classes", [draw(6, 5)], classes(6) - 7),
        ("classes", [draw(6, 5)], draw(6)),  # one number each
        ("classes", [draw(6, 5)], (classes(6), classes(6))),
        ("tokens", [draw(6, 5)], classes(6)),
        ("next tokens", [draw(6, 1, 5)], classes(6, 1)),  # nothing is left to predict
        ("places", [draw(6, 5)], classes(6)),
        ("spans", [draw(6, 9)], (classes(6), classes(6))),
        ("squares", [draw(6, 5)], draw(6, 4)),
        ("squares", [draw(6, 5)], classes(6)),
        ("flags", [torch.tensor(1.0)], torch.tensor(1.0)),
    ],
)
def test_what_does_not_fit_gives_none(name, answers, labels):
    assert compute_row_losses(name, answers, labels) is None


def test_losses_are_the_same_but_for_rounding():
    assert are_same([1.0, float("nan")], [1.00005, float("nan")], torch.float32)
    assert not are_same([1.0], [1.01], torch.float32)
    assert are_same([1.0], [1.01], torch.bfloat16)
    assert not are_same([1.0], [1.1], torch.bfloat16)
    assert not are_same([1.0, 2.0], [1.0], torch.float32)
    assert not are_same([float("nan")], [1.0], torch.float32)
