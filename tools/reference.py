"""The reference pages of the site: every public name with its docstring, and every setting."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import footplate
from footplate import Seq2SeqTrainingArguments, TrainingArguments
from footplate.arguments.headings import heading_of, section_of
from footplate.homes import find_homes
from footplate.public import __all__ as public_names
from subjects import Subject, find_subject

# methods with an underscore that a subclass may override, by the API that scripts were written for
JOINTS = (
    *("_inner_training_loop", "_prepare_inputs", "_get_train_sampler", "_get_eval_sampler"),
    *("_set_signature_columns_if_needed", "_save", "_save_checkpoint", "_maybe_log_save_evaluate"),
)
FIRST = (
    "Trainer",
    "TrainingArguments",
    "TrainerCallback",
)  # people look for these, whatever the alphabet says


def home_of(name: str) -> str:
    """The module in which a public name is defined."""
    value = getattr(footplate, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return str(value.__module__)
    return find_homes().get(name, "footplate.public")


def is_described(name: str) -> bool:
    """Whether a name has a docstring of its own, as classes and functions of ours do."""
    value = getattr(footplate, name)
    is_ours = str(getattr(value, "__module__", "")).startswith("footplate")
    return is_ours and (inspect.isclass(value) or inspect.isfunction(value))


def group_names() -> dict[Subject, list[str]]:
    """The public names by subject, in alphabetical order behind what is looked for most."""
    groups: dict[Subject, list[str]] = {}
    for name in sorted(public_names, key=lambda name: (name not in FIRST, name)):
        groups.setdefault(find_subject(find_homes().get(name, "footplate.public")), []).append(name)
    return groups


def escape(text: Any) -> str:
    """Text that may stand in a cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def write_names(subject: Subject, names: list[str]) -> str:
    """One page: the names with docstrings, then a table of plain values."""
    lines = [f"# {subject.title}", "", "Each of these is imported from `footplate` itself.", ""]
    if "TrainingArguments" in names:
        lines += ["The fields of the arguments are on a page of their own: [Settings](settings.md).", ""]
    for name in filter(is_described, names):
        value = getattr(footplate, name)
        lines += [f"::: {home_of(name)}.{value.__qualname__}", *write_options(value), ""]
    values = [name for name in names if not is_described(name)]
    if values:
        lines += ["## Values and types", "", "| name | value |", "|---|---|"]
        lines += [f"| `{name}` | {show_value(getattr(footplate, name))} |" for name in values]
    return "\n".join(lines) + "\n"


def write_options(value: Any) -> list[str]:
    """What is shown of a class beyond what zensical.toml says."""
    if value is footplate.Trainer:
        return ["    options:", f'      filters: ["!^_", "^({"|".join(JOINTS)})$"]']
    if inspect.isclass(value) and issubclass(value, TrainingArguments):
        return ["    options:", "      merge_init_into_class: false"]  # settings.md has the fields
    return []


def show_value(value: Any) -> str:
    """A plain value in one cell: strings and lists as they are, tables by their keys."""
    if isinstance(value, dict):
        return "a table with " + ", ".join(f"`{escape(getattr(key, 'value', key))}`" for key in value)
    if isinstance(value, (str, list, int)):
        return f"`{escape(value)}`"
    return f"the type `{escape(getattr(value, '__name__', value))}`"


def show_default(field: dataclasses.Field[Any]) -> str:
    """The default of a setting as it would be written."""
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return f"`{escape(repr(getattr(default, 'value', default)))}`"


def group_settings() -> dict[str, list[dataclasses.Field[Any]]]:
    """The settings under the headings of `--help`."""
    groups: dict[str, list[dataclasses.Field[Any]]] = {}
    section = "The run"
    for field in dataclasses.fields(TrainingArguments):
        section = section_of(field) or section
        groups.setdefault(heading_of(field) or section, []).append(field)
    named = {field.name for field in dataclasses.fields(TrainingArguments)}
    more = [field for field in dataclasses.fields(Seq2SeqTrainingArguments) if field.name not in named]
    return {**groups, "Of Seq2SeqTrainingArguments alone": more}


def write_settings() -> str:
    """The page of every setting: name, default and the help that `--help` shows, under the same headings."""
    text = ["# Settings", ""]
    text += ["The fields of `TrainingArguments`: in Python `TrainingArguments(save_steps=500)`,"]
    text += ["on a command line `--save_steps 500`.", ""]
    for heading, fields in group_settings().items():
        text += [f"## {heading[0].upper()}{heading[1:]}", ""]
        text += ["| setting | default | what it does |", "|---|---|---|"]
        for field in fields:
            name = f'<a id="{field.name}"></a>`{field.name}`'
            text.append(f"| {name} | {show_default(field)} | {escape(field.metadata.get('help', ''))} |")
        text.append("")
    return "\n".join(text)


def write_reference() -> dict[str, str]:
    """Every page of the reference, by its path among the pages."""
    pages = {
        f"reference/{subject.slug}.md": write_names(subject, names)
        for subject, names in group_names().items()
    }
    return {"reference/settings.md": write_settings(), **pages}
