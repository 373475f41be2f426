"""`footplate tasks`: what can be trained from the command line."""

from __future__ import annotations

import argparse
from typing import Any


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "List the tasks, each with a command to copy."
    parser = commands.add_parser("tasks", help=text, description=text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print every task with a line and a command."""
    from footplate.tasks.common.catalog import list_tasks

    for name, text, example in list_tasks():
        print(f"{name}\n    {text}\n    footplate run {name} {example}\n")
    return 0
