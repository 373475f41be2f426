"""The commands: parse, pick one, run it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import footplate
from footplate.cli import checkpoints, report, sync, verify_resume


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; errors of use are one line each.

    Args:
        arguments: The words after `footplate`; by default those of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="footplate", description="Train any torch model; keep what it learned."
    )
    parser.add_argument("--version", action="version", version=f"footplate {footplate.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    checkpoints.add_command(commands)
    verify_resume.add_command(commands)
    report.add_command(commands)
    sync.add_command(commands)
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except (OSError, ValueError) as error:
        print(f"footplate: {error}", file=sys.stderr)
        return 2
