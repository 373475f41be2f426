"""`footplate plan script.py`: say what a run of your script would take, without training."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from footplate.cli.first_train import add_options, ask_at_first_train, check_is_script

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
    parser.add_argument("--real", action="store_true", help="Build and load the model as the script does.")
    add_options(parser, "the plan")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Plan and print; the exit code is 0 if memory and disk are enough, else 1."""
    check_is_script(options.script)
    plan = plan_script(options)
    if plan is None:
        return 1  # the script failed, and its error was shown
    print(json.dumps(plan.to_dict(), indent=2) if options.json else plan)
    saved = plan.checkpoints
    return 0 if plan.fits and saved.disk_needed <= saved.disk_free else 1


def plan_script(options: argparse.Namespace) -> RunPlan | None:
    """The plan of the script's first `train()`; None if the script failed."""
    from footplate.planning.empty_models import empty_models

    wanted = {"world_size": options.ranks, "sharding": options.sharding}
    wanted |= {"memory": options.memory, "device": options.device}

    def plan(trainer: Any, *args: Any, **kwargs: Any) -> RunPlan:
        found: RunPlan = trainer.plan(**wanted)
        return found

    around = None if options.real else empty_models()
    planned: RunPlan | None = ask_at_first_train(options, plan, "plan", around)
    if planned is not None:
        return planned
    if not options.real:
        print(
            "footplate: the model of the script had no memory and no values. If that is why it failed, use "
            "--real.",
            file=sys.stderr,
        )
    return None
