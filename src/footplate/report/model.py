"""The modules of a run's model, as its journal tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from footplate.report.plain import as_number, shorten
from footplate.resumed import ResumePoint

MAX_LINES = 60
MAX_DEPTH = 40
_TEXTS = ("name", "kind", "dtype", "tied")
_NUMBERS = ("depth", "count", "parameters", "trainable", "num_bytes", "num_below")
_ORDER = (
    *("depth", "name", "kind", "count", "parameters", "trainable", "num_bytes", "dtype", "tied", "num_below"),
)
_TOTALS = (
    *("num_modules", "parameters", "trainable", "weight_bytes", "buffer_bytes", "gradient_bytes"),
    *("num_tied", "optimizer_bytes"),
)


class ModelTree:
    """The model of the newest leg of a run: a resumed run tells it again."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] | None = None

    def add(self, event: Mapping[str, Any]) -> None:
        """Take over what one event says; lines of another form are left out."""
        given = event.get("lines")
        lines = [_read_line(line) for line in given[:MAX_LINES]] if isinstance(given, list) else []
        if not lines or None in lines:
            return
        tied = event.get("tied")
        self._shown = {
            "model": _text(event.get("model")),
            "optimizer": _text(event.get("optimizer")),
            "lines": lines,
            "tied": [_pair(pair) for pair in tied[:3]] if isinstance(tied, list) else [],
            **{name: _count(event.get(name)) for name in _TOTALS},
        }

    def cut(self, point: ResumePoint) -> None:
        """A resumed run tells its model anew; until then, that of the earlier leg stays."""

    def to_plain(self) -> dict[str, Any] | None:
        """The tree and the totals; None if the journal has none."""
        return self._shown


def _read_line(line: Any) -> dict[str, Any] | None:
    if not isinstance(line, list) or len(line) != len(_ORDER):
        return None
    values = dict(zip(_ORDER, line, strict=True))
    read: dict[str, Any] = {name: _text(values[name]) for name in _TEXTS}
    read |= {name: _count(values[name]) for name in _NUMBERS}
    read["depth"] = min(read["depth"], MAX_DEPTH)
    return read


def _pair(pair: Any) -> list[str]:
    return [_text(name) for name in pair[:2]] if isinstance(pair, list) else []


def _text(value: Any) -> str:
    return shorten(value, 120) if isinstance(value, str) else ""


def _count(value: Any) -> float:
    """A number that is not negative; 0 for anything else."""
    return max(as_number(value) or 0, 0)
