"""`footplate drive script.py`: run a script with footplate in the place of the Trainer of transformers."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IMPORTS_FOOTPLATE = re.compile(r"^\s*(?:import|from)\s+footplate\b", re.MULTILINE)


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "Run a script that was written for the Trainer of transformers, unchanged, with footplate's Trainer, "
        "arguments, callbacks, collators and helpers in their place."
    )
    parser = commands.add_parser("drive", help=text, description=text)
    parser.add_argument(
        "--check",
        action="store_true",
        help="Run nothing; say what the script uses of the Trainer, and what of it is footplate's.",
    )
    parser.add_argument(
        "-m",
        action="store_true",
        dest="is_module",
        help="The script is the name of a module, as in python -m.",
    )
    parser.add_argument("script", help="A Python script, or with -m a module.")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Arguments of the script.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run or check the script; the exit code is the script's own, or 1 if its last save failed."""
    if not options.is_module and not Path(options.script).exists():
        raise ValueError(f"{options.script!r} does not exist. Give a script, or -m and the name of a module.")
    if options.check:
        from footplate.cli.drive_check import check

        return check(options.script, options.is_module)
    import footplate
    from footplate.voice import install_voice

    install_voice()
    footplate.take_over()
    return drive(options.script, options.arguments, options.is_module)


def drive(script: str, arguments: list[str], is_module: bool) -> int:
    """Run the script as Python itself would; its error is shown as Python would show it."""
    sys.argv = [script, *arguments]
    if not getattr(
        sys.flags, "safe_path", False
    ):  # the folder where Python would look for the modules of the script
        sys.path[0] = os.getcwd() if is_module else str(Path(script).resolve().parent)
    try:
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except Exception as error:
        shown = error.with_traceback(_without_own_frames(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return 1
    from footplate.checkpoint.saves import unsaved

    return 1 if unsaved else 0  # the model in memory ends with this process


def imports_footplate(script: str) -> bool:
    """Whether a script names footplate itself; others are written for the Trainer of transformers."""
    return bool(IMPORTS_FOOTPLATE.search(Path(script).read_text("utf-8", "replace")))


@contextmanager
def replacing(owner: type[Any], **functions: Any) -> Iterator[None]:
    """In the block, a class has these functions in the place of its own of the same names."""
    own = {name: vars(owner)[name] for name in functions if name in vars(owner)}
    for name, function in functions.items():
        setattr(owner, name, function)
    try:
        yield
    finally:
        for name in functions:
            if name in own:
                setattr(owner, name, own[name])
            else:  # a base class has it
                delattr(owner, name)


def _without_own_frames(traceback: Any) -> Any:
    """The traceback from the script on; whole if the script was never reached."""
    entry = traceback
    while entry is not None and entry.tb_frame.f_globals.get("__name__") != "__main__":
        entry = entry.tb_next
    return entry if entry is not None else traceback
