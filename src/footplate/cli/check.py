"""`footplate check script.py`: try what the script's `train()` will do, in seconds."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from footplate.training.findings import CheckReport


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "Run a script up to its first Trainer.train() and try there what training will do: an update of the "
        "longest rows, an evaluation, the best metric, a generated answer, saving and loading, the disk, the "
        "trackers. Nothing is trained. The exit code is 1 if something failed."
    )
    parser = commands.add_parser("check", help=text, description=text)
    parser.add_argument("--json", action="store_true", help="Print what was found as JSON.")
    parser.add_argument(
        "--drive", action="store_true", help="The script is written for the Trainer of transformers."
    )
    parser.add_argument("script", help="A Python script that calls Trainer.train().")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Arguments of the script.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check and print; the exit code is 0 if nothing failed, else 1."""
    if not Path(options.script).is_file():
        raise ValueError(f"{options.script!r} is not a file. Give the script that trains.")
    report = check_script(options)
    if report is None:
        return 1  # the script failed, and its error was shown
    print(json.dumps(report.to_dict(), indent=2) if options.json else report)
    return 0 if report.ok else 1


# arguments of `train()` that let it go on from a checkpoint, beside the first
RESUMING = ("model_path", "extend_to", "extend_to_epochs", "extend_to_steps")


class _Checked(BaseException):
    """Ends the script where it would train; not an Exception, which a script may catch."""

    def __init__(self, report: CheckReport) -> None:
        super().__init__()
        self.report = report


def check_script(options: argparse.Namespace) -> CheckReport | None:
    """What a rehearsal found at the script's first `train()`; None if the script failed before."""
    import footplate
    from footplate.cli.drive import drive, replacing
    from footplate.trainer import Trainer
    from footplate.trainer.checking import check_trainer
    from footplate.voice import install_voice

    install_voice()
    if options.drive:
        footplate.take_over()

    def check_instead(
        self: Trainer, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any
    ) -> NoReturn:
        resumes = resume_from_checkpoint or any(kwargs.get(name) for name in RESUMING)
        # the script ends here: there is nobody for whom anything would have to be put back
        raise _Checked(check_trainer(self, puts_back=False, resumes=bool(resumes)))

    try:
        with ExitStack() as stack:
            stack.enter_context(replacing(Trainer, train=check_instead))
            if options.json:  # what the script prints must not be mixed with what was found
                stack.enter_context(redirect_stdout(sys.stderr))
            code = drive(options.script, options.arguments, is_module=False)
    except _Checked as checked:
        return checked.report
    if code == 0:
        raise ValueError(
            f"{options.script} ended without calling Trainer.train(): there is nothing to check."
        )
    return None
