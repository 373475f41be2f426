"""`footplate find-lr script.py`: suggest a learning rate, by the loss while the rate rises."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.cli.first_train import add_options, ask_at_first_train, check_is_script

if TYPE_CHECKING:
    from footplate.rates.result import LearningRates


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "Run a script up to its first Trainer.train() and make updates there while the learning rate rises: "
        "where the loss falls fastest is the suggestion. Nothing is saved or logged. The exit code is 1 if "
        "the curve shows no rate."
    )
    parser = commands.add_parser("find-lr", help=text, description=text)
    parser.add_argument(
        "--lowest", type=float, default=1e-7, metavar="RATE", help="Where to begin; default: 1e-7."
    )
    parser.add_argument(
        "--highest", type=float, default=10.0, metavar="RATE", help="Where to end; default: 10."
    )
    parser.add_argument(
        "--updates",
        "--num_updates",
        type=int,
        default=100,
        metavar="N",
        help="How many updates; default: 100.",
    )
    parser.add_argument("--html", metavar="FILE", help="Write the curve as a page.")
    add_options(parser, "what was found")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Sweep and print; the exit code is 0 if there is a suggestion, else 1."""
    from footplate.comm import rank
    from footplate.rates.sweep import check_range

    check_is_script(options.script)
    check_range(options.lowest, options.highest, options.updates)
    page = None if options.html is None else Path(options.html).absolute()  # the script may go elsewhere
    if page is not None and (page.is_dir() or not page.parent.is_dir()):
        raise ValueError(f"--html {options.html}: give a file in a folder that is there.")
    found = find_for_script(options)
    if found is None:
        return 1  # the script failed, and its error was shown
    code = 0 if found.suggestion is not None else 1
    if rank() > 0:  # all ranks have found the same
        return code
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    if page is not None:
        found.save(page)
        print(f"footplate: the curve is in {options.html}.", file=sys.stderr)
    return code


def find_for_script(options: argparse.Namespace) -> LearningRates | None:
    """What a sweep found at the script's first `train()`; None if the script failed before."""
    from footplate.cli.check import RESUMING
    from footplate.trainer.rate_finding import find_rates

    def find(trainer: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> LearningRates:
        if resume_from_checkpoint or any(kwargs.get(name) for name in RESUMING):
            print(
                "footplate: the script resumes a run; the rate is looked for from the start, without the "
                "weights of its checkpoint.",
                file=sys.stderr,
            )
        # the script ends here: there is nobody for whom anything would have to be put back
        return find_rates(trainer, options.lowest, options.highest, options.updates, puts_back=False)

    found: LearningRates | None = ask_at_first_train(options, find, "find a learning rate for")
    return found
