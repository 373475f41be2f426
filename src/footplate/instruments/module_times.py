"""How long forward takes in each module."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

from torch import nn

from footplate.instruments.activations import is_in_backward
from footplate.instruments.profile import Cost, rank_costs


class ModuleTimes:
    """While it is entered, times forward of each module, without what its parts take.

    Args:
        model: The model.
        wait: Waits until the device is done; None where there is nothing to wait for.
    """

    def __init__(self, model: nn.Module, wait: Callable[[], None] | None) -> None:
        self._model, self._wait = model, wait
        self._handles: list[Any] = []
        self._stack: list[float] = []  # of each module under way: what its parts have taken
        self._starts: list[float] = []
        self._seconds: dict[str, float] = defaultdict(float)
        self._calls: dict[str, int] = defaultdict(int)

    def __enter__(self) -> ModuleTimes:
        for name, module in self._model.named_modules():
            label = _label(name, module)
            self._handles += [
                module.register_forward_pre_hook(self._begin),
                module.register_forward_hook(self._make_end(label), always_call=True),
            ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def costs(self, num_updates: int) -> list[Cost]:
        """Each kind of module in one update, the most expensive first."""
        seconds = {name: spent / num_updates for name, spent in self._seconds.items()}
        calls = {name: number / num_updates for name, number in self._calls.items()}
        return rank_costs(seconds, calls, sum(seconds.values()))

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        if is_in_backward():  # computed again, to save memory: that is part of backward
            return
        self._stack.append(0.0)
        self._starts.append(self._now())

    def _make_end(self, label: str) -> Callable[..., None]:
        def end(module: nn.Module, inputs: Any, outputs: Any) -> None:
            if is_in_backward() or not self._starts:  # it was under way when the hooks were set
                return
            spent = self._now() - self._starts.pop()
            self._seconds[label] += spent - self._stack.pop()
            self._calls[label] += 1
            if self._stack:
                self._stack[-1] += spent

        return end

    def _now(self) -> float:
        if self._wait is not None:
            self._wait()
        return perf_counter()


def _label(path: str, module: nn.Module) -> str:
    """The path with a star for each number, and the class; equal modules have the same."""
    stars = re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path)
    return f"{stars} ({type(module).__name__})" if stars else type(module).__name__
