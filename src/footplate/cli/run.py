"""`footplate run`: train, evaluate and predict a task."""

from __future__ import annotations

import argparse
from typing import Any


def add_command(commands: Any) -> None:
    """Add `run` to the commands."""
    parser = commands.add_parser(
        "run", help="Train, evaluate and predict a task.", add_help=False, prefix_chars="\0"
    )
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the task that is named first; the other words are its flags."""
    from footplate.tasks.common.catalog import find_recipe
    from footplate.tasks.common.parsing import build_parser, describe_flags, parse_flags, read_task_name
    from footplate.tasks.common.running import run_task

    words: list[str] = options.words
    if not words or words[0] in ("-h", "--help"):
        print("footplate run TASK [SETTINGS.yaml] [--flag value ...]\n\n`footplate tasks` lists the tasks.")
        return 0
    name, words = read_task_name(words)
    kind = find_recipe(name)
    if "--help-all" in words:
        print(build_parser(kind).format_help())
        return 0
    if {"-h", "--help"} & set(words):
        print(describe_flags(kind, name))
        return 0
    run_task(parse_flags(kind, words), name)
    return 0
