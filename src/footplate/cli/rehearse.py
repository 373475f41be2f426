"""Runs a script up to the end of its first `train()`, in another folder; used by `verify-resume`.

python -m footplate.cli.rehearse '{"folder": ..., ...}' script.py [arguments of the script]
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from footplate import rng
from footplate.arguments import TrainingArguments
from footplate.callbacks import TrainerCallback
from footplate.checkpoint import find_last_checkpoint
from footplate.checkpoint.files import load_plain, save_plain
from footplate.cli.drive import drive
from footplate.replaying.elsewhere import build_with
from footplate.state import TrainerControl, TrainerState
from footplate.testing import Outcome, read_outcome
from footplate.trainer import Trainer
from footplate.training.facts import hash_first_row, hash_value

OUTCOME_NAME = "outcome.pt"
START_NAMES = {False: "start.json", True: "start_resumed.json"}  # of a run, and of the one that resumes it


@dataclass(frozen=True)
class Order:
    """How to run the script."""

    folder: str  # instead of the script's output_dir
    max_steps: int | None = None  # instead of the script's, where given
    resume: bool = False
    stop_at: int | None = None  # send `signal` after this update
    signal: int = 0
    seed: int = 0  # of what the script draws before it seeds anything itself

    def to_json(self) -> str:
        """The order as one argument of a command line."""
        return json.dumps(asdict(self))


class Start(NamedTuple):
    """Hashes of what a script hands to `train()`."""

    weights: str
    first_row: str | None  # of the training data, where it can be read without a trace


def main() -> None:
    """Read the order from the command line, then run the script."""
    order = Order(**json.loads(sys.argv[1]))
    script, *arguments = sys.argv[2:]
    observe(order)
    rng.seed_all(order.seed)
    code = drive(script, arguments, is_module=False)
    raise SystemExit(code or f"{script} ended without calling Trainer.train(): there is nothing to compare.")


def observe(order: Order) -> None:
    """Make every Trainer of this process follow the order."""
    train = Trainer.train

    def interrupt(trainer: Trainer) -> None:
        if order.stop_at is not None:
            trainer.add_callback(_Signal(order.stop_at, order.signal))

    def train_once(self: Trainer, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> NoReturn:
        checkpoint = find_last_checkpoint(order.folder) if order.resume else None
        kwargs.pop("model_path", None)
        start = Start(hash_value(self.model.state_dict()), hash_first_row(self.train_dataset))
        os.makedirs(order.folder, exist_ok=True)
        Path(order.folder, START_NAMES[order.resume]).write_text(json.dumps(start), encoding="utf-8")
        train(self, checkpoint, *args, **kwargs)
        save_plain(read_outcome(self), Path(order.folder, OUTCOME_NAME))
        # the rest of the script is not part of the run, and may write elsewhere
        raise SystemExit(0 if self._current_run.saves.is_last_saved else 1)

    build = build_with(lambda settings: redirect(settings, order), interrupt)
    Trainer.__init__, Trainer.train = build, train_once  # type: ignore[method-assign, assignment]


def redirect(settings: TrainingArguments, order: Order) -> TrainingArguments:
    """The script's settings, changed in place to follow the order."""
    settings.output_dir = order.folder
    if order.max_steps is not None:
        settings.max_steps = order.max_steps
    return settings


def load_start(order: Order) -> Start:
    """What the script handed to `train()` in the run that this order asked for."""
    return Start(*json.loads(Path(order.folder, START_NAMES[order.resume]).read_text(encoding="utf-8")))


def load_outcome(folder: str | os.PathLike[str]) -> Outcome | None:
    """The outcome of a run; None if it did not finish."""
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
