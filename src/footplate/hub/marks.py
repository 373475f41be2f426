"""The parts of a card that belong to a person: what is between their marks survives every new card."""

from __future__ import annotations

import hashlib
import re

TO_FILL = "More information needed"
# the name comes first, so that a person may write more into the mark itself
_BLOCK = re.compile(
    r"<!-- yours: (?P<name>[\w-]+)[^\n]*-->\n(?P<text>.*?)\n?<!-- end of yours: (?P=name) -->", re.DOTALL
)
_ANY_MARK = re.compile(r"<!-- (end of )?yours: ")
_SIGNATURE = re.compile(r"\n?<!-- footplate: card (\w+) -->\n?")


def block(name: str, text: str = TO_FILL) -> str:
    """A part for a person to fill in, with marks around it."""
    return (
        f"<!-- yours: {name} (what you write between these two marks is kept) -->\n"
        f"{text}\n"
        f"<!-- end of yours: {name} -->"
    )


def find_blocks(card: str) -> dict[str, str]:
    """The text between each pair of marks, by name."""
    return {found["name"]: found["text"] for found in _BLOCK.finditer(card)}


def keep_blocks(body: str, kept: dict[str, str]) -> str:
    """A new body with the texts of an old one; those that it has no place for come at its end."""
    places = find_blocks(body)

    def fill(found: re.Match[str]) -> str:
        return block(found["name"], kept.get(found["name"], found["text"]))

    filled = _BLOCK.sub(fill, body).rstrip("\n") + "\n"
    others = [block(name, text) for name, text in kept.items() if name not in places]
    return "\n".join([filled, *(f"{other}\n" for other in others)])


def sign(body: str) -> str:
    """The body with a last line by which a later change outside of the marks is noticed."""
    return f"{body.rstrip()}\n\n<!-- footplate: card {_digest(body)} -->\n"


def is_signed(body: str) -> bool:
    """Whether a card was made by footplate, whatever was changed in it."""
    return _SIGNATURE.search(body) is not None


def is_ours(body: str) -> bool:
    """Whether nothing was changed since `sign`, apart from what is between marks."""
    found = _SIGNATURE.search(body)
    return found is not None and found[1] == _digest(body)


def _digest(body: str) -> str:
    body = _BLOCK.sub(lambda found: f"<{found['name']}>", _SIGNATURE.sub("", body))
    broken = "broken" if _ANY_MARK.search(body) else ""  # a mark without its partner: nothing is kept of it
    return hashlib.sha256((body.strip() + broken).encode()).hexdigest()[:16]
