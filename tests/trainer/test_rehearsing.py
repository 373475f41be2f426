"""One evaluation batch is tried before step 1: what fails is shown, and the run is the same as without."""

from __future__ import annotations

import logging
import socket

import pytest
import torch
import transformers
from torch.utils.data import IterableDataset

import footplate
import tiny
from footplate import Trainer, TrainerCallback
from footplate.state import ExportableState

DATA = tiny.regression_data(16)
EVERY_STEP = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}


def build(folder, compute_metrics=None, trainer=Trainer, eval_dataset=DATA, callbacks=(), **settings):
    arguments = tiny.arguments(folder, **{**EVERY_STEP, **settings})
    given = {"train_dataset": DATA, "eval_dataset": eval_dataset, "compute_metrics": compute_metrics}
    return trainer(tiny.Regression(), arguments, callbacks=list(callbacks), **given)


def broken(prediction):
    return {"f1": {}["missing"]}


def test_metrics_that_fail_are_shown_before_the_first_update(tmp_path, caplog):
    class Stops(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            assert "compute_metrics was tried" in caplog.text
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, broken, callbacks=[Stops()]).train()
    (record,) = [record for record in caplog.records if "compute_metrics was tried" in record.getMessage()]
    assert record.levelno == logging.WARNING
    line = broken.__code__.co_firstlineno + 1
    for part in ("KeyError: 'missing'", f"{__file__}, line {line}, in broken", '{}["missing"]', "goes on"):
        assert part in record.getMessage()


def test_training_goes_on_where_one_batch_is_too_few(tmp_path, caplog):
    def needs_all(prediction):
        assert len(prediction.predictions) == len(DATA)
        return {"f1": 1.0}

    assert build(tmp_path, needs_all).train().global_step == 4
    assert "compute_metrics was tried" in caplog.text
    assert "AssertionError" in caplog.text


def test_an_evaluation_that_fails_otherwise_is_shown_too(tmp_path, caplog):
    """As with transformers, such a run trains until its first evaluation."""
    rows = [{**row, "x": torch.tensor([1.0, 2.0])[: 1 + number % 2]} for number, row in enumerate(DATA)]
    trainer = build(tmp_path, lambda prediction: {}, eval_dataset=rows)
    with pytest.raises(ValueError, match="different shapes"):
        trainer.train()
    assert trainer.state.global_step == 2
    assert "the first batch of the evaluation set, and evaluation failed: ValueError" in caplog.text


@pytest.mark.parametrize("best", [None, "score"])
def test_a_function_that_counts_its_calls_sees_the_evaluations_alone(tmp_path, best):
    seen = []

    def counts(prediction):
        seen.append(len(prediction.predictions))
        counts.calls = getattr(counts, "calls", 0) + 1
        return {"score": float(len(seen))}

    trainer = build(tmp_path, counts, metric_for_best_model=best)
    trainer.train()
    assert seen == [16, 16]
    assert counts.calls == 2
    assert [entry["eval_score"] for entry in trainer.state.log_history if "eval_score" in entry] == [1.0, 2.0]


class Accuracy:
    """A metric object that is never reset, so that it would keep a trial."""

    def __init__(self):
        self.batches = []

    def update(self, predictions, labels):
        self.batches.append(len(predictions))

    def compute(self):
        return {"rows": float(sum(self.batches))}


def test_a_metric_object_sees_the_evaluations_alone(tmp_path):
    metric = Accuracy()
    trainer = build(tmp_path, metric, metric_for_best_model="rows")
    trainer.train()
    assert sum(metric.batches) == 32


JOINTS = ["log", "evaluate", "evaluation_loop", "prediction_step", "compute_loss", "get_eval_dataloader"]


@pytest.mark.parametrize("best", [None, "f1"])
@pytest.mark.parametrize("joint", JOINTS)
def test_code_of_a_subclass_is_not_run_for_a_trial(tmp_path, joint, best):
    """As with transformers: as many calls as there are batches."""
    counted = {}
    for library in (footplate, transformers):

        def spy(self, *args, _library=library, **kwargs):
            counted[_library.__name__] = counted.get(_library.__name__, 0) + 1
            return getattr(_library.Trainer, joint)(self, *args, **kwargs)

        counting = type("Counting", (library.Trainer,), {joint: spy})
        counting(
            tiny.Regression(),
            tiny.arguments(tmp_path, library, metric_for_best_model=best, **EVERY_STEP),
            train_dataset=DATA,
            eval_dataset=DATA,
            compute_metrics=lambda prediction: {"f1": 1.0},
        ).train()
    assert counted["footplate"] == counted["transformers"]


@pytest.mark.parametrize("place", ["a method", "set on the instance"])
def test_metrics_of_a_subclass_and_joints_of_an_instance_see_the_evaluations_alone(tmp_path, place):
    class Measuring(Trainer):
        num_rows = 0

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            if place == "a method":
                self.compute_metrics = self.measure

        def measure(self, prediction):
            self.num_rows += len(prediction.predictions)
            return {"rows": self.num_rows}

    trainer = build(tmp_path, lambda prediction: {}, trainer=Measuring, metric_for_best_model="loss")
    if place == "set on the instance":
        step = trainer.prediction_step

        def count(model, inputs, *args, **kwargs):
            trainer.num_rows += len(inputs["x"])
            return step(model, inputs, *args, **kwargs)

        trainer.prediction_step = count
    trainer.train()
    assert trainer.num_rows == 32


def test_a_metric_that_a_subclass_adds_is_not_refused(tmp_path):
    class Adding(Trainer):
        def evaluate(self, *args, **kwargs):
            return {**super().evaluate(*args, **kwargs), "eval_own": 1.0}

    trainer = build(tmp_path, lambda prediction: {}, trainer=Adding, metric_for_best_model="own")
    trainer.train()
    assert trainer.state.best_metric == 1.0


class AddsOnLog(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "eval_loss" in logs:
            logs["eval_added"] = 1.0 + state.global_step


class AddsInLog(Trainer):
    def log(self, logs, *args, **kwargs):
        if "eval_loss" in logs:
            logs["eval_added"] = 1.0 + self.state.global_step
        super().log(logs, *args, **kwargs)


@pytest.mark.parametrize("adds", ["a callback", "an override"])
def test_a_metric_that_a_callback_or_log_adds_may_decide_on_the_best(tmp_path, adds, caplog):
    given = {"callbacks": [AddsOnLog()]} if adds == "a callback" else {"trainer": AddsInLog}
    trainer = build(tmp_path, metric_for_best_model="added", **given)
    trainer.train()
    assert (trainer.state.best_metric, trainer.state.best_global_step) == (5.0, 4)
    assert ("metric_for_best_model='added' is not" in caplog.text) == (adds == "a callback")


def test_a_stream_is_not_read_for_a_trial(tmp_path):
    class Once(IterableDataset):
        started = 0

        def __iter__(self):
            self.started += 1
            return iter(DATA)

    stream = Once()
    trainer = build(tmp_path, lambda prediction: {"f1": 1.0}, eval_dataset=stream, metric_for_best_model="f1")
    trainer.train()
    assert stream.started == 2


def test_the_run_is_the_same_with_a_trial_and_without(tmp_path):
    """A model with dropout and shuffled data: losses to the last bit."""
    losses = []
    for compute_metrics in (None, lambda prediction: {"f1": 1.0}):
        trainer = Trainer(
            tiny.bert_classifier(),
            tiny.arguments(tmp_path, logging_steps=1, **EVERY_STEP),
            train_dataset=tiny.classification_data(40),
            eval_dataset=tiny.classification_data(9),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert losses[0] == losses[1]


# ---- disk and states, warned of before step 1 ----

SAVES = {"save_strategy": "steps", "save_steps": 1}


class StopsAtOnce(TrainerCallback):
    """Ends a run before its first update."""

    def on_step_begin(self, args, state, control, **kwargs):
        raise KeyboardInterrupt


class Unwritable(TrainerCallback, ExportableState):
    calls = 0

    def state(self):
        type(self).calls += 1
        return {"args": {}, "attributes": {"function": print}}


def test_a_disk_that_is_too_small_is_warned_of_before_the_first_update(tmp_path, caplog):
    trainer = build(tmp_path, callbacks=[StopsAtOnce()], **{**SAVES, "max_steps": 100_000_000})
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert "The disk is too small: the run will keep up to 100000000 checkpoints" in caplog.text
    assert "To fix this: save_total_limit=" in caplog.text


class OwnState(tiny.Regression):
    """Gives its state by a method that takes no arguments, as many projects write it."""

    num_calls = 0

    def state_dict(self):
        type(self).num_calls += 1
        return {"offset": self.offset.detach().clone()}


def test_the_state_of_a_model_is_not_asked_for_to_know_its_size(tmp_path):
    model = OwnState()
    trainer = Trainer(model, tiny.arguments(tmp_path, **{**SAVES, "max_steps": 2}), train_dataset=DATA)
    trainer.add_callback(StopsAtOnce())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert model.num_calls == 0


@pytest.mark.parametrize(
    ("limit", "num_free"),
    [(None, 5), (2, 1)],  # 4 of 8 checkpoints are written after the resume; with a limit, one more than now
)
@pytest.mark.parametrize("rehearsal", ["quick", "full"])
def test_a_resume_needs_room_for_what_is_not_there_yet(
    tmp_path, monkeypatch, caplog, limit, num_free, rehearsal
):
    settings = {**SAVES, "save_total_limit": limit, "eval_strategy": "no", "rehearsal": rehearsal}
    build(tmp_path, **{**settings, "max_steps": 4}).train()
    monkeypatch.setattr("footplate.checkpoint.planned.find_free", lambda folder: num_free * 31_000)
    caplog.clear()
    assert build(tmp_path, **{**settings, "max_steps": 8}).train("auto").global_step == 8
    assert "The disk is too small" not in caplog.text
    assert ("WARNING  disk: " in caplog.text) == (rehearsal == "full")
    with pytest.raises(KeyboardInterrupt):  # more updates than there is room for
        build(tmp_path, callbacks=[StopsAtOnce()], **{**settings, "max_steps": 16}).train("auto")
    assert ("The disk is too small" in caplog.text) == (limit is None)


def test_a_disk_that_cannot_be_asked_stops_nothing(tmp_path, monkeypatch, caplog):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    trainer = build(tmp_path, **SAVES)
    monkeypatch.setattr("footplate.checkpoint.planned.shutil.disk_usage", refuse)
    (finding,) = trainer.check().about("disk")
    assert finding.outcome == "not tried"
    assert "Permission denied" in finding.text
    trainer.add_callback(StopsAtOnce())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert "The disk is too small" not in caplog.text


def test_a_state_that_no_checkpoint_can_hold_is_warned_of_without_asking_for_it_again(tmp_path, caplog):
    counts = []
    for rehearsal in ("off", "quick"):
        Unwritable.calls = 0
        callbacks = [Unwritable(), StopsAtOnce()]
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path, callbacks=callbacks, rehearsal=rehearsal, **SAVES).train()
        counts.append(Unwritable.calls)
        assert ("The state of the callback Unwritable cannot be saved" in caplog.text) == (
            rehearsal == "quick"
        )
    assert counts[0] == counts[1]


def test_all_is_silent_where_all_is_well(tmp_path, caplog):
    build(tmp_path, lambda prediction: {"f1": 1.0}, metric_for_best_model="f1", **SAVES).train()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("off", ["off", False])
def test_turned_off_nothing_is_tried(tmp_path, caplog, off):
    trainer = build(tmp_path, broken, callbacks=[StopsAtOnce()], rehearsal=off, metric_for_best_model="f1")
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert "was tried" not in caplog.text


def test_the_full_rehearsal_refuses_to_begin_a_run_that_will_fail(tmp_path):
    trainer = build(tmp_path, broken, rehearsal="full")
    with pytest.raises(
        ValueError, match=r"(?s)before the first update: evaluation\..*KeyError: 'missing'.*'off'"
    ):
        trainer.train()
    assert trainer.state.global_step == 0
    assert list(tmp_path.iterdir()) == []


def test_the_full_rehearsal_lets_a_good_run_begin_and_changes_nothing(tmp_path, caplog):
    losses = []
    caplog.set_level(logging.INFO)
    for rehearsal in ("off", "full"):
        trainer = build(
            tmp_path / rehearsal, lambda prediction: {"f1": 1.0}, rehearsal=rehearsal, logging_steps=1
        )
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert losses[0] == losses[1]
    assert "The rehearsal:\nrehearsed 3 passed" in caplog.text


def test_the_full_rehearsal_lets_a_run_begin_whose_tracker_does_not_answer(tmp_path, monkeypatch, caplog):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TRACKIO_SERVER_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        trainer = build(tmp_path, rehearsal="full", callbacks=[StopsAtOnce()])
        trainer.args.report_to = ["trackio"]
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    (record,) = [record for record in caplog.records if "The rehearsal:" in record.getMessage()]
    assert (record.levelno, "FAILED  trackers" in record.getMessage()) == (logging.WARNING, True)


def test_the_full_rehearsal_warns_where_it_could_try_nothing(tmp_path, caplog):
    class Once(IterableDataset):
        def __init__(self):
            self.rows = iter(tiny.regression_data(64))

        def __iter__(self):
            return self.rows

    arguments = tiny.arguments(tmp_path, max_steps=2, rehearsal="full")
    assert Trainer(tiny.Regression(), arguments, train_dataset=Once()).train().global_step == 2
    (record,) = [record for record in caplog.records if "The rehearsal:" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert "NOT TRIED  update, evaluation, saving" in record.getMessage()
