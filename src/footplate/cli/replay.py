"""`footplate replay RUN --step N`: make one update of a run again, bit for bit, and look into it."""

from __future__ import annotations

import argparse
import os
from typing import Any

EPILOG = """\
examples:
  footplate replay runs/a --step 1234 train.py --learning_rate 1e-4
  footplate replay runs/qa --step 1234                        a run of `footplate run` needs no script
  footplate replay runs/a --step 1234 --compare runs/b train.py
  torchrun --nproc-per-node 2 -m footplate replay runs/a --step 1234 train.py

The script is run up to its first Trainer.train(). That goes on from the nearest checkpoint before the
update, in a temporary folder: the run's own folder stays as it is.
Exit codes: 0 as logged, 1 not as logged, 2 refused.
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "Make one update of a run again, bit for bit, from the nearest checkpoint before it: its rows with "
        "their losses, gradients and activations by module, what was not finite first, and whether it came "
        "out as logged."
    )
    parser = commands.add_parser(
        "replay",
        help=text,
        description=text,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="RUN", help="The output_dir of the run.")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="The update, counted from 1.")
    parser.add_argument(
        "--rows", action="store_true", help="Show all rows, not only those with the largest loss."
    )
    parser.add_argument(
        "--modules", action="store_true", help="Show all modules, not only those with the largest gradients."
    )
    parser.add_argument(
        "--compare",
        metavar="OTHER",
        help="Another run of the script, or a file of --save: where the same update begins to differ.",
    )
    parser.add_argument("--save", metavar="FILE", help="Write what was measured to a file, for --compare.")
    parser.add_argument(
        "--pdb",
        action="store_true",
        help="Stop in the debugger inside the update, before the weights change.",
    )
    parser.add_argument(
        "--from-start", action="store_true", help="Make all updates before it again, without a checkpoint."
    )
    parser.add_argument(
        "--own-settings",
        action="store_true",
        help="Take the settings that the run had, not those of the script.",
    )
    parser.add_argument(
        "-m", action="store_true", dest="is_module", help="The script is a module, as in python -m."
    )
    parser.add_argument("script", nargs="?", help="The script that trained, or with -m a module.")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Arguments of the script.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay and print; the exit code says whether the update came out as logged."""
    from footplate.replaying.api import replay

    found = replay(
        options.folder,
        options.step,
        options.script,
        options.arguments,
        is_module=options.is_module,
        compare=options.compare,
        save=options.save if int(os.environ.get("RANK", "0")) == 0 else None,
        from_start=options.from_start,
        own_settings=options.own_settings,
        all_rows=options.rows,
        stops=options.pdb,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        print(found.describe(options.rows, options.modules), flush=True)
    return found.exit_code
