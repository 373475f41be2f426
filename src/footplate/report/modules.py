"""Gradient norm, update ratio and weight norm of each module over the steps of a run, for a map."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from footplate.integrations.journal import JOURNAL_NAME, last_run, read_events
from footplate.report.plain import as_number
from footplate.report.series import Spaced
from footplate.resumed import ResumePoint
from footplate.words import keep_end

MAX_COLUMNS, MAX_ROWS, MAX_NAME = 200, 500, 200
MAX_NAMED = 20  # of the values that are not finite
LARGEST_STEP = 2**53  # a browser counts no further
KIND = "modules"  # of the events that hold them
VALUES = ("grad_norm", "update_ratio", "weight_norm")
NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class Column(NamedTuple):
    """What was measured of one update."""

    step: int
    names: Sequence[str]
    values: dict[str, list[Any]]


class ModuleTable:
    """Some of the measured updates of a run, evenly spaced, and which values of all were not finite.

    Args:
        capacity: How many updates are kept at most.
    """

    def __init__(self, capacity: int = MAX_COLUMNS) -> None:
        self._columns: Spaced[Column] = Spaced(capacity, lambda column: column.step)
        self._names: Sequence[str] = ()  # of the columns to come, until there are others
        self._not_finite: list[tuple[int, str, str]] = []  # the first of them: step, module, value
        self._counts: list[tuple[int, int]] = []  # of them, by step, where there are any

    def add(self, event: Mapping[str, Any]) -> None:
        """Add what was measured of one update; names come with the first one, and with others."""
        names, step = event.get("names"), event.get("step", -1)
        if names is not None:
            self._names = read_names(names)
        values = {kind: event.get(kind) for kind in VALUES}
        if type(step) is not int or not 0 <= step <= LARGEST_STEP:
            return
        if not self._names or not all(map(self._fits, values.values())):
            return
        last = self._columns.last
        if last is not None and last.step >= step:
            self.cut(ResumePoint(step - 1))
        plain = {kind: [_plain(value) for value in given or ()] for kind, given in values.items()}
        self._columns.add(Column(step, self._names, plain))
        self._note_not_finite(step, plain)

    def _note_not_finite(self, step: int, values: dict[str, list[Any]]) -> None:
        found = [
            (step, name, kind)
            for kind, given in values.items()
            for name, value in zip(self._names, given, strict=True)
            if value in NOT_FINITE
        ]
        if found:
            self._counts.append((step, len(found)))
            self._not_finite += found[: MAX_NAMED - len(self._not_finite)]

    def _fits(self, given: Any) -> bool:
        """Whether there is one value for each name."""
        return isinstance(given, list) and len(given) == len(self._names)

    def cut(self, point: ResumePoint) -> None:
        """Drop what a resumed run makes again."""
        self._columns.cut(point)
        self._not_finite = point.keep(self._not_finite, lambda entry: entry[0])
        self._counts = point.keep(self._counts, lambda entry: entry[0])

    def to_plain(self) -> dict[str, Any] | None:
        """Steps, modules, and of each kind of value one list per step; None if nothing was measured."""
        columns = self._columns.items
        if not columns:
            return None
        # the newest first: it has the order of the model, and others may have been trained before
        names = list(dict.fromkeys(name for column in reversed(columns) for name in column.names))[:MAX_ROWS]
        return {
            "names": names,
            "steps": [column.step for column in columns],
            **{kind: [_arrange(column, kind, names) for column in columns] for kind in VALUES},
            "not_finite": [list(entry) for entry in self._not_finite],
            "num_not_finite": sum(count for _, count in self._counts),
        }


def read_modules(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What `module_stats_steps` has measured in the last run of a folder, of every measured update.

    Args:
        folder: The `output_dir` of the run.

    Returns:
        `names` of the modules, `steps`, and as `grad_norm`, `weight_norm` and `update_ratio` a list for each
        step, with a number for each module; None where there is none.
    """
    path = Path(folder, JOURNAL_NAME)
    table = ModuleTable(sys.maxsize)
    for event in last_run(event for event in read_events(path) if event["kind"] in ("begin", KIND)):
        if event["kind"] == KIND:
            table.add(event)
    plain = table.to_plain()
    if plain is None:
        raise ValueError(
            f"{path} holds no measurements of modules. Train with module_stats_steps=50, for example, and "
            "with report=True."
        )
    read = {kind: [[_read(value) for value in column] for column in plain[kind]] for kind in VALUES}
    return {"names": plain["names"], "steps": plain["steps"], **read}


def _read(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def read_names(given: Any) -> Sequence[str]:
    """Names of modules, each of them once; none if they are not names."""
    if not isinstance(given, list) or len(given) > MAX_ROWS:
        return ()
    names = [keep_end(name, MAX_NAME) for name in given if isinstance(name, str)]
    return names if len(set(names)) == len(given) else ()


def _arrange(column: Column, kind: str, names: Sequence[str]) -> list[Any]:
    """The values of a step in the order of `names`."""
    values = column.values[kind]
    if column.names == names:
        return values
    by_name = dict(zip(column.names, values, strict=True))
    return [by_name.get(name) for name in names]


def _plain(value: Any) -> float | str | None:
    """A number of 0 or more, a word for what is not finite, or None."""
    if isinstance(value, str):
        return value if value in NOT_FINITE else None
    number = as_number(value)
    return number if number is not None and number >= 0 else None
