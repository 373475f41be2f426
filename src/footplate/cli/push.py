"""`footplate push RUN`: send a run, or what is missing of it, to the Hub."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from footplate.checkpoint.rotation import find_checkpoints
from footplate.hub.client import Files, PushError, Repository
from footplate.hub.contents import (
    MODEL,
    find_model_files,
    find_resume_files,
    find_run_files,
    has_weights,
    names_of,
)
from footplate.hub.ledger import HubLedger, load_ledger

STRATEGIES = ("end", "every_save", "checkpoint", "all_checkpoints")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Send a run to the Hub, or what is missing there. The token is HF_TOKEN or that of the login."
    parser = commands.add_parser("push", help=text, description=text)
    parser.add_argument("folder", metavar="RUN", help="The output_dir of a run.")
    parser.add_argument("--to", metavar="NAME", help="The repository; default: where the run was sent to.")
    parser.add_argument("--revision", metavar="BRANCH", help="The branch; default: that of the run.")
    parser.add_argument("--private", action="store_true", default=None, help="If it is new, make it private.")
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        help="Whether checkpoints are sent too, as hub_strategy says; default: that of the run, else end.",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Send what is missing and print it; the exit code is 1 if the Hub did not take it."""
    folder = Path(options.folder).resolve()
    if not folder.is_dir():
        raise ValueError(f"{options.folder!r} is not a folder. Give the output_dir of a run.")
    ledger = load_ledger(folder) or HubLedger(folder.name, strategy="end")
    is_elsewhere = options.to not in (None, ledger.repository)
    ledger.repository = options.to or ledger.repository
    ledger.revision = options.revision or ledger.revision
    ledger.private = ledger.private if options.private is None else options.private
    ledger.strategy = options.strategy or ledger.strategy
    files, names = collect(folder, ledger.strategy)
    if not files:
        raise ValueError(f"There is nothing to send in {folder}: no model, and no complete checkpoint.")
    repository = Repository(ledger.repository, None, ledger.private, ledger.revision)
    try:
        missing = repository.find_missing(files)
        if missing:
            commit = repository.send(missing, "Push of what was missing")
    except PushError as error:
        print(f"footplate: the Hub did not take the run: {error}", file=sys.stderr)
        return 1
    if not is_elsewhere:
        ledger.repository = repository.repo_id or ledger.repository
        ledger.arrive(names)
        ledger.waiting = []  # what is not here any more cannot be sent
        ledger.save(folder)
    if missing:
        print(f"Sent {len(missing)} of {len(files)} files to {repository.repo_id}: {commit.commit_url}")
    else:
        print(f"{repository.repo_id} has all {len(files)} files already.")
    return 0


def collect(folder: Path, strategy: str) -> tuple[Files, list[str]]:
    """What of a run belongs on the Hub, and the names of it: model, card, results, checkpoints.

    Args:
        folder: Of the run.
        strategy: `hub_strategy`.
    """
    sealed = find_checkpoints(folder)  # those that are complete
    files, names = find_run_files(folder), [MODEL]
    newest = sealed[-1] if sealed else None
    if newest is not None and is_newer(newest, files):
        files = {**files, **find_model_files(newest)}
    if not has_weights(files):
        files = {}
    kept = sealed if strategy == "all_checkpoints" else sealed[-1:]
    for checkpoint in kept:
        files.update(find_resume_files(checkpoint, strategy))
        names += names_of(checkpoint.name, strategy)
    return files, names


def is_newer(checkpoint: Path, files: Files) -> bool:
    """Whether a checkpoint was written after the weights in the run's own folder, or those are missing."""
    own, saved = (
        [path.stat().st_mtime for name, path in found.items() if has_weights({name: path})]
        for found in (find_model_files(checkpoint), files)
    )
    return max(own, default=0.0) > max(saved, default=0.0)
