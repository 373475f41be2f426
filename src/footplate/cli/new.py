"""`footplate new TASK`: a script of one's own to change."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Write a script for a task that you own and can change."
    parser = commands.add_parser("new", help=text, description=text)
    parser.add_argument("task", metavar="TASK", help="A task; `footplate tasks` lists them.")
    parser.add_argument("file", metavar="FILE", nargs="?", help="Where to write it; default: TASK.py here.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the script, and say how to run it."""
    from footplate.tasks.common.scripts import write_script

    path = Path(options.file or f"{options.task}.py")
    if path.exists():
        raise ValueError(f"{path} exists. Name another file: footplate new {options.task} FILE")
    example = write_script(options.task, path)
    print(f"{path} is yours. Run it with\n  python {path} {example}")
    return 0
