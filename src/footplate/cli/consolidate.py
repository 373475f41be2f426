"""`footplate consolidate DIR`: join the shards of a checkpoint into weights that any library loads."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from footplate.checkpoint import find_checkpoint_folders, find_last_checkpoint, verify_checkpoint
from footplate.checkpoint.consolidate import consolidate, list_files
from footplate.checkpoint.shard_layout import is_sharded_checkpoint
from footplate.cli.columns import make_printable
from footplate.words import format_bytes


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Join the shards that the processes of a run with fsdp wrote into weights that any library loads."
    parser = commands.add_parser("consolidate", help=text, description=text)
    parser.add_argument(
        "folder",
        metavar="DIR",
        help="A checkpoint, or the output_dir of a run: then its newest intact checkpoint.",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="Where to write the weights; default: into the checkpoint."
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the weights, and say which files they are and how large."""
    checkpoint = find_checkpoint(options.folder)
    written = list_files(consolidate(checkpoint, options.output))
    for path in written:
        print(f"{path}  {format_bytes(path.stat().st_size)}")
    return 0


def find_checkpoint(folder: str) -> Path:
    """The checkpoint that a folder is, or the newest intact one of a run."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{folder!r} is not a folder. Give a checkpoint, or the output_dir of a run.")
    if is_sharded_checkpoint(path) or not find_checkpoint_folders(path):
        verdict = verify_checkpoint(path)
        if is_sharded_checkpoint(path) and not verdict.is_intact:
            reason = make_printable(verdict.reason)
            print(f"footplate: {folder} differs from what was saved: {reason}.", file=sys.stderr)
        return path
    last = find_last_checkpoint(path)
    if last is None:
        raise ValueError(f"No checkpoint in {folder!r} is intact. `footplate checkpoints {folder}` says why.")
    return Path(last)
