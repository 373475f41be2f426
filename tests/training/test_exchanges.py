"""Whether code mentions an exchange between processes is found in what it calls, too."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from footplate.training.exchanges import may_exchange


def mean_of_all(values: Any) -> Any:
    dist.all_reduce(values)
    return values


def mean_of_own(values: Any) -> Any:
    return torch.mean(values)


def helper(values: Any) -> Any:
    return [mean_of_all(value) for value in values]


class Exchanging(nn.Module):
    def forward(self, values: Any) -> Any:
        return list(map(dist.get_rank, values))


class Owner:
    def __init__(self, loss: Any = None) -> None:
        self.loss = loss

    def direct(self, values: Any) -> Any:
        return self.accelerator.gather(values)  # type: ignore[attr-defined]

    def by_method(self, values: Any) -> Any:
        return self.direct(values)

    def by_function(self, values: Any) -> Any:
        return helper(values)

    def in_a_function(self, values: Any) -> Any:
        return (lambda: mean_of_all(values))()

    def by_module(self, values: Any) -> Any:
        return self.loss(values)

    def harmless(self, values: Any) -> Any:
        return mean_of_own(values) + self.loss(values)


class Heir(Owner):
    def direct(self, values: Any) -> Any:
        return super().direct(values)


def test_an_exchange_is_found_wherever_it_is():
    for owner in (Owner(Exchanging()), Heir(nn.Sequential(nn.ReLU(), Exchanging()))):
        for name in ("direct", "by_method", "by_function", "in_a_function", "by_module"):
            assert may_exchange(getattr(owner, name), owner), name


def test_an_exchange_is_found_behind_a_decorator():
    @wraps(Owner.by_function)
    def decorated(self, values):
        return self

    assert may_exchange(decorated, Owner())


def test_code_without_an_exchange_is_let_through():
    assert not may_exchange(Owner(nn.CrossEntropyLoss()).harmless, Owner(nn.CrossEntropyLoss()))
    assert not may_exchange(Owner(nn.Linear(1, 1)).by_module, Owner(nn.Linear(1, 1)))


def test_functions_that_call_each_other_end():
    assert not may_exchange(Turning().first, Turning())


class Turning:
    def first(self) -> Any:
        return self.second()

    def second(self) -> Any:
        return self.first()
