"""Where trials come from: by chance or from a grid, with no further package."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple, Protocol

from footplate.search.outcomes import Outcome
from footplate.search.ranges import Space
from footplate.search.record import TrialRecord
from footplate.search.trial import Domain, Trial


class Asked(NamedTuple):
    """A trial, and the settings that the space made of its values."""

    trial: Any
    values: dict[str, Any]


class Study(Protocol):
    """What a search asks for trials, and tells how they ended."""

    def ask(self) -> Asked | None:
        """The next trial; None if there is none left."""

    def report(self, number: int, values: list[float], step: int) -> bool:
        """Take the objectives of an evaluation of a trial; True if it should end here."""

    def tell(self, outcome: Outcome) -> None:
        """Take how a trial ended."""


class RandomStudy:
    """Values by chance; those of a trial depend on the seed and its number only, so a kill changes nothing.

    Args:
        space: What a trial chooses.
        seed: Where the numbers come from.
        record: The trials that have ended.
    """

    def __init__(self, space: Space, seed: int, record: TrialRecord) -> None:
        self.space, self.seed, self.record = space, seed, record
        self._next = 0

    def ask(self) -> Asked | None:
        """The next trial that has not ended yet."""
        while self.record.find(self._next) is not None:
            self._next += 1
        number = self._next
        self._next += 1
        trial = Trial(number, lambda domain: domain.draw(Random(f"{self.seed}/{number}/{domain.name}")))
        return Asked(trial, check_values(self.space(trial)))

    def report(self, number: int, values: list[float], step: int) -> bool:
        """Every trial goes on to its end."""
        return False

    def tell(self, outcome: Outcome) -> None:
        """Nothing is learned from a trial."""


class GridStudy(RandomStudy):
    """Every combination of the values, in order; a value may depend on those that were chosen before it.

    Args:
        space: What a trial chooses, from single values only.
        record: The trials that have ended.
    """

    def __init__(self, space: Space, record: TrialRecord) -> None:
        super().__init__(space, 0, record)
        self._places: list[int] | None = []  # of the values of the next trial, among those of their domains

    def ask(self) -> Asked | None:
        """The next combination that has not ended yet; None after the last one."""
        asked = self._choose_next()
        while asked is not None and self.record.find(asked.trial.number) is not None:
            asked = self._choose_next()
        return asked

    def _choose_next(self) -> Asked | None:
        """Make the trial of the current places, and move on: the last value that has another one changes."""
        if self._places is None:
            return None
        places = self._places
        sizes: list[int] = []

        def choose(domain: Domain) -> Any:
            options = domain.list_values()
            index = len(sizes)
            sizes.append(len(options))
            if index == len(places):
                places.append(0)
            return options[places[index]]

        trial = Trial(self._next, choose)
        self._next += 1
        asked = Asked(trial, check_values(self.space(trial)))
        following = places[: len(sizes)]
        while following and following[-1] + 1 == sizes[len(following) - 1]:
            following.pop()
        self._places = [*following[:-1], following[-1] + 1] if following else None
        return asked


def check_values(values: Any) -> dict[str, Any]:
    """What a space returned; refuses anything but values by name."""
    if not isinstance(values, Mapping):
        raise ValueError(f"hp_space returned {values!r}. Let it return a dictionary of values by name.")
    return dict(values)
