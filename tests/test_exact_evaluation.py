"""An evaluation that is interrupted, and a run that was about to stop, go on as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import tiny
from augmented import AugmentedRows
from footplate import EarlyStoppingCallback, ExportableState, Trainer, TrainerCallback

NUM_ROWS, MAX_STEPS = 29, 14


class Noisy(nn.Module):
    """A small classifier with dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Interrupt(TrainerCallback):
    """Sends this process SIGTERM, or raises, when an event comes for the n-th time."""

    def __init__(self, event: str, count: int, raises: bool = False) -> None:
        self.left, self.raises = count, raises
        setattr(self, event, self._count)

    def _count(self, *args: Any, **kwargs: Any) -> None:
        self.left -= 1
        if self.left == 0 and self.raises:
            raise Planted
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)


class Planted(RuntimeError):
    """What a test raises."""


class Asking(TrainerCallback):
    """Asks for an evaluation after some updates, and at the end of each epoch."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_evaluate |= state.global_step in (2, 7)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_evaluate = True


class Counting(TrainerCallback, ExportableState):
    """Counts what it hears of evaluations; the count is saved, and logged so that a test sees it."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        self.heard.append(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        state.log_history[-1]["heard"] = list(self.heard)

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"heard": self.heard}}


class EndsEpoch(TrainerCallback):
    """Ends the first epoch after three updates."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_epoch_stop |= state.global_step == 3


THREE_SETS = ("near", "far", "odd")


class Case(NamedTuple):
    several: bool = False
    callbacks: tuple[type[TrainerCallback], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    patience: int = 0
    save_steps: int = 1000


STEPS = (("eval_strategy", "steps"), ("eval_steps", 3))
EPOCHS = (("eval_strategy", "epoch"), ("logging_strategy", "epoch"))
STOPS = (("metric_for_best_model", "far_score"), ("greater_is_better", True))
CASES = {
    "one set": Case(settings=STEPS),
    "several sets": Case(several=True, settings=STEPS),
    "before the first update": Case(several=True, settings=(*STEPS, ("eval_on_start", True))),
    "asked for by a callback": Case(several=True, callbacks=(Asking,)),
    "at the end of an epoch": Case(several=True, settings=EPOCHS),
    "an epoch that a callback ends": Case(callbacks=(EndsEpoch,), settings=EPOCHS),
    "early stopping": Case(several=True, settings=(*STEPS, *STOPS), patience=2),
    "early stopping by epochs": Case(several=True, settings=(*EPOCHS, *STOPS), patience=1),
}


def build(folder: str | Path, case: Case, *callbacks: TrainerCallback) -> Trainer:
    data = AugmentedRows(7)
    arguments = tiny.arguments(
        folder,
        **{
            "max_steps": MAX_STEPS,
            "per_device_train_batch_size": 3,
            "per_device_eval_batch_size": 4,
            "gradient_accumulation_steps": 2,
            "learning_rate": 0.01,
            "logging_steps": 2,
            "report": False,  # its thread would write into a folder that is being removed
            "save_strategy": "steps",
            "save_steps": case.save_steps,
            **dict(case.settings),
        },
    )
    stopper = [EarlyStoppingCallback(case.patience)] if case.patience else []
    trainer: Any = Trainer(
        Noisy(),
        arguments,
        train_dataset=AugmentedRows(NUM_ROWS),
        eval_dataset=dict.fromkeys(THREE_SETS, data) if case.several else data,
        compute_metrics=lambda prediction: {"score": -float(trainer.state.global_step)},  # ever worse
        callbacks=[Counting(), *stopper, *(callback() for callback in case.callbacks), *callbacks],
    )
    return trainer


def outcome(trainer: Trainer) -> tuple[str, dict[str, Any]]:
    timed = ("runtime", "per_second")
    history = [
        dict(sorted(item for item in entry.items() if not item[0].endswith(timed)))
        for entry in trainer.state.log_history
    ]
    states = trainer.optimizer.state_dict()["state"]
    tensors = {f"{index}.{name}": value for index, state in states.items() for name, value in state.items()}
    return repr(history), {**trainer.model.state_dict(), **tensors}


def run_straight(case: Case) -> tuple[int, str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        counter = Interrupt("on_prediction_step", 10**9)
        trainer = build(folder, case, counter)
        trainer.train()
        return 10**9 - counter.left, *outcome(trainer)


straight = cache(run_straight)


def assert_exact(case: Case, *interrupts: TrainerCallback) -> None:
    """Interrupted once by each, then left to its end: the same run."""
    with tempfile.TemporaryDirectory() as folder:
        for interrupt in interrupts:
            with contextlib.suppress(SystemExit, Planted):
                build(folder, case, interrupt).train(resume_from_checkpoint="auto")
        trainer = build(folder, case)
        trainer.train(resume_from_checkpoint="auto")
        history, tensors = outcome(trainer)
    _, expected_history, expected = straight(case)
    assert history == expected_history
    for name, value in expected.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(tensors[name])), name


def spread(name: str) -> list[int]:
    """Evaluation batches of a case to be interrupted at: in each set of the first round, and in the last."""
    return [1, 4, 5, straight(CASES[name])[0]]


@pytest.mark.parametrize("raises", [False, True], ids=["SIGTERM", "an exception"])
@pytest.mark.parametrize("name", CASES)
def test_an_evaluation_that_is_interrupted_in_any_batch_is_made_once_and_whole(name, raises):
    for count in spread(name):
        assert_exact(CASES[name], Interrupt("on_prediction_step", count, raises))


EVENTS = [
    *(("on_evaluate", raises) for raises in (False, True)),
    *(("on_round_end", raises) for raises in (False, True)),
    # an event that raises half-way is not heard again by those that heard it
    *((event, False) for event in ("on_epoch_end", "on_step_end", "on_log")),
]


@pytest.mark.parametrize(("event", "raises"), EVENTS)
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].several])
def test_a_run_that_is_interrupted_in_any_other_event_goes_on_the_same(name, event, raises):
    assert_exact(CASES[name], Interrupt(event, 2, raises))


@pytest.mark.parametrize("event", ["on_step_end", "on_log", "on_evaluate", "on_epoch_end", "on_train_end"])
@pytest.mark.parametrize("name", ["at the end of an epoch", "an epoch that a callback ends"])
def test_a_run_that_is_interrupted_at_its_very_end_goes_on_the_same(name, event):
    class AtTheEnd(Interrupt):
        def _count(self, args: Any, state: Any, *rest: Any, **kwargs: Any) -> None:
            if state.global_step == MAX_STEPS:
                super()._count()

    assert_exact(CASES[name], AtTheEnd(event, 1))


def test_a_run_that_ended_is_the_same_when_it_is_resumed():
    assert_exact(CASES["at the end of an epoch"], Interrupt("on_epoch_end", 10**9))


def test_an_evaluation_that_is_interrupted_twice_is_made_once():
    for name in ("several sets", "before the first update"):
        again = [Interrupt("on_prediction_step", count) for count in (4, 3, 5)]
        assert_exact(CASES[name], *again)


# ---- about to stop ----


class Killed(BaseException):
    """Ends a run as SIGKILL does: nothing is sealed."""


class Kill(TrainerCallback):
    """Ends the run right after a step, before the epoch ends."""

    def __init__(self, event: str, step: int) -> None:
        def end(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                raise Killed

        setattr(self, event, end)


@pytest.mark.parametrize("event", ["on_save", "on_epoch_end", "on_train_end"])
def test_a_run_that_early_stopping_ended_makes_no_update_after_a_resume(tmp_path, event, caplog):
    case = CASES["early stopping"]._replace(save_steps=1)
    expected = run_straight(case)
    with pytest.raises(Killed):
        build(tmp_path, case, Kill(event, 9)).train()
    trainer = build(tmp_path, case)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 9
    assert outcome(trainer)[0] == expected[1]
    assert "so no update is made" in caplog.text


def test_more_patience_lets_a_run_go_on_that_early_stopping_ended(tmp_path):
    case = CASES["early stopping"]._replace(save_steps=1)
    build(tmp_path, case).train()
    trainer = build(tmp_path, case._replace(patience=3))
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 12


def test_a_run_that_a_callback_without_a_state_ended_goes_on_as_in_the_original(tmp_path):
    """People end a run when the time of their job is over, and resume it in the next one."""

    class TimeIsOver(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= state.global_step == 5

    case = Case(save_steps=5)
    build(tmp_path, case, TimeIsOver()).train()
    trainer = build(tmp_path, case)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == MAX_STEPS


def test_an_interrupted_run_at_its_planned_end_goes_on_if_the_end_moves(tmp_path):
    case = CASES["one set"]
    with contextlib.suppress(SystemExit):
        build(tmp_path, case, Interrupt("on_step_end", MAX_STEPS)).train()
    trainer = build(tmp_path, case)
    trainer.train(extend_to_steps=MAX_STEPS + 3)
    assert trainer.state.global_step == MAX_STEPS + 3


def test_an_evaluation_that_a_callback_makes_itself_is_finished_before_a_signal_ends_the_run(tmp_path):
    class Makes(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, trainer: Any = None, **kw: Any) -> None:
            if state.global_step == 2:
                trainer.evaluate(metric_key_prefix="own")

    case = Case(callbacks=(Makes,), settings=STEPS)
    for count in (1, 2, 3):
        assert_exact(case, Interrupt("on_prediction_step", count))
    assert straight(case)[1].count("own_loss") == 1
