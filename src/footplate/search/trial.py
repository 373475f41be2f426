"""A trial of footplate's own searches: it is asked for values as a trial of Optuna is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True)
class Domain:
    """The values that one name may have.

    Args:
        name: The name.
        options: The values to choose from; None for a range.
        low: The smallest value of a range.
        high: The largest one.
        step: Distance of two values of a range; None for any value in between.
        log: Small values are as likely as large ones, in proportion.
        is_whole: Only whole numbers.
    """

    name: str
    options: tuple[Any, ...] | None = None
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    log: bool = False
    is_whole: bool = False

    def __post_init__(self) -> None:
        if self.options is not None:
            if not self.options:
                raise ValueError(f"{self.name} has no values to choose from. Give at least one.")
            return
        if not self.low <= self.high:
            raise ValueError(f"{self.name} goes from {self.low} to {self.high}. Give the smaller one first.")
        if self.log and self.low <= 0:
            raise ValueError(f"{self.name} has log=True and begins at {self.low}. Begin above 0.")
        if self.step is not None and self.step <= 0:
            raise ValueError(f"{self.name} has step={self.step}. Give a step above 0.")

    def draw(self, generator: Random) -> Any:
        """One value by chance."""
        if self.options is not None:
            return self.options[generator.randrange(len(self.options))]
        if self.log:
            # a whole number stands for the half above and below it, so that the ends are as likely
            margin = 0.5 if self.is_whole else 0.0
            bounds = math.log(self.low - margin), math.log(self.high + margin)
            value = math.exp(generator.uniform(*bounds))
            return round(value) if self.is_whole else min(max(value, self.low), self.high)
        if self.step is not None:
            return self._at(generator.randrange(self._num_steps + 1))
        return generator.uniform(self.low, self.high)

    def list_values(self) -> list[Any]:
        """Every value, for a grid."""
        if self.options is not None:
            return list(self.options)
        if self.step is None:
            raise ValueError(
                f"{self.name} may be any number from {self.low} to {self.high}, and a grid needs single "
                "values. Give a list of values or a step, or choose backend='random'."
            )
        return [self._at(index) for index in range(self._num_steps + 1)]

    @property
    def _num_steps(self) -> int:
        assert self.step is not None
        return math.floor((self.high - self.low) / self.step + 1e-9)

    def _at(self, index: int) -> Any:
        assert self.step is not None
        value = self.low + index * self.step
        return int(value) if self.is_whole else value


class Trial:
    """One set of values, made by asking for them by name.

    Args:
        number: Which trial of the search it is, from 0.
        choose: The value of a domain.
    """

    def __init__(self, number: int, choose: Callable[[Domain], Any]) -> None:
        self.number = number
        self.params: dict[str, Any] = {}
        self._choose = choose

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number between two others.

        Args:
            name: The name of the value.
            low: The smallest one.
            high: The largest one.
            step: Distance of two values.
            log: Small values are as likely as large ones, in proportion.
        """
        return float(self._take(Domain(name, None, low, high, step, log)))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """A whole number between two others, both included.

        Args:
            name: The name of the value.
            low: The smallest one.
            high: The largest one.
            step: Distance of two values.
            log: Small values are as likely as large ones, in proportion.
        """
        return int(self._take(Domain(name, None, low, high, step, log, is_whole=True)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of several values.

        Args:
            name: The name of the value.
            choices: The values.
        """
        return self._take(Domain(name, tuple(choices)))

    def _take(self, domain: Domain) -> Any:
        if domain.name not in self.params:  # asked for twice, it stays the same
            self.params[domain.name] = self._choose(domain)
        return self.params[domain.name]


def fixed_trial(number: int, params: dict[str, Any], choose: Callable[[Domain], Any] | None = None) -> Trial:
    """A trial whose values are known already.

    Args:
        number: Which trial of the search it is.
        params: Its values by name.
        choose: The value of a further name; by default there is none.
    """
    trial = Trial(number, choose if choose is not None else refuse)
    trial.params.update(params)
    return trial


def refuse(domain: Domain) -> Any:
    """Refuse a name that the space did not choose a value for."""
    raise ValueError(
        f"model_init asks the trial for {domain.name!r}, which hp_space did not choose. With several ranks, "
        f"only hp_space can choose values. Choose it there, and read trial.params[{domain.name!r}]."
    )


def suggest(trial: Any, domain: Domain) -> Any:
    """Let a trial of Optuna or of ours choose the value of a domain.

    Args:
        trial: The trial.
        domain: The values that the name may have.
    """
    if domain.options is not None:
        return trial.suggest_categorical(domain.name, domain.options)
    if domain.is_whole:
        low, high, step = int(domain.low), int(domain.high), int(domain.step or 1)
        return trial.suggest_int(domain.name, low, high, step=step, log=domain.log)
    return trial.suggest_float(domain.name, domain.low, domain.high, step=domain.step, log=domain.log)
