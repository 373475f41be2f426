"""The help text of a setting, and the heading that it stands under."""

from __future__ import annotations

from dataclasses import Field
from typing import Any

ADDED_HEADING = "Added by footplate"  # comes before the other headings of its dataclass


class Help(str):
    """A help text that knows its heading; metadata hold only what argparse takes, so it is kept here.

    Args:
        text: The help text.
        section: The heading for this field and those after it.
        heading: The heading for this field alone.
    """

    section: str | None
    heading: str | None

    def __new__(cls, text: str = "", section: str | None = None, heading: str | None = None) -> Help:
        """The text with its headings."""
        help = super().__new__(cls, text)
        help.section, help.heading = section, heading
        return help


def section_of(field: Field[Any]) -> str | None:
    """The heading that begins with this field."""
    return getattr(field.metadata.get("help"), "section", None)


def heading_of(field: Field[Any]) -> str | None:
    """The heading for this field alone."""
    return getattr(field.metadata.get("help"), "heading", None)
