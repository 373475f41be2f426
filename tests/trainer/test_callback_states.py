"""The states of callbacks in a checkpoint, and who gets them back."""

from __future__ import annotations

from typing import Any

import pytest
import transformers
from transformers.trainer_callback import ExportableState as OriginalExportableState

import footplate
import tiny
from footplate import EarlyStoppingCallback, ExportableState, TrainerCallback

DATA = tiny.regression_data(32)


class Counter(TrainerCallback, ExportableState):
    def __init__(self, stride: int = 1) -> None:
        self.stride, self.count = stride, 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.count += self.stride

    def state(self) -> dict[str, Any]:
        return {"args": {"stride": self.stride}, "attributes": {"count": self.count}}


class Theirs(transformers.TrainerCallback, OriginalExportableState):  # type: ignore[misc]
    """Written for the original."""

    def __init__(self, stride: int = 1) -> None:
        self.stride, self.count = stride, 0

    on_step_end, state = Counter.on_step_end, Counter.state


def build(folder: Any, *callbacks: Any, library: Any = footplate, **settings: Any) -> Any:
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, **settings}
    options = {"callbacks": list(callbacks)}
    return tiny.build_trainer(folder, tiny.Regression(), DATA, DATA[:8], library, options, **settings)


def resume(folder: Any, *callbacks: Any, library: Any = footplate, **settings: Any) -> Any:
    trainer = build(folder, *callbacks, library=library, **settings)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    return trainer


def find(trainer: Any, cls: type) -> list[Any]:
    return [callback for callback in trainer.callback_handler.callbacks if type(callback) is cls]


@pytest.mark.parametrize("kind", [Counter, Theirs])
def test_the_count_of_a_callback_goes_on(tmp_path, kind):
    build(tmp_path, kind()).train()
    counter = kind()
    resume(tmp_path, counter)
    assert counter.count == 4


@pytest.mark.parametrize("library", [footplate, transformers], ids=["footplate", "transformers"])
def test_restore_callback_states_makes_callbacks_with_their_saved_arguments(tmp_path, library):
    build(tmp_path, Theirs(5), library=library).train()
    given = Theirs(1)
    trainer = resume(tmp_path, given, library=library, restore_callback_states_from_checkpoint=True)
    (found,) = find(trainer, Theirs)
    assert found is not given
    assert (found.stride, found.count) == (5, 20)
    assert given.count == 0


def test_by_default_the_arguments_of_now_count_and_the_attributes_come_back(tmp_path):
    build(tmp_path, Counter(5)).train()
    counter = Counter(1)
    resume(tmp_path, counter)
    assert (counter.stride, counter.count) == (1, 12)


@pytest.mark.parametrize("restores", [False, True])
def test_several_of_one_class_are_kept_apart(tmp_path, restores):
    build(tmp_path, Counter(1), Counter(10)).train()
    trainer = resume(tmp_path, Counter(1), Counter(10), restore_callback_states_from_checkpoint=restores)
    assert [counter.count for counter in find(trainer, Counter)] == [4, 40]


def test_several_of_one_class_are_told_apart_by_their_arguments(tmp_path):
    build(tmp_path, Counter(1), Counter(10)).train()
    trainer = resume(tmp_path, Counter(10), Counter(1))
    assert [counter.count for counter in find(trainer, Counter)] == [40, 4]


def test_a_callback_that_is_missing_on_resume_is_named_once(tmp_path, caplog):
    build(tmp_path, Counter(1), Counter(10), Theirs()).train()
    assert "does not have" not in caplog.text
    resume(tmp_path, Counter(10))
    (record,) = [record for record in caplog.records if "does not have" in record.getMessage()]
    assert "this Trainer does not have: Counter, Theirs." in record.getMessage()


def test_nothing_is_missing_where_all_are_there(tmp_path, caplog):
    build(tmp_path, Counter()).train()
    resume(tmp_path, Counter())
    assert "does not have" not in caplog.text


def test_the_original_resumes_the_state_of_early_stopping_from_our_checkpoint(tmp_path):
    settings = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "loss"}
    settings = {**settings, "greater_is_better": True}  # so that every evaluation is worse
    build(tmp_path, EarlyStoppingCallback(9), **settings).train()
    theirs = resume(
        tmp_path,
        transformers.EarlyStoppingCallback(3),
        library=transformers,
        restore_callback_states_from_checkpoint=True,
        **settings,
    )
    (found,) = find(theirs, transformers.EarlyStoppingCallback)
    assert found.early_stopping_patience == 9
    assert found.early_stopping_patience_counter == 3
