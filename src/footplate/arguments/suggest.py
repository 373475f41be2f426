"""Suggest the word that a user probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """The question " Did you mean 'x'?" for the nearest of `names`; empty if none is near."""
    names = list(names)
    longer = [name for name in names if name.startswith(str(word)) and len(str(word)) > 2]
    nearest = longer or get_close_matches(str(word), names, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


def check_word(setting: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse a value that is not among `allowed`, and suggest the nearest that is."""
    allowed = list(allowed)
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        raise ValueError(f"{setting}={value!r} is not known.{hint} Set {setting} to one of {allowed}.")
