"""The command line of a task: today's flags, those of earlier scripts, and files of settings."""

from __future__ import annotations

import dataclasses
import logging
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from footplate import HfArgumentParser, TrainingArguments
from footplate.arguments.parser import read_config
from footplate.report.files import save_text
from footplate.tasks.common.flags import OLD_FLAGS
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Recipe

logger = logging.getLogger(__name__)

# the ones that `--help` begins with, for every task
FIRST_FLAGS = (
    "model_name_or_path",
    "train_file",
    "validation_file",
    "output_dir",
    "do_train",
    "do_eval",
    "num_train_epochs",
    "learning_rate",
    "per_device_train_batch_size",
    "eval_strategy",
)
RUN_FILE = "run.yaml"


def parse_flags(kind: type[Recipe], words: Sequence[str]) -> Recipe:
    """The recipe with its flags.

    Args:
        kind: The task.
        words: The command line after the name of the task: a file of settings first, if there is one.
    """
    parser = build_parser(kind)
    parser.add_argument("--task", help=SUPPRESS)  # a line of run.yaml
    words = rename_old_flags(list(words), {**OLD_FLAGS, **kind.old_flags}, parser.field_names)
    try:
        data, start, args, *_ = parser.parse_args_into_dataclasses(words, look_for_args_file=False)
    except ValueError as error:
        raise TaskError(str(error)) from None
    return kind(data, start, args)


def read_task_name(words: Sequence[str]) -> tuple[str, list[str]]:
    """The name of the task and the other words; a file of settings may name the task.

    Args:
        words: `TASK [SETTINGS] --flags` or `SETTINGS --flags`.
    """
    first, rest = words[0], list(words[1:])
    if not first.endswith((".yaml", ".yml", ".json")):
        return first, rest
    name = read_settings(Path(first)).get("task")
    if name is None:
        raise TaskError(
            f"{first} names no task. Write footplate run TASK {first}, or a line `task: ...` in it."
        )
    return str(name), [first, *rest]


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a file; an error if there is no such file."""
    if not path.is_file():
        raise TaskError(f"There is no file {path}.")
    return read_config(path)


def build_parser(kind: type[Recipe]) -> HfArgumentParser:
    """The parser of a task's flags."""
    return HfArgumentParser(
        (kind.data_flags, kind.model_flags, kind.arguments),
        prog="footplate run",
        usage="footplate run TASK [SETTINGS.yaml] [--flag value ...]",
        description=kind.summary,
        add_help=False,
    )


def rename_old_flags(words: list[str], old: dict[str, str | None], known: set[str]) -> list[str]:
    """The words with today's names; a flag that means nothing any more is left out, with its value."""
    renamed: list[str] = []
    skips = False
    for word in words:
        if skips and not word.startswith("--"):
            continue
        skips = False
        flag, has_value, value = word.partition("=")
        name = flag[2:].replace("-", "_")
        if not flag.startswith("--") or name in known or name not in old:
            renamed.append(word)
            continue
        new = old[name]
        if new is None:
            logger.warning("%s has no meaning any more and is left out.", flag)
            skips = not has_value
        else:
            logger.warning("%s is called --%s now.", flag, new)
            renamed.append(f"--{new}{has_value}{value}")
    return renamed


def describe_flags(kind: type[Recipe], name: str) -> str:
    """The short help of a task: the flags that matter most, an example, and where the others are."""
    parser = build_parser(kind)
    fields = {
        field.name: field
        for cls in (kind.data_flags, kind.model_flags, kind.arguments)
        for field in dataclasses.fields(cls)
    }
    first = [flag for flag in (*FIRST_FLAGS[:3], *kind.first_flags, *FIRST_FLAGS[3:]) if flag in fields]
    width = max(len(flag) for flag in first) + 4
    lines = [f"footplate run {name} [SETTINGS.yaml] [--flag value ...]", "", kind.summary, ""]
    for flag in dict.fromkeys(first):
        default = parser.get_default(flag)
        note = (
            ""
            if default in (None, False, "", [], "no")
            else f" (default: {getattr(default, 'value', default)})"
        )
        lines.append(f"  --{flag:<{width}}{fields[flag].metadata.get('help', '')}{note}")
    lines += ["", f"For instance:\n  footplate run {name} {kind.example}" if kind.example else ""]
    lines.append(f"All flags: footplate run {name} --help-all")
    return "\n".join(lines)


def save_settings(recipe: Recipe, name: str, folder: Path) -> None:
    """Write all flags that differ from their defaults: `footplate run run.yaml` repeats the run."""
    import yaml

    settings: dict[str, Any] = {"task": name}
    for flags in (recipe.start, recipe.data):
        for field in dataclasses.fields(flags):
            value = getattr(flags, field.name)
            if value != field.default and field.name != "token":
                settings[field.name] = value
    settings.update(given_arguments(recipe.args))
    folder.mkdir(parents=True, exist_ok=True)
    save_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), folder / RUN_FILE)


def given_arguments(args: TrainingArguments) -> dict[str, Any]:
    """The arguments of training that differ from their defaults, without secrets, as plain values."""
    plain = args.to_dict()
    usual = type(args)(output_dir=args.output_dir, use_cpu=args.use_cpu).to_dict()
    secret = ("hub_token", "push_to_hub_token")
    changed = {key: value for key, value in plain.items() if value != usual.get(key) and key not in secret}
    device = {"use_cpu": True} if args.use_cpu else {}
    return {"output_dir": args.output_dir, **device, **changed}
