"""Tests of early stopping, against the original over random sequences of metrics."""

import json
import logging
import math
import random
from types import SimpleNamespace

import pytest
import transformers

import footplate
from footplate.callbacks.early_stopping import EarlyStoppingCallback
from footplate.callbacks.flow import DefaultFlowCallback
from footplate.callbacks.handler import CallbackHandler
from footplate.state import TrainerControl, TrainerState


def settings(**changes):
    values = {"metric_for_best_model": "loss", "greater_is_better": False, "eval_strategy": "steps"}
    return SimpleNamespace(**{**values, "load_best_model_at_end": True, **changes})


def note_best(args, state, value):
    """What the trainers do with an evaluated metric: the best of both libraries is a strict improvement."""
    worst = -math.inf if args.greater_is_better else math.inf
    best = worst if state.best_metric is None else state.best_metric
    is_better = value > best if args.greater_is_better else value < best
    state.best_metric = value if is_better else best


def find_stop(library, args, values, patience, threshold, restart_after=None):
    """The round at which it stops, fed as the trainers do: the best is noted after the event."""
    callback, state = library.EarlyStoppingCallback(patience, threshold), TrainerState(max_steps=100)
    callback.on_train_begin(args, state, TrainerControl())
    for step, value in enumerate(values, start=1):
        control, state.global_step = TrainerControl(), step
        callback.on_evaluate(args, state, control, metrics={f"eval_{args.metric_for_best_model}": value})
        note_best(args, state, value)
        if control.should_training_stop:
            return step
        if step == restart_after:
            callback = type(callback).from_state(json.loads(json.dumps(callback.state())))
            callback.on_train_begin(args, state, TrainerControl())
    return None


def random_cases(count):
    generator = random.Random(11)
    for _ in range(count):
        values = [generator.choice([generator.random(), 0.5, 1, math.nan, math.inf]) for _ in range(12)]
        values = [round(value, 1) if math.isfinite(value) else value for value in values]
        args = settings(greater_is_better=generator.random() < 0.5)
        yield args, values, generator.randint(1, 4), generator.choice([0.0, 0.1, 0.3])


def test_it_stops_at_the_round_where_the_original_stops():
    stops = []
    for case in random_cases(2000):
        stops.append(find_stop(transformers, *case))
        assert find_stop(footplate, *case) == stops[-1], case
    assert {None, 2, 5, 10} < set(stops)  # the cases are not all alike


def test_a_restart_anywhere_does_not_change_where_it_stops():
    for index, case in enumerate(random_cases(500)):
        restarted = find_stop(footplate, *case, restart_after=1 + index % 11)
        assert restarted == find_stop(footplate, *case), case


def test_its_state_travels_in_the_trainer_state_file_and_loads_into_the_original(tmp_path):
    callback, args = EarlyStoppingCallback(3, 0.1), settings()
    state = TrainerState(best_metric=1.0)
    callback.on_train_begin(args, TrainerState(), TrainerControl())
    for loss in (2.0, 2.0):
        callback.on_evaluate(args, state, TrainerControl(), metrics={"eval_loss": loss})
    TrainerState(stateful_callbacks=[callback]).save_to_json(tmp_path / "state.json")
    saved = TrainerState.load_from_json(tmp_path / "state.json").stateful_callbacks["EarlyStoppingCallback"]
    assert saved["args"] == {"early_stopping_patience": 3, "early_stopping_threshold": 0.1}
    assert saved["attributes"] == {"early_stopping_patience_counter": 2}
    assert EarlyStoppingCallback.from_state(saved).state() == callback.state()
    assert transformers.EarlyStoppingCallback.from_state(saved).early_stopping_patience_counter == 2


def test_a_state_of_the_original_goes_on_from_the_best_metric_of_the_run():
    theirs = transformers.EarlyStoppingCallback(2)
    theirs.early_stopping_patience_counter = 1
    callback, state = EarlyStoppingCallback.from_state(theirs.state()), TrainerState(best_metric=0.5)
    state.global_step = 5
    callback.on_train_begin(settings(), state, TrainerControl())
    control = TrainerControl()
    callback.on_evaluate(settings(), state, control, metrics={"eval_loss": 0.7})
    assert control.should_training_stop


def test_a_second_run_starts_anew():
    callback, args = EarlyStoppingCallback(1), settings()
    for _ in range(2):
        callback.on_train_begin(args, TrainerState(), TrainerControl())
        first, second = TrainerControl(), TrainerControl()
        callback.on_evaluate(args, TrainerState(), first, metrics={"eval_loss": 1.0})
        callback.on_evaluate(args, TrainerState(best_metric=1.0), second, metrics={"eval_loss": 1.0})
        assert (first.should_training_stop, second.should_training_stop) == (False, True)


@pytest.mark.parametrize("patience", [2, 3])
def test_a_resumed_run_that_had_to_stop_stops_at_once_unless_it_may_be_more_patient(patience, caplog):
    callback, control = EarlyStoppingCallback(patience), TrainerControl()
    callback.early_stopping_patience_counter = 2
    callback.on_train_begin(settings(), TrainerState(global_step=5, max_steps=9), control)
    assert control.should_training_stop == (patience == 2)
    assert ("at step 5, after 2 evaluation(s)" in caplog.text) == (patience == 2)


def test_a_rule_of_a_subclass_decides():
    class Impatient(EarlyStoppingCallback):
        def check_metric_value(self, args, state, control, metric_value):
            self.early_stopping_patience_counter = 9 if metric_value > 3 else 0

    callback, stops = Impatient(5), []
    for loss in (2.0, 4.0):
        control = TrainerControl()
        callback.on_evaluate(settings(), TrainerState(), control, metrics={"eval_loss": loss})
        stops.append(control.should_training_stop)
    assert stops == [False, True]


@pytest.mark.parametrize("name", ["b_f1", "eval_b_f1", "loss"])
def test_several_eval_sets_count_as_one_round(name):
    callback, state = EarlyStoppingCallback(2), TrainerState()
    handler = CallbackHandler([DefaultFlowCallback, callback], None, None, None, None)
    args = settings(metric_for_best_model=name, greater_is_better=True)
    control = handler.on_train_begin(args, state, TrainerControl())
    for step, f1 in enumerate([0.5, 0.4, 0.3], start=1):
        parts = [{"eval_a_f1": 0.1}, {"eval_b_f1": f1}, {"eval_c_f1": 0.1}]
        for part in parts:
            control = handler.on_evaluate(args, state, control, part, is_round_end=False)
        merged = {**parts[0], **parts[1], **parts[2], "eval_loss": f1}
        control = handler.on_round_end(args, state, control, metrics=merged)
        state.best_metric = 0.5
        assert callback.early_stopping_patience_counter == step - 1
        assert control.should_training_stop == (step == 3)


def test_a_metric_that_does_not_show_is_named_once_with_what_was_seen(caplog):
    callback, args = EarlyStoppingCallback(), settings(metric_for_best_model="f1")
    state, control = TrainerState(), TrainerControl()
    callback.on_evaluate(args, state, control, metrics={"eval_a_loss": 1.0}, is_round_end=False)
    assert caplog.text == ""
    for _ in range(2):
        callback.on_round_end(args, state, control, metrics={"eval_b_loss": 1, "eval_a_loss": 1})
    (record,) = caplog.records
    assert "'eval_f1'" in record.getMessage()
    assert "['eval_a_loss', 'eval_b_loss']" in record.getMessage()
    assert not control.should_training_stop


def test_an_evaluation_under_another_prefix_is_not_its_business():
    callback, control = EarlyStoppingCallback(), TrainerControl()
    for step in (1, 2):
        state = TrainerState(global_step=step)
        callback.on_evaluate(settings(), state, control, metrics={"train_loss": 1.0}, is_round_end=True)
    assert callback.state() == EarlyStoppingCallback().state()
    assert not control.should_training_stop


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"metric_for_best_model": None}, "metric_for_best_model="),
        ({"eval_strategy": "no"}, "Set eval_strategy"),
    ],
)
def test_settings_it_cannot_work_with_are_refused_when_training_begins(changes, setting):
    with pytest.raises(ValueError, match=setting):
        EarlyStoppingCallback().on_train_begin(settings(**changes), TrainerState(), TrainerControl())


def test_not_loading_the_best_model_is_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        EarlyStoppingCallback().on_train_begin(settings(), TrainerState(), TrainerControl())
        assert caplog.text == ""
        args = settings(load_best_model_at_end=False)
        EarlyStoppingCallback().on_train_begin(args, TrainerState(), TrainerControl())
    assert "load_best_model_at_end=True" in caplog.text
