"""Jobs in which something happens on one rank alone, and all ranks must do the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

import footplate
from ranks_training import small


def build(folder: Path, kind: Any = small.Recorder, callbacks: Any = (), **settings: Any) -> Any:
    """A trainer of 24 rows in updates of 6, four to an epoch."""
    model = settings.pop("model", None) or small.Classifier()
    options: Any = {"num_train_epochs": 3, "logging_steps": 1, "learning_rate": 0.05, **settings}
    size = options.pop("batch", 6) // small.NUM_RANKS
    args = small.arguments(folder, per_device_train_batch_size=size, keep_columns=["id"], **options)
    return kind(
        model,
        args,
        train_dataset=small.numbers(24),
        eval_dataset=small.numbers(7, seed=2),
        data_collator=small.collate,
        compute_metrics=options.get("metrics") or (lambda prediction: {"score": 1.0}),
        callbacks=list(callbacks),
    )


def train(trainer: Any) -> Any:
    """The end of a run, and which checkpoints are there."""
    trainer.train()
    kept = sorted(Path(trainer.args.output_dir).glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    return {**small.describe(trainer), "checkpoints": [path.name for path in kept]}


class Scores:
    """Metrics that get better until the second evaluation, and worse from then on."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, prediction: Any) -> dict[str, float]:
        self.count += 1
        return {"score": float(3 - abs(self.count - 2))}


def early_stop(folder: Path) -> Any:
    """Stopped after two evaluations without improvement; the best model is loaded."""
    trainer = build(
        folder,
        callbacks=[footplate.EarlyStoppingCallback(2)],
        num_train_epochs=9,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="score",
    )
    trainer.compute_metrics = Scores()
    found = train(trainer)
    best = Path(str(trainer.state.best_model_checkpoint))
    stored = {name: tensor.tolist() for name, tensor in load_file(best / "model.safetensors").items()}
    return {**found, "best": best.name, "stored": stored}


def ask(event: str, step: int = 5, flag: str = "should_training_stop", rank: int = 1) -> Any:
    """A callback that defines one event alone, and sets a flag in it on one rank alone."""

    def act(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= step and args.process_index == rank:
            setattr(control, flag, True)

    return type("Ask", (footplate.TrainerCallback,), {event: act})()


EVENTS = (
    *("on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"),
    *("on_log", "on_evaluate", "on_save", "on_epoch_begin", "on_epoch_end", "on_prediction_step"),
)


def stops(folder: Path) -> Any:
    """For each event, where a run ends in which a callback on one rank asks for the end."""
    found = {}
    for event in EVENTS:
        trainer = build(
            folder / event,
            callbacks=[ask(event)],
            gradient_accumulation_steps=2,
            batch=4,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="steps",
            save_steps=2,
        )
        found[event] = train(trainer)
    return found


def lone_callback(folder: Path) -> Any:
    """Only the first rank has callbacks, and these ask for an evaluation, a save or an end."""
    found = {}
    for flag in ("should_evaluate", "should_save", "should_epoch_stop", "should_training_stop"):
        events = ("on_step_end", "on_log") if small.RANK == 0 else ()
        callbacks = [ask(event, 2, flag, rank=0) for event in events]
        found[flag] = train(build(folder / flag, callbacks=callbacks, num_train_epochs=2))
    return found


class Slow(small.Recorder):
    """One rank is slower than the others."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        time.sleep(0.05 + 0.05 * small.RANK)
        return super().compute_loss(model, inputs, *args, **kwargs)


def max_time(folder: Path) -> Any:
    return train(build(folder, Slow, num_train_epochs=50, max_time=1.5))


def save_every(folder: Path) -> Any:
    return train(build(folder, Slow, num_train_epochs=8, save_every=0.8, eval_strategy="epoch"))


class Poisoned(small.Recorder):
    """One rank has a loss that is not a number, in its third update."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        is_now = self.state.global_step == 2 and small.RANK == small.NUM_RANKS - 1 and model.training
        return loss * float("nan") if is_now else loss


class Watch(footplate.TrainerCallback):
    """Keeps the weights after every update."""

    def __init__(self) -> None:
        self.weights: list[Any] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights.append(small.weights(model))


def skip(folder: Path) -> Any:
    watch = Watch()
    found = train(build(folder, Poisoned, [watch], on_nonfinite="skip", num_train_epochs=2))
    return {**found, "each": watch.weights}


def refuse(folder: Path) -> Any:
    trainer = build(folder, Poisoned, on_nonfinite="raise")
    try:
        trainer.train()
    except FloatingPointError as error:
        return {
            "error": str(error),
            "step": trainer.state.global_step,
            "weights": small.weights(trainer.model),
        }
    raise AssertionError("nothing was raised")


class Limited(small.Classifier):
    """Has memory for two rows, on one rank."""

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        if len(x) > 2 and self.training and small.RANK == small.NUM_RANKS - 1:
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(x, labels)


def memory(folder: Path) -> Any:
    """A batch of 12, of which one rank can only hold 2 rows."""
    found = train(build(folder, batch=12, auto_find_batch_size=True, model=Limited()))
    return {name: found[name] for name in ("step", "history", "weights")}


def enough_memory(folder: Path) -> Any:
    found = train(build(folder, batch=12))
    return {name: found[name] for name in ("step", "history", "weights")}


class Recording(small.Recorder):
    """Records something of every batch."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        self.record("mean_x", inputs["x"].mean())
        self.record("first", float(inputs["id"].double().mean()))
        return super().compute_loss(model, inputs, *args, **kwargs)


def recorded(folder: Path) -> Any:
    settings: Any = {"gradient_accumulation_steps": 2, "logging_steps": 2, "eval_strategy": "epoch"}
    return train(build(folder, Recording, **settings))
