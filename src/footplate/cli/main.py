"""Parse the command line and run a command."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import footplate

# The module of each command, and what it does in a line, in the order of a user's life. Only the module that
# is needed is imported: some need torch, which takes seconds.
COMMANDS = {
    "tasks": ("footplate.cli.tasks", "List the tasks, each with a command to copy."),
    "inspect": ("footplate.cli.inspect", "Show what the rows of a task become."),
    "check": (
        "footplate.cli.check",
        "Try what a script's training will do, in seconds: largest batch, metrics, saving, disk.",
    ),
    "plan": ("footplate.cli.plan", "Say what a run of a script would take: updates, memory, disk, traffic."),
    "find-lr": (
        "footplate.cli.find_lr",
        "Suggest a learning rate for a script, by the loss while the rate rises.",
    ),
    "run": ("footplate.cli.run", "Train, evaluate and predict a task."),
    "search": ("footplate.cli.search", "Find settings for a task or a script, and keep the best model."),
    "drive": (
        "footplate.cli.drive",
        "Run a script written for the Trainer of transformers on footplate, unchanged.",
    ),
    "new": ("footplate.cli.new", "Write a script for a task that you own and can change."),
    "profile": ("footplate.cli.profile", "Time a few updates of your script, and say where the time goes."),
    "report": (
        "footplate.cli.report",
        "Build the report of a run or a search, or compare runs; open it, serve it live.",
    ),
    "runs": ("footplate.cli.runs", "List all runs below a folder, or compare them in one live page."),
    "checkpoints": ("footplate.cli.checkpoints", "List the checkpoints of a run: best, last, intact or not."),
    "verify-resume": (
        "footplate.cli.verify_resume",
        "Check that an interrupted run of a script is the same.",
    ),
    "replay": ("footplate.cli.replay", "Make one update of a run again, bit for bit, and look into it."),
    "consolidate": (
        "footplate.cli.consolidate",
        "Join the shards of a checkpoint into weights that any library loads.",
    ),
    "predict": ("footplate.cli.predict", "Answer for new data with the model of a finished run."),
    "sync": ("footplate.cli.sync", "Send a run, or what is missing of it, to a tracker."),
    "push": ("footplate.cli.push", "Send a run, or what is missing of it, to the Hub."),
    "completion": ("footplate.cli.completion", "Print a script that lets your shell complete commands."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; a wrong use is reported in one line, without a traceback.

    Args:
        arguments: The arguments after `footplate`; default: those of the command line.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words
    shows_traceback = "--debug" in own and "drive" not in words[:1]  # a script may have such an option
    if shows_traceback:
        words.remove("--debug")
    options = build_parser(words).parse_args(words)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except (OSError, ValueError, NotImplementedError) as error:
        if isinstance(error, BrokenPipeError) and reader_has_gone():
            return 1
        is_foreign = comes_from_elsewhere(error)
        if shows_traceback or is_foreign:
            traceback.print_exc()
        print(f"footplate: {error}", file=sys.stderr)
        return 1 if is_foreign else 2


def reader_has_gone() -> bool:
    """Whether nobody reads the output any more, as after `footplate tasks | head -1`."""
    try:
        print(flush=True)  # what failed before is no longer waiting to be written
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return True
    return False


def comes_from_elsewhere(error: Exception) -> bool:
    """Whether code that is not ours, such as a model or a collator, refused a value."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = str(frame.f_globals.get("__name__", ""))
    return isinstance(error, ValueError) and name.partition(".")[0] != "footplate"


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these arguments: whole for the command among them, a line for each of the others."""
    parser = argparse.ArgumentParser(
        prog="footplate",
        description="Train any torch model; keep what it learned.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong use. --debug shows the traceback of an error.",
    )
    parser.add_argument("--version", action="version", version=f"footplate {footplate.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    wanted = next((word for word in words if not word.startswith("-")), None)
    for name, (module, text) in COMMANDS.items():
        if name == wanted:
            import_module(module).add_command(commands)
        else:
            commands.add_parser(name, help=text, add_help=False)
    return parser
