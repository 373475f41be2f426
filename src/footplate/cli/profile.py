"""`footplate profile script.py`: time a few updates of the script's run, and say where the time goes."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.cli.first_train import add_options, ask_at_first_train, check_is_script

if TYPE_CHECKING:
    from footplate.instruments.profile import Profile


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "Run a script up to its first Trainer.train(), make a few real updates there, and say where the time "
        "of one goes: data, forward, backward, optimizer, callbacks; its speed, the most expensive "
        "operators, and which setting would help. Nothing is logged or saved."
    )
    parser = commands.add_parser("profile", help=text, description=text)
    parser.add_argument("--updates", type=int, default=20, metavar="N", help="Updates to time; default: 20.")
    parser.add_argument(
        "--warmup", type=int, default=5, metavar="N", help="Updates before them, not timed; default: 5."
    )
    parser.add_argument("--modules", action="store_true", help="Show what forward takes in each module.")
    parser.add_argument(
        "--trace", metavar="FILE", help="Write what torch's profiler saw, for a viewer such as Perfetto."
    )
    parser.add_argument("--no-callbacks", action="store_true", help="Do not call your callbacks.")
    add_options(parser, "the profile")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Profile and print; the exit code is 0, or 1 if the script failed."""
    check_is_script(options.script)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch's profiler writes to stderr; read at import
    from footplate.trainer.profiling import check_numbers

    check_numbers(options.updates, options.warmup, options.trace)
    profile = profile_script(options)
    if profile is None:
        return 1  # the script failed, and its error was shown
    print(json.dumps(profile.to_dict(), indent=2) if options.json else profile)
    return 0


def profile_script(options: argparse.Namespace) -> Profile | None:
    """The profile of the script's first `train()`; None if the script failed before."""
    from footplate.trainer.profiling import profile_trainer

    trace = None if options.trace is None else Path(options.trace).absolute()  # the script may change folders

    def profile(trainer: Any, *args: Any, **kwargs: Any) -> Profile:
        return profile_trainer(
            trainer,
            options.updates,
            options.warmup,
            trace=trace,
            modules=options.modules,
            callbacks=not options.no_callbacks,
            puts_back=False,  # the script ends here: there is nobody for whom
        )

    found: Profile | None = ask_at_first_train(options, profile, "profile")
    return found
