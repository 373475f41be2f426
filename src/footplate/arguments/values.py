"""Convert text to the type of a field: `"1e-4"` for a float, `"false"` for a bool, JSON for a dictionary."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from footplate.arguments.suggest import did_you_mean
from footplate.words import string_to_bool


@dataclass(frozen=True)
class Kind:
    """The values that a field may hold."""

    members: tuple[Any, ...]  # their types, without None
    is_optional: bool
    choices: tuple[Any, ...] = ()  # the only values, if there is a list of them

    @property
    def is_flag(self) -> bool:
        """Whether the option without a value means true."""
        return bool in self.members

    @property
    def list_member(self) -> Any:
        """The `list[...]` among the types, if there is one."""
        return next(
            (member for member in self.members if (get_origin(member) or member) in (list, tuple)), None
        )

    @property
    def element(self) -> Kind:
        """The kind of an item of the list."""
        item, *_ = get_args(self.list_member) or (str,)
        return find_kind(item, self.choices)

    @property
    def takes_text(self) -> bool:
        """Whether any text is a value as it is."""
        return any(is_text(member) for member in self.members)

    def describe(self) -> str:
        """A word for this kind, for the help text."""
        if self.choices and sum(len(str(choice)) + 1 for choice in self.choices) < 60:
            return "{" + ",".join(str(choice) for choice in self.choices) + "}"
        if self.list_member is not None:
            return f"{self.element.describe()} ..."
        names = {int: "INT", float: "FLOAT", str: "TEXT", bool: "BOOL"}
        if any((get_origin(member) or member) is dict for member in self.members):
            return "JSON"
        return "NAME" if self.choices else names.get(self.members[0] if self.members else str, "VALUE")


def find_kind(hint: Any, choices: Iterable[Any] = ()) -> Kind:
    """The kind of a type hint; unions are split, and `Literal` and `Enum` give their choices."""
    hints = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    members: list[Any] = []
    choices_found: list[Any] = list(choices)
    only_choices = bool(choices_found)
    for member in hints:
        if get_origin(member) is Literal:
            choices_found += get_args(member)
            only_choices = only_choices or len(hints) == 1 or set(hints) <= {member, type(None)}
        elif get_origin(member) is None and isinstance(member, type) and issubclass(member, Enum):
            choices_found += [item.value for item in member]
            only_choices = True  # `MyEnum | str`: the name of a member, written as text
        elif member is not type(None):
            members.append(member)
    is_optional = type(None) in hints or None in choices_found
    if not only_choices:  # `str | Literal[False]`: the literal is one value among others
        members = [Literal[tuple(choices_found)], *members] if choices_found else members
        choices_found = []
    return Kind(tuple(members), is_optional, tuple(choice for choice in choices_found if choice is not None))


def read_text(text: str, kind: Kind) -> Any:
    """`text` as one value of `kind`; ValueError if it is not one."""
    can_be_text = text in map(str, kind.choices) if kind.choices else kind.takes_text
    if kind.is_optional and not can_be_text and text.lower() in ("none", "null"):
        return None
    if kind.choices:
        return read_choice(text, kind.choices)
    problems = []
    for member in sorted(kind.members, key=is_text):  # str accepts everything, so it must come last
        try:
            return read_as(text, member)
        except (ValueError, TypeError) as error:
            problems.append(str(error))
    raise ValueError(" ".join(problems))


def is_text(member: Any) -> bool:
    """Whether any text is a value of this type as it is."""
    return member is str or member is Any


def read_choice(text: str, choices: Sequence[Any]) -> Any:
    """The choice whose text is `text`."""
    written = {str(choice): choice for choice in choices}
    lowered = {str(choice).lower(): choice for choice in choices if isinstance(choice, bool)}
    if text in written:
        return written[text]
    if text.lower() in lowered:
        return lowered[text.lower()]
    raise ValueError(f"{text!r} is not known.{did_you_mean(text, written)} Choose one of {list(written)}.")


def read_as(text: str, member: Any) -> Any:
    """`text` as a value of one type."""
    origin = get_origin(member) or member
    if origin is Literal:
        return read_choice(text, get_args(member))
    if is_text(member):
        return text
    if member is bool:
        return string_to_bool(text)
    if origin in (dict, list, tuple):
        return read_json(text, origin)
    if is_dataclass(member):
        raise TypeError(f"{text!r} is not of type {member}.")
    return member(text)


def read_json(text: str, container: type) -> Any:
    """The JSON object or list in `text`."""
    name = "object" if container is dict else "list"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{text!r} is not a JSON {name}: {error}.") from None
    if not isinstance(value, dict if container is dict else list):
        raise ValueError(f"{text!r} is JSON, but not a JSON {name}.")
    return unquote(value)


def unquote(value: Any) -> Any:
    """`value` with texts such as "true", "3" and "0.1" in a dictionary turned into bools and numbers."""
    if isinstance(value, dict):
        return {key: unquote(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value.isdigit():
        return int(value)
    return float(value) if value.replace(".", "", 1).isdigit() else value


def read_texts(texts: Sequence[str], kind: Kind) -> Any:
    """Several words as a list; a single word may also be text or a JSON list, if the type allows it."""
    element = kind.element
    if len(texts) == 1:
        if element.takes_text and str in kind.members:
            return texts[0]
        if not element.takes_text and texts[0].lstrip().startswith("["):
            return read_json(texts[0], list)
        if kind.is_optional and not element.takes_text and texts[0].lower() in ("none", "null"):
            return None
    try:
        return [read_text(text, element) for text in texts]
    except ValueError:
        if len(texts) == 1 and str in kind.members:
            return texts[0]
        raise


def read_number(text: str, whole: bool) -> int | float:
    """The number that `text` writes; ValueError if it is not one, or not a whole one."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise ValueError("is text that is not a number") from None
    if whole and not number.is_integer():
        raise ValueError("is not a whole number")
    return int(number) if whole else number


def read_file_value(value: Any, kind: Kind) -> Any:
    """A value from a file; text becomes the field's type (YAML reads `1e-4` as text), the rest stays."""
    if not isinstance(value, str) or kind.takes_text or kind.choices or kind.list_member is not None:
        return value
    return read_text(value, kind) if set(kind.members) <= {int, float, bool} else value
