"""A help text is text, and knows its heading."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from footplate.arguments.fields import opt
from footplate.arguments.headings import Help, heading_of, section_of


@dataclasses.dataclass
class Settings:
    first: int = opt(1, "First.", section="Numbers")
    second: int = opt(2, "Second.", heading="Apart", metavar="N")
    third: int = dataclasses.field(default=3, metadata={"help": "Of a user."})
    fourth: int = 4


FIELDS = {field.name: field for field in dataclasses.fields(Settings)}


def test_metadata_hold_what_argparse_takes_and_nothing_else():
    assert dict(FIELDS["first"].metadata) == {"help": "First."}
    assert dict(FIELDS["second"].metadata) == {"help": "Second.", "metavar": "N"}


def test_a_field_knows_its_headings_and_a_users_field_has_none():
    assert [section_of(field) for field in FIELDS.values()] == ["Numbers", None, None, None]
    assert [heading_of(field) for field in FIELDS.values()] == [None, "Apart", None, None]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda text: pickle.loads(pickle.dumps(text))])
def test_copies_keep_text_and_headings(duplicate):
    twin = duplicate(Help("Text.", "Section", "Heading"))
    assert (twin, twin.section, twin.heading) == ("Text.", "Section", "Heading")
