"""A function that is tried first knows nothing of it afterwards, and its failure names the user's line."""

from __future__ import annotations

import functools
import random
from collections import Counter, deque

import numpy as np
import pytest
import torch

from footplate.training import rehearsal
from footplate.training.rehearsal import CannotPutBack, describe_failure, undisturbed

calls: list[int] = []
count = 0
nested = {"seen": [1], "by_name": {"a": {1}}}


def writes_a_global(value):
    global count
    count += value
    calls.append(value)
    nested["seen"].append(value)
    nested["by_name"]["a"].add(value)


def calls_another(value):
    writes_a_global(value)


def closure():
    total, history, found = 0, deque(maxlen=3), Counter()

    def metric(value):
        nonlocal total
        total += value
        history.append(value)
        found[value] += 1
        metric.calls = getattr(metric, "calls", 0) + 1

    return metric, lambda: (total, list(history), dict(found), getattr(metric, "calls", 0))


class Metric:
    def __init__(self):
        self.best, self.scores, self.sums = 0.0, [], np.zeros(3)
        self.tensor = torch.zeros(2)
        self.random, self.numpy = random.Random(1), np.random.default_rng(1)
        self.torch = torch.Generator().manual_seed(1)

    def __call__(self, value):
        self.best, self.added = max(self.best, value), True
        self.scores.append(value)
        self.sums += value
        self.tensor.add_(value)
        self.drawn = (self.random.random(), self.numpy.random(), torch.rand(1, generator=self.torch))

    def state(self):
        numbers = (self.best, list(self.scores), self.sums.tolist(), self.tensor.tolist())
        return (*numbers, hasattr(self, "added"), self.random.getstate(), str(self.numpy.bit_generator.state))


def test_global_variables_are_put_back_also_through_another_function():
    with undisturbed(calls_another):
        calls_another(5)
        assert (count, calls, nested["seen"]) == (5, [5], [1, 5])
    assert (count, calls) == (0, [])
    assert nested == {"seen": [1], "by_name": {"a": {1}}}


def test_what_a_closure_holds_is_put_back():
    metric, read = closure()
    metric(2)
    before = read()
    with undisturbed(metric):
        metric(7)
        assert read() != before
    assert read() == before


@pytest.mark.parametrize("form", ["object", "method", "partial"])
def test_what_an_object_holds_is_put_back(form):
    metric = Metric()
    called = {"object": metric, "method": metric.__call__, "partial": functools.partial(metric, 3)}[form]
    before, scores = metric.state(), metric.scores
    draw = torch.rand(1, generator=torch.Generator().manual_seed(1))
    with undisturbed(called):
        called() if form == "partial" else called(3)
        assert metric.state() != before
    assert metric.state() == before
    assert metric.scores is scores
    assert torch.rand(1, generator=metric.torch) == draw


def test_state_is_put_back_after_a_failure_too():
    def metric(values):
        values_seen.append(values)
        raise KeyError("f1")

    values_seen: list[int] = []
    with pytest.raises(KeyError), undisturbed(metric):
        metric(1)
    assert values_seen == []


def test_a_function_that_reads_from_an_iterator_is_not_tried():
    remaining = iter([1, 2])
    with pytest.raises(CannotPutBack, match="list_iterator"), undisturbed(lambda value: next(remaining)):
        raise AssertionError("it was tried")
    assert next(remaining) == 1


def test_a_function_with_too_much_to_look_at_is_not_tried(monkeypatch):
    monkeypatch.setattr(rehearsal, "NUM_OBJECTS", 10)
    many = [[number] for number in range(20)]
    with pytest.raises(CannotPutBack, match="more than 10"), undisturbed(lambda value: many):
        raise AssertionError("it was tried")
    monkeypatch.setattr(rehearsal, "NUM_BYTES", 10)
    array = np.zeros(10)
    with pytest.raises(CannotPutBack, match="80 bytes"), undisturbed(lambda value: array):
        raise AssertionError("it was tried")


def test_nothing_is_looked_for_in_libraries_and_in_none():
    with undisturbed(np.mean, None, len, print):
        pass


def fails(value):
    return {"f1": value["f1"]}


def test_a_failure_names_type_text_and_the_users_line():
    with pytest.raises(KeyError) as caught:
        fails({})
    text = describe_failure(caught.value)
    assert text.startswith("KeyError: 'f1' (")
    assert f"{__file__}, line {fails.__code__.co_firstlineno + 1}, in fails" in text
    assert 'return {"f1": value["f1"]}' in text


def test_a_failure_inside_a_library_names_the_line_that_called_it():
    def joins():
        return np.concatenate([np.zeros(2), np.zeros((2, 2))])

    with pytest.raises(ValueError) as caught:
        joins()
    assert "in joins: return np.concatenate" in describe_failure(caught.value)
