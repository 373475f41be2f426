"""Fill dataclasses from the command line, from files, or from both: the `HfArgumentParser` API."""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import SUPPRESS, Action, ArgumentDefaultsHelpFormatter, ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, get_type_hints

from footplate.arguments.headings import ADDED_HEADING, heading_of, section_of
from footplate.arguments.notices import warn_once
from footplate.arguments.old_names import OLD_NAMES, old_names_of
from footplate.arguments.suggest import did_you_mean
from footplate.arguments.unsupported import NO_EFFECT_HEADING, REFUSED_HEADING
from footplate.arguments.values import Kind, find_kind, read_file_value, read_text, read_texts

CONFIG_SUFFIXES = (".json", ".yaml", ".yml")
LAST_HEADINGS = {REFUSED_HEADING: 1, NO_EFFECT_HEADING: 2}  # come after those of all dataclasses
StrPath = str | PathLike[str]


def HfArg(
    *,
    aliases: str | list[str] | None = None,
    help: str | None = None,
    default: Any = dataclasses.MISSING,
    default_factory: Callable[[], Any] | Any = dataclasses.MISSING,
    metadata: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """A dataclass field with its help and its further option names.

    Args:
        aliases: Further option names, such as "-e".
        help: What `--help` says of it.
        default: Value if the option is not given; a field without one is required.
        default_factory: Makes the default, if it is mutable.
        metadata: More metadata of the field.
        **kwargs: Passed to `dataclasses.field`.
    """
    described = {"aliases": aliases, "help": help}
    metadata = {**(metadata or {}), **{key: value for key, value in described.items() if value is not None}}
    return dataclasses.field(default=default, default_factory=default_factory, metadata=metadata, **kwargs)


class FieldAction(Action):
    """One field on the command line: reads its text by the field's type; `--no_x` means false."""

    def __init__(self, *args: Any, kind: Kind, negations: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        self.negations = negations

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        if option_string in self.negations:
            if values is not self.const:
                raise ArgumentError(self, f"{option_string} takes no value, but {values!r} was given.")
            values = False
        try:
            setattr(namespace, self.dest, self.read(values))
        except (ValueError, TypeError) as error:
            raise ArgumentError(self, str(error)) from None

    def read(self, values: Any) -> Any:
        """The field's value, from the words after the option."""
        if isinstance(values, list):
            return read_texts(values, self.kind)
        return read_text(values, self.kind) if isinstance(values, str) else values


class GroupedHelpFormatter(ArgumentDefaultsHelpFormatter):
    """Help with one spelling per option, its type, and its default unless that is empty or false."""

    def __init__(self, prog: str, max_help_position: int = 40, **kwargs: Any) -> None:
        super().__init__(prog, max_help_position=max_help_position, **kwargs)

    def _format_action_invocation(self, action: Action) -> str:
        if not isinstance(action, FieldAction):
            return super()._format_action_invocation(action)
        first = action.option_strings[0]
        if action.kind.members == (bool,):
            return f"--[no_]{first[2:]}" if action.negations else first
        return f"{first} {action.metavar or action.kind.describe()}"

    def _get_help_string(self, action: Action) -> str | None:
        if action.default is None or action.default is False or action.default in ("", []) or action.required:
            return action.help
        return super()._get_help_string(action)


NOT_FOR_ARGPARSE = ("aliases", "choices")  # read by this parser itself


class HfArgumentParser(ArgumentParser):
    """Fills dataclasses by their type hints; more arguments can be added as with argparse.

    Args:
        dataclass_types: The dataclass or dataclasses to fill.
        **kwargs: Passed to `argparse.ArgumentParser`.
    """

    def __init__(self, dataclass_types: Any = None, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", GroupedHelpFormatter)
        kwargs.setdefault("usage", "%(prog)s [--config FILE.json|FILE.yaml] [--option value ...]")
        super().__init__(**kwargs)
        if dataclass_types is None:
            dataclass_types = ()
        elif not isinstance(dataclass_types, Iterable):
            dataclass_types = (dataclass_types,)
        self.dataclass_types: list[type[Any]] = list(dataclass_types)
        self.kinds: dict[str, Kind] = {}
        self.field_names = {field.name for cls in self.dataclass_types for field in fields_of(cls)}
        for cls in self.dataclass_types:
            self.add_dataclass(cls)
        self._action_groups.sort(key=lambda group: LAST_HEADINGS.get(str(group.title), 0))
        self.old_names = set[str]().union(*map(old_names_of, self.dataclass_types)) - self.field_names
        for name in sorted(self.old_names):
            self.add_old_name(name)

    def add_dataclass(self, cls: type[Any]) -> None:
        """Add an option for each field, under its heading."""
        hints = find_hints(cls)
        for heading, fields in self.headings_of(cls).items():
            group = self.add_argument_group(heading)
            for field in fields:
                kind = find_kind(hints[field.name], field.metadata.get("choices") or ())
                self.kinds[field.name] = kind
                options = self.plan_option(field, kind)
                names = [*spell(field.name), *aliases_of(field), *options.get("negations", ())]
                group.add_argument(*names, **options)

    def headings_of(self, cls: type[Any]) -> dict[str, list[dataclasses.Field[Any]]]:
        """The fields of `cls` by heading, what footplate adds first."""
        headings: dict[str, list[dataclasses.Field[Any]]] = {ADDED_HEADING: []}
        section = getattr(cls, "_argument_group_name", cls.__name__)
        for field in self.options_of(cls):
            section = section_of(field) or section
            headings.setdefault(heading_of(field) or section, []).append(field)
        return headings

    def options_of(self, cls: type[Any]) -> list[dataclasses.Field[Any]]:
        """The fields of `cls`, without those that footplate adds and another dataclass has too."""
        # a script's own option must not collide with a setting that the original does not have
        others = [other for other in self.dataclass_types if other is not cls]
        taken = {field.name for other in others for field in fields_of(other)}
        fields = fields_of(cls)
        return [field for field in fields if heading_of(field) != ADDED_HEADING or field.name not in taken]

    def plan_option(self, field: dataclasses.Field[Any], kind: Kind) -> dict[str, Any]:
        """The arguments of `add_argument` for a field."""
        metadata = {k: v for k, v in field.metadata.items() if k not in NOT_FOR_ARGPARSE}
        options: dict[str, Any] = {"action": FieldAction, "kind": kind, "dest": field.name, "help": ""}
        if kind.is_flag:
            options |= {"nargs": "?", "const": True}
            negation = f"no_{field.name}"
            if negation not in self.field_names and kind.members == (bool,):
                options["negations"] = spell(negation)
        elif kind.list_member is not None:
            options["nargs"] = "*"
        default = find_default(field)
        if default is not dataclasses.MISSING:
            options["default"] = default
        elif kind.is_flag and not kind.is_optional:
            options["default"] = False
        else:
            options["required"] = True
        return options | metadata

    def add_old_name(self, name: str) -> None:
        """Accept an old name on the command line, without showing it in the help."""
        kind = find_kind(OLD_NAMES[name].hint)
        self.kinds[name] = kind
        flag: dict[str, Any] = {"nargs": "?", "const": True} if kind.is_flag else {}
        self.add_argument(
            *spell(name), dest=name, action=FieldAction, kind=kind, default=SUPPRESS, help=SUPPRESS, **flag
        )

    def parse_args_into_dataclasses(
        self,
        args: Sequence[str] | None = None,
        return_remaining_strings: bool = False,
        look_for_args_file: bool = True,
        args_filename: str | None = None,
        args_file_flag: str | None = None,
    ) -> tuple[Any, ...]:
        """The dataclasses, filled from the command line and the files that it names; it overrides the files.

        Args:
            args: The words to read; None means those of this process.
            return_remaining_strings: Return unknown words instead of raising.
            look_for_args_file: Read `<script>.args` first, if there is one.
            args_filename: Read this file of words instead.
            args_file_flag: Option that names further files of words.
        """
        words = list(sys.argv[1:] if args is None else args)
        argument_files = find_argument_files(look_for_args_file, args_filename)
        if args_file_flag:
            named, words = take_option(words, args_file_flag)
            argument_files += [Path(name) for name in named]
        for path in reversed(argument_files):
            words = path.read_text(encoding="utf-8").split() + words if path.exists() else words

        config_files, words = self.take_config_files(words)
        settings: dict[str, Any] = {}
        for path in config_files:
            settings |= self.check_keys(read_config(path), f"{path} holds")
        with self.given(settings):
            namespace, remaining = self.parse_known_args(words, Namespace(**settings))
        if remaining and not return_remaining_strings:
            raise ValueError(f"Unknown on the command line: {'; '.join(map(self.explain, remaining))}")
        filled = self.fill(vars(namespace))
        leftover = {key: value for key, value in vars(namespace).items() if key not in self.kinds}
        outputs = (*filled, Namespace(**leftover)) if leftover else filled
        return (*outputs, remaining) if return_remaining_strings else outputs

    def parse_dict(self, args: dict[str, Any], allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """The dataclasses, filled from a dictionary.

        Args:
            args: Values by field name.
            allow_extra_keys: Leave out unknown keys instead of raising.
        """
        return self.fill(args if allow_extra_keys else self.check_keys(args, "The dictionary holds"))

    def parse_json_file(self, json_file: StrPath, allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """The dataclasses, filled from a JSON file.

        Args:
            json_file: The file.
            allow_extra_keys: Leave out unknown keys instead of raising.
        """
        return self.parse_dict(read_config(Path(json_file), ".json"), allow_extra_keys)

    def parse_yaml_file(self, yaml_file: StrPath, allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """The dataclasses, filled from a YAML file.

        Args:
            yaml_file: The file.
            allow_extra_keys: Leave out unknown keys instead of raising.
        """
        return self.parse_dict(read_config(Path(yaml_file), ".yaml"), allow_extra_keys)

    def fill(self, values: dict[str, Any]) -> tuple[Any, ...]:
        """Each dataclass from its values; a value equal to the default is not passed to the class."""
        filled = []
        for cls in self.dataclass_types:
            names = {field.name: find_default(field) for field in self.options_of(cls)}
            names |= dict.fromkeys(old_names_of(cls) - self.field_names, dataclasses.MISSING)
            own = {name: self.read_value(name, values[name]) for name in names if name in values}
            filled.append(
                cls(**{name: value for name, value in own.items() if not is_same(value, names[name])})
            )
        return tuple(filled)

    def read_value(self, name: str, value: Any) -> Any:
        """The value of a field from a file or a dictionary; an error names the field that it does not fit."""
        try:
            return read_file_value(value, self.kinds[name])
        except ValueError as error:
            raise ValueError(f"{name}={value!r} is not possible: {error}.") from None

    def check_keys(self, values: dict[str, Any], source: str) -> dict[str, Any]:
        """`values`, if every key is known."""
        known = [*self.field_names, *self.old_names, *(action.dest for action in self._actions)]
        unknown = [f"{key!r}.{did_you_mean(key, known)}" for key in values if key not in known]
        if unknown:
            raise ValueError(f"{source} keys that no setting has: {' '.join(unknown)}")
        return values

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """The options that an abbreviated word may mean, as argparse asks; a notice if there is one."""
        matches: list[Any] = super()._get_option_tuples(option_string)
        if not option_string.startswith("--") or not matches:
            return matches
        # `--learning_rate` and `--learning-rate` are one option
        first = {id(match[0]): match for match in reversed(matches)}
        matches = [match for match in matches if first[id(match[0])] is match]
        if len(matches) > 1:  # what is unique in the original stays unique
            known = [match for match in matches if not self.is_addition(match[0])]
            matches = known or matches
        if len(matches) == 1:
            given, meant = option_string.partition("=")[0], matches[0][1]
            warn_once(f"{given} was read as {meant}. Write it in full: a shorter word may soon mean another.")
        return matches

    def is_addition(self, action: Action) -> bool:
        """Whether the original does not have this option: an old name, or one that footplate adds."""
        own = next((group for group in self._action_groups if group.title == ADDED_HEADING), None)
        return action.dest in self.old_names or (own is not None and action in own._group_actions)

    def explain(self, word: str) -> str:
        """An unknown word, and the option that was probably meant."""
        name = word.split("=")[0]
        return f"{word}.{did_you_mean(name, self._option_string_actions)}" if name.startswith("-") else word

    def take_config_files(self, words: list[str]) -> tuple[list[Path], list[str]]:
        """The config files among `words`, and the other words."""
        named: list[str] = []
        if "--config" not in self._option_string_actions:  # unless the script has an option of that name
            named, words = take_option(words, "--config")
        is_leading = bool(words) and words[0].endswith(CONFIG_SUFFIXES) and not words[0].startswith("-")
        if is_leading and not self._get_positional_actions():
            named, words = [words[0], *named], words[1:]
        return [Path(name) for name in named], words

    @contextmanager
    def given(self, settings: dict[str, Any]) -> Iterator[None]:
        """Inside this context, options that a file has given are not required."""
        relaxed = [action for action in self._actions if action.required and action.dest in settings]
        for action in relaxed:
            action.required = False
        try:
            yield
        finally:
            for action in relaxed:
                action.required = True


def fields_of(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    """The fields that the constructor takes."""
    return [field for field in dataclasses.fields(cls) if field.init]


def find_hints(cls: type[Any]) -> dict[str, Any]:
    """The types of the fields, also if they are written as text."""
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise RuntimeError(
            f"The type hints of {cls.__name__} cannot be resolved: {error}. Define the class and all that it "
            "names at the top level of a module, or leave out `from __future__ import annotations` there."
        ) from None


def find_default(field: dataclasses.Field[Any]) -> Any:
    """A field's default, made by its factory if it has one; MISSING if there is none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def is_same(value: Any, default: Any) -> bool:
    """Whether a value equals the default in type and value."""
    return type(value) is type(default) and bool(value == default)


def spell(name: str) -> list[str]:
    """The option strings of a name: `--a_b` and `--a-b`."""
    return list(dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"]))


def aliases_of(field: dataclasses.Field[Any]) -> list[str]:
    """The further option strings of a field."""
    aliases = field.metadata.get("aliases") or []
    return [aliases] if isinstance(aliases, str) else list(aliases)


def find_argument_files(look: bool, name: str | None) -> list[Path]:
    """The files of words that are read without being named on the command line."""
    if name:
        return [Path(name)]
    return [Path(sys.argv[0]).with_suffix(".args")] if look and sys.argv and sys.argv[0] else []


def take_option(words: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """The values of `option` among `words`, and the other words."""
    values, others = [], []
    rest = iter(words)
    for word in rest:
        if word == option:
            value = next(rest, None)
            if value is None:
                raise ValueError(
                    f"{option} is the last word of the command line. Put the path of a file after it."
                )
            values.append(value)
        elif word.startswith(f"{option}="):
            values.append(word.split("=", 1)[1])
        else:
            others.append(word)
    return values, others


def read_config(path: Path, form: str | None = None) -> dict[str, Any]:
    """The settings in a JSON or YAML file."""
    form = form or path.suffix
    if form not in CONFIG_SUFFIXES:
        raise ValueError(f"{path} is not a config file. Its name must end in one of {list(CONFIG_SUFFIXES)}.")
    text = path.read_text(encoding="utf-8")
    values = json.loads(text) if form == ".json" else read_yaml(text)
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} holds a {type(values).__name__}, not settings by name. Write one `name: value` per line."
        )
    return values


def read_yaml(text: str) -> Any:
    """The value of YAML text; empty text gives no settings."""
    try:
        import yaml
    except ImportError:
        raise ImportError(
            "Reading YAML needs PyYAML: pip install footplate[yaml], or use a JSON file."
        ) from None
    values = yaml.safe_load(text)
    return {} if values is None else values
