"""What a misspelt name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """ " Did you mean 'x'?" for the nearest of `names`, or nothing where none is near."""
    names = list(names)
    longer = [name for name in names if name.startswith(str(word)) and len(str(word)) > 2]
    nearest = longer or get_close_matches(str(word), names, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""
