"""`footplate sync DIR --to NAME`: send a tracker what it lacks of a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from footplate.integrations.registry import TRACKERS, find_callback
from footplate.integrations.replay import load_last_run, replay_run


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Send the last run in a folder, or what is missing of it, to a tracker."
    parser = commands.add_parser("sync", help=text, description=text)
    parser.add_argument("folder", metavar="DIR", help="The output_dir of a run.")
    parser.add_argument(
        "--to",
        action="append",
        required=True,
        metavar="NAME",
        help=f"A tracker, as report_to names it; may be given more than once. One of {', '.join(TRACKERS)}.",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Send the run and print what was sent; the exit code is 1 if a tracker did not take it."""
    if not Path(options.folder).is_dir():
        raise ValueError(f"{options.folder!r} is not a folder. Give the output_dir of a run.")
    load_last_run(options.folder)
    names = list(dict.fromkeys(options.to))
    return max([_sync(options.folder, name) for name in names])


def _sync(folder: str, name: str) -> int:
    try:
        done = replay_run(folder, find_callback(name)())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an error of one client must not keep the run from the others
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        print(f"footplate: {name} did not take the run: {reason}", file=sys.stderr)
        return 1
    if done.num_sent:
        print(f"Sent {done.num_sent} of {done.num_logs} logs to {name}, run {done.service_id}.")
    else:
        print(f"{name} has all {done.num_logs} logs already, run {done.service_id}.")
    return 0
