"""Runs a script up to the end of its first `train()`, in a folder of its own: one part of `verify-resume`.

python -m footplate.cli.rehearse '{"folder": ..., ...}' script.py [arguments of the script]
"""

from __future__ import annotations

import inspect
import json
import os
import runpy
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from footplate.arguments import TrainingArguments
from footplate.callbacks import TrainerCallback
from footplate.checkpoint import find_last_checkpoint
from footplate.checkpoint.files import load_plain, save_plain
from footplate.state import TrainerControl, TrainerState
from footplate.testing import Outcome, read_outcome
from footplate.trainer import Trainer

OUTCOME_NAME = "outcome.pt"


@dataclass(frozen=True)
class Order:
    """How the script is to be run this time."""

    folder: str  # instead of the script's output_dir
    max_steps: int | None = None  # instead of the script's, where given
    resume: bool = False
    stop_at: int | None = None  # the update after which the process gets a signal
    signal: int = 0

    def to_json(self) -> str:
        """The order as one word of a command line."""
        return json.dumps(asdict(self))


def main() -> None:
    """Take the order, then be the script."""
    order = Order(**json.loads(sys.argv[1]))
    script = sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(script).resolve().parent)  # as if python itself had been given the script
    observe(order)
    runpy.run_path(script, run_name="__main__")
    raise SystemExit(f"{script} ended without a call of Trainer.train(): there is nothing to compare.")


def observe(order: Order) -> None:
    """Have every Trainer of this process follow the order."""
    build, train = Trainer.__init__, Trainer.train
    signature = inspect.signature(build)

    def build_elsewhere(self: Trainer, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        settings = given.arguments.get("args")
        given.arguments["args"] = redirect(settings if settings is not None else TrainingArguments(), order)
        build(*given.args, **given.kwargs)
        if order.stop_at is not None:
            self.add_callback(_Signal(order.stop_at, order.signal))

    def train_once(self: Trainer, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> NoReturn:
        checkpoint = find_last_checkpoint(order.folder) if order.resume else None
        kwargs.pop("model_path", None)
        train(self, checkpoint, *args, **kwargs)
        save_plain(read_outcome(self), Path(order.folder, OUTCOME_NAME))
        raise SystemExit(0)  # what the script does next is not part of the run, and may leave the folder

    Trainer.__init__, Trainer.train = build_elsewhere, train_once  # type: ignore[method-assign]


def redirect(settings: TrainingArguments, order: Order) -> TrainingArguments:
    """The script's settings, changed in place as the order says."""
    settings.output_dir = order.folder
    if order.max_steps is not None:
        settings.max_steps = order.max_steps
    return settings


def load_outcome(folder: str | os.PathLike[str]) -> Outcome | None:
    """What a finished run left; None where it did not finish."""
    path = Path(folder, OUTCOME_NAME)
    outcome: Outcome | None = load_plain(path) if path.is_file() else None
    return outcome


class _Signal(TrainerCallback):
    """Sends this process a signal after an update."""

    wants_step_data = False

    def __init__(self, stop_at: int, number: int) -> None:
        self.stop_at, self.number = stop_at, number

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step == self.stop_at:
            os.kill(os.getpid(), self.number)


if __name__ == "__main__":
    main()
