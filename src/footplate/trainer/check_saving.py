"""Save the real state by the real code, load it again, and compare."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from footplate import rng
from footplate.checkpoint.rotation import find_last_checkpoint
from footplate.state import TRAINER_STATE_NAME, TrainerState, find_unwritable, is_exportable
from footplate.training import advice, traits
from footplate.training.findings import Finding, failed, passed, warned
from footplate.training.keeping import describe_arrays
from footplate.training.rehearsal import describe_failure
from footplate.words import format_bytes

if TYPE_CHECKING:
    from footplate.trainer.training import Training


def try_saving(trainer: Training, model: nn.Module) -> list[Finding]:
    """A checkpoint into the folder of the rehearsal, and back."""
    folder = str(trainer.args.output_dir)
    generators = describe_generators()
    try:
        if trainer.args.save_strategy == "no":
            checkpoint: str | None = os.path.join(folder, "model")
            traits.call_with_declared(trainer.save_model, output_dir=checkpoint, _internal_call=True)
        else:
            traits.call_with_declared(trainer._save_checkpoint, model=model, trial=None, metrics=None)
            error = trainer._current_run.saves.join()
            if error is not None:
                raise error
            checkpoint = find_last_checkpoint(folder)
    except Exception as error:
        return [explain_unsaved(trainer, error)]
    if checkpoint is None:
        text = "saving raised nothing, and left no checkpoint that a run could resume from"
        return [failed("saving", text, ["_save_checkpoint of your Trainer"])]
    size = sum(path.stat().st_size for path in Path(checkpoint).rglob("*") if path.is_file())
    problems = read_back(trainer, checkpoint, generators)
    return problems or [passed("saving", f"{format_bytes(size)} written, read and compared")]


def explain_unsaved(trainer: Training, error: Exception) -> Finding:
    """Why nothing was saved, and whose fault it is."""
    unwritable = find_unwritable(trainer.state.stateful_callbacks or {})
    if unwritable:
        return failed(
            "saving", describe_unwritable(unwritable), [f"state() of {name}" for name in unwritable]
        )
    text = f"a checkpoint could not be written: {describe_failure(error)}"
    settings = ["save_only_model=True"] if not trainer.args.save_only_model else []
    return failed("saving", text, [*settings, "save_strategy='no'"])


def describe_unwritable(unwritable: dict[str, str]) -> str:
    """That states of callbacks cannot be saved."""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in unwritable.items())
    return f"trainer_state.json cannot hold the state of these callbacks: {reasons}"


def read_back(trainer: Training, checkpoint: str, generators: dict[str, int]) -> list[Finding]:
    """What comes back otherwise than it was saved, or not at all."""
    findings = [compare_weights(trainer, checkpoint)]
    if trainer.args.save_strategy != "no":
        if not trainer.args.save_only_model:
            findings.append(compare_optimizer(trainer, checkpoint))
            findings.append(compare_generators(trainer, checkpoint, generators))
        findings.append(compare_callbacks(trainer, checkpoint))
    return [finding for finding in findings if finding is not None]


def compare_weights(trainer: Training, checkpoint: str) -> Finding | None:
    """Load the weights over others, and compare."""
    before = describe_weights(trainer.model)
    try:
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                if parameter.requires_grad:  # others may be left out of a save on purpose
                    parameter.zero_()
        trainer._load_from_checkpoint(checkpoint)
    except Exception as error:
        return failed(
            "saving", f"the weights cannot be loaded again: {describe_failure(error)}", ["the model"]
        )
    changed = find_changed(before, describe_weights(trainer.model))
    if not changed:
        return None
    text = f"these weights do not come back as they were saved: {advice.join_names(changed)}"
    return failed("saving", text, ["state_dict() or save_pretrained() of the model"])


def describe_weights(model: nn.Module) -> dict[str, int]:
    """Checksums of what `state_dict()` gives, and of trained weights that an override leaves out of it."""
    trained = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    return describe_arrays({**trained, **model.state_dict()})


def compare_optimizer(trainer: Training, checkpoint: str) -> Finding | None:
    """Load optimizer and schedule, and compare."""
    before = describe_states(trainer)
    try:
        trainer._load_optimizer_and_scheduler(checkpoint)
        trainer._load_scaler(checkpoint)
    except Exception as error:
        text = f"optimizer and schedule cannot be loaded again: {describe_failure(error)}"
        return failed("saving", text, ["optim", "lr_scheduler_type", "optimizers", "save_only_model=True"])
    changed = find_changed(before, describe_states(trainer))
    if not changed:
        return None
    text = f"optimizer and schedule do not come back as they were saved: {advice.join_names(changed)}"
    return failed("saving", text, ["optim", "lr_scheduler_type", "optimizers"])


def describe_states(trainer: Training) -> dict[str, int]:
    """Checksums of optimizer and schedule."""
    states = {"optimizer": trainer.optimizer.state_dict(), "schedule": trainer.lr_scheduler.state_dict()}
    return describe_arrays(states)


def compare_generators(trainer: Training, checkpoint: str, before: dict[str, int]) -> Finding | None:
    """Draw numbers, load the random states, and compare with those before the save."""
    random.random(), np.random.random(), torch.rand(())
    try:
        trainer._load_rng_state(checkpoint)
    except Exception as error:
        return failed("saving", f"the random states cannot be loaded again: {describe_failure(error)}")
    changed = find_changed(before, describe_generators())
    if not changed:
        return None
    names = sorted({re.split(r"[.\[]", path)[0] for path in changed})
    text = f"random states do not come back as they were saved: {advice.join_names(names)}"
    return warned(
        "saving", f"{text}; a resumed run draws other numbers", ["_save_checkpoint of your Trainer"]
    )


def describe_generators() -> dict[str, int]:
    """Checksums of the random states."""
    return describe_arrays(rng.to_plain(rng.capture()))


def compare_callbacks(trainer: Training, checkpoint: str) -> Finding | None:
    """Give the callbacks the state that was saved, and compare with what they say then."""
    callbacks = trainer.callback_handler.callbacks
    before = read_states(callbacks)
    try:
        trainer.state = TrainerState.load_from_json(Path(checkpoint, TRAINER_STATE_NAME))
        trainer._load_callback_state()
        after = read_states(trainer.callback_handler.callbacks)
    except Exception as error:
        text = f"the states of callbacks cannot be loaded again: {describe_failure(error)}"
        return failed("saving", text, ["state() of the callback"])
    changed = find_changed(before, after)
    if not changed:
        return None
    text = f"these callbacks have another state when theirs is loaded again: {advice.join_names(changed)}"
    return warned("saving", text, ['state() of the callback: put what it counts into "attributes"'])


def read_states(callbacks: list[Any]) -> dict[str, Any]:
    """The state of each callback that has one, as a checkpoint holds it."""
    named = [one for one in callbacks if is_exportable(one)]
    return {
        f"{type(one).__name__}[{number}]": json.dumps(one.state(), sort_keys=True, default=str)
        for number, one in enumerate(named)
    }


def find_changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names whose values are not the same, in order."""
    names = dict.fromkeys([*before, *after])
    return sorted(name for name in names if before.get(name) != after.get(name))
