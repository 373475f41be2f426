"""What was measured of a run besides its logs: each kind of note has a keeper, and a section of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from footplate.report.answers import AnswerNotes
from footplate.report.classes import ClassNotes
from footplate.report.hardest import HardestKeeper
from footplate.report.model import ModelTree
from footplate.report.modules import ModuleTable
from footplate.resumed import ResumePoint


class Keeper(Protocol):
    """Collects the notes of one kind, in the order of the run."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Add a note; one with wrong values, as anybody may write into a journal, is ignored."""

    def cut(self, point: ResumePoint) -> None:
        """Drop what a resumed run makes again."""

    def to_plain(self) -> Any:
        """What the section shows, in the form of JSON; None if there is nothing."""


KEEPERS: dict[str, Callable[[], Keeper]] = {  # by the kind of their events
    "classes": ClassNotes,
    "answers": AnswerNotes,
    "modules": ModuleTable,
    "hardest": HardestKeeper,
    "model": ModelTree,
}
