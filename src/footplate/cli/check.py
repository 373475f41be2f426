"""`footplate check script.py`: try what the script's `train()` will do, in seconds."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from footplate.cli.first_train import add_options, ask_at_first_train, check_is_script

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
    add_options(parser, "what was found")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check and print; the exit code is 0 if nothing failed, else 1."""
    check_is_script(options.script)
    report = check_script(options)
    if report is None:
        return 1  # the script failed, and its error was shown
    print(json.dumps(report.to_dict(), indent=2) if options.json else report)
    return 0 if report.ok else 1


# arguments of `train()` that let it go on from a checkpoint, beside the first
RESUMING = ("model_path", "extend_to", "extend_to_epochs", "extend_to_steps")


def check_script(options: argparse.Namespace) -> CheckReport | None:
    """What a rehearsal found at the script's first `train()`; None if the script failed before."""
    from footplate.trainer.checking import check_trainer

    def check(trainer: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> CheckReport:
        resumes = resume_from_checkpoint or any(kwargs.get(name) for name in RESUMING)
        # the script ends here: there is nobody for whom anything would have to be put back
        return check_trainer(trainer, puts_back=False, resumes=bool(resumes))

    report: CheckReport | None = ask_at_first_train(options, check, "check")
    return report
