"""`footplate replay RUN --step N`: make one update of a run again, bit for bit, and look into it."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

USAGE = "footplate replay RUN --step N [options] [SCRIPT [arguments of the script]]"

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
        usage=USAGE,
        description=text,
        epilog=EPILOG,
        allow_abbrev=False,  # what comes after the script is the script's own
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
    parser.set_defaults(run=run, script=None, arguments=[])
    # argparse would take all that follows RUN for the script's arguments
    parse = functools.partial(parse_words, parser, parser.parse_known_args)
    parser.parse_known_args = parse


def parse_words(
    parser: argparse.ArgumentParser, parse: Callable[..., Any], words: Sequence[str], namespace: Any = None
) -> tuple[argparse.Namespace, list[str]]:
    """Parse the words of this command; the script and what comes after it stay as they are."""
    taking = {name for name, action in parser._option_string_actions.items() if action.nargs is None}
    own, others = split_words(words, taking)
    options, unknown = parse(own, namespace)
    if others:
        options.script, *options.arguments = others
    return options, unknown


def split_words(words: Sequence[str], taking: Collection[str]) -> tuple[list[str], list[str]]:
    """The words up to the script, and the script with its arguments.

    Args:
        words: Those after the name of the command: RUN, options in any order, a script.
        taking: The options that take the word after them.
    """
    has_folder = is_value = False
    for index, word in enumerate(words):
        if not is_value and not word.startswith("-"):
            if has_folder:
                return list(words[:index]), list(words[index:])
            has_folder = True
        is_value = not is_value and word in taking
    return list(words), []


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
