"""Values for trackers: chosen, made plain, flattened, and arranged as a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any


def final_metrics(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The last value of each key that was logged."""
    return {key: value for entry in history for key, value in entry.items() if key != "step"}


def declared_by(method: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values that `method` has parameters for; an old `setup(self, args, state, model)` has none."""
    parameters = inspect.signature(method).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in values.items() if takes_all or name in names}


def to_plain(value: Any) -> Any:
    """An array or tensor of one number as that number; any other value as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def numbers(values: dict[str, Any]) -> dict[str, float]:
    """The values that can be points of a curve."""
    return {key: value for key, value in values.items() if isinstance(value, (int, float))}


def flatten(items: Iterable[tuple[str, Any]], separator: str) -> Iterator[tuple[str, Any]]:
    """The items of nested dictionaries, with their names joined by `separator`."""
    for key, value in items:
        if isinstance(value, Mapping) and value:
            inner = ((f"{key}{separator}{name}", part) for name, part in value.items())
            yield from flatten(inner, separator)
        else:
            yield key, value


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every key of the rows, in the order of first use."""
    return list(dict.fromkeys(key for row in rows for key in row))


def as_table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """The column names and the cells of rows; numbers stay numbers, all other cells become text."""
    columns = columns_of(rows)
    return columns, [[_to_cell(row.get(column, "")) for column in columns] for row in rows]


def _to_cell(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) else str(value)
