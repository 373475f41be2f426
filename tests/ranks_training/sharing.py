"""Jobs that push to the Hub, or would if it were there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from huggingface_hub import constants

import footplate
import loopback
from ranks_training import small

NOBODY = "http://127.0.0.1:9"  # a port on which no server answers


class Sharing(footplate.TrainerCallback):
    """Saves the model twice in training, as a user's callback does on all ranks, and notes what it sees."""

    def __init__(self) -> None:
        self.pushes: list[int] = []
        self.seconds: list[float] = []

    def on_push_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note that something is about to be sent."""
        self.pushes.append(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save, and note how long training waits for it."""
        if state.global_step in (3, 5):
            began = time.monotonic()
            kwargs["trainer"].save_model()
            self.seconds.append(time.monotonic() - began)


def train(folder: Path, **settings: Any) -> tuple[Any, Sharing]:
    """A run with three checkpoints, and what was seen of its pushes."""
    args = small.arguments(
        folder / "net",
        max_steps=6,
        per_device_train_batch_size=3,
        learning_rate=0.1,
        save_strategy="steps",
        save_steps=2,
        **settings,
    )
    seen = Sharing()
    trainer = footplate.Trainer(
        small.Classifier(),
        args,
        train_dataset=small.numbers(24),
        eval_dataset=small.numbers(7, seed=2),
        data_collator=small.collate,
        callbacks=[seen],
    )
    trainer.train()
    return trainer, seen


def describe(trainer: Any, seen: Sharing, commit: Any = None) -> dict[str, Any]:
    """What is compared of a run; all ranks evaluate, so none may have ended or be elsewhere."""
    return {
        "weights": small.weights(trainer.model),
        "loss": trainer.evaluate()["eval_loss"],
        "name": trainer.hub_model_id,
        "commit": commit,
        "pushes": seen.pushes,
        "seconds": seen.seconds,
    }


PUSHING: Any = {
    "push_to_hub": True,
    "hub_token": loopback.TOKEN,
    "hub_strategy": "every_save",
    "hub_always_push": True,
}


def unshared(folder: Path) -> Any:
    """The same run without a Hub."""
    return describe(*train(folder))


def pushed(folder: Path) -> Any:
    """Every save is pushed, and the model at the end."""
    trainer, seen = train(folder, **PUSHING)
    commit = trainer.push_to_hub("The end")
    return describe(trainer, seen, commit and commit.commit_message)


def dead(folder: Path) -> Any:
    """The Hub does not answer, not even when the process ends: this job is the last."""
    constants.ENDPOINT = NOBODY
    return describe(*train(folder, **PUSHING))
