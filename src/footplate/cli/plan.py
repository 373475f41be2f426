"""`footplate plan script.py`: say what a run of your script would take, without training."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from footplate.planning import RunPlan

SHARDINGS = ("none", "shard_grad_op", "full_shard", "hybrid")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = (
        "Run a script up to Trainer.train() with a model that takes no memory, and say what training would "
        "take: updates, disk, memory of each rank, traffic; what does not fit, and what would."
    )
    parser = commands.add_parser("plan", help=text, description=text)
    parser.add_argument("--ranks", type=int, metavar="N", help="Number of processes; default: 1.")
    parser.add_argument("--sharding", choices=SHARDINGS, help="Way of sharding; default: what fsdp says.")
    parser.add_argument(
        "--memory", metavar="SIZE", help="Of each device, such as 80GB; default: this machine's."
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="Kind of device to plan for; default: this machine's."
    )
    parser.add_argument("--json", action="store_true", help="Print the plan as JSON.")
    parser.add_argument("--real", action="store_true", help="Build and load the model as the script does.")
    parser.add_argument(
        "--drive", action="store_true", help="The script is written for the Trainer of transformers."
    )
    parser.add_argument("script", help="A Python script that calls Trainer.train().")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Arguments of the script.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Plan and print; the exit code is 0 if memory and disk are enough, else 1."""
    if not Path(options.script).is_file():
        raise ValueError(f"{options.script!r} is not a file. Give the script that trains.")
    plan = plan_script(options)
    if plan is None:
        return 1  # the script failed, and its error was shown
    print(json.dumps(plan.to_dict(), indent=2) if options.json else plan)
    saved = plan.checkpoints
    return 0 if plan.fits and saved.disk_needed <= saved.disk_free else 1


class _Planned(BaseException):
    """Ends the script where it would train; not an Exception, which a script may catch."""

    def __init__(self, plan: RunPlan) -> None:
        super().__init__()
        self.plan = plan


def plan_script(options: argparse.Namespace) -> RunPlan | None:
    """The plan of the script's first `train()`; None if the script failed."""
    import footplate
    from footplate.cli.drive import drive, replacing
    from footplate.planning.empty_models import empty_models
    from footplate.trainer import Trainer
    from footplate.voice import install_voice

    install_voice()
    if options.drive:
        footplate.take_over()
    wanted = {"world_size": options.ranks, "sharding": options.sharding}
    wanted |= {"memory": options.memory, "device": options.device}

    def plan_instead(self: Trainer, *args: Any, **kwargs: Any) -> NoReturn:
        raise _Planned(self.plan(**wanted))

    try:
        with ExitStack() as stack:
            stack.enter_context(replacing(Trainer, train=plan_instead))
            if options.json:  # what the script prints must not be mixed with the plan
                stack.enter_context(redirect_stdout(sys.stderr))
            if not options.real:
                stack.enter_context(empty_models())
            code = drive(options.script, options.arguments, is_module=False)
    except _Planned as planned:
        return planned.plan
    if code == 0:
        raise ValueError(f"{options.script} ended without calling Trainer.train(): there is nothing to plan.")
    if not options.real:
        print(
            "footplate: the model of the script had no memory and no values. If that is why it failed, use "
            "--real.",
            file=sys.stderr,
        )
    return None
