"""Tests of early stopping, against the original over random sequences of metrics."""

import json
import logging
import math
import random
from types import SimpleNamespace

import pytest
import transformers

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


def original_stop(args, values, patience, threshold):
    """The round at which the original stops, fed as its Trainer does: the best is noted after the event."""
    callback, state = transformers.EarlyStoppingCallback(patience, threshold), TrainerState()
    for step, value in enumerate(values, start=1):
        control, state.global_step = TrainerControl(), step
        callback.on_evaluate(args, state, control, {f"eval_{args.metric_for_best_model}": value})
        note_best(args, state, value)
        if control.should_training_stop:
            return step
    return None


def our_stop(args, values, patience, threshold, restart_after=None):
    """The round at which ours stops: the best is noted before the event, and a restart goes through JSON."""
    callback, state = EarlyStoppingCallback(patience, threshold), TrainerState()
    callback.on_train_begin(args, state, TrainerControl())
    for step, value in enumerate(values, start=1):
        control, state.global_step = TrainerControl(), step
        note_best(args, state, value)
        callback.on_evaluate(args, state, control, metrics={f"eval_{args.metric_for_best_model}": value})
        if control.should_training_stop:
            return step
        if step == restart_after:
            callback = EarlyStoppingCallback.from_state(json.loads(json.dumps(callback.state())))
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
        stops.append(original_stop(*case))
        assert our_stop(*case) == stops[-1], case
    assert {None, 2, 5, 10} < set(stops)  # the cases are not all alike


def test_a_restart_anywhere_does_not_change_where_it_stops():
    for index, case in enumerate(random_cases(500)):
        assert our_stop(*case, restart_after=1 + index % 11) == our_stop(*case), case


def test_its_state_travels_in_the_trainer_state_file_and_loads_into_the_original(tmp_path):
    callback, args = EarlyStoppingCallback(3, 0.1), settings()
    callback.on_train_begin(args, TrainerState(), TrainerControl())
    for step, loss in [(1, 1.0), (2, 2.0), (3, 2.0)]:
        callback.on_evaluate(
            args, TrainerState(global_step=step), TrainerControl(), metrics={"eval_loss": loss}
        )
    TrainerState(stateful_callbacks=[callback]).save_to_json(tmp_path / "state.json")
    saved = TrainerState.load_from_json(tmp_path / "state.json").stateful_callbacks["EarlyStoppingCallback"]
    assert saved["args"] == {"early_stopping_patience": 3, "early_stopping_threshold": 0.1}
    assert saved["attributes"] == {
        "early_stopping_patience_counter": 2,
        "best_value": 1.0,
        "last_counted_step": 3,
    }
    assert EarlyStoppingCallback.from_state(saved).state() == callback.state()
    assert transformers.EarlyStoppingCallback.from_state(saved).early_stopping_patience_counter == 2


def test_a_state_of_the_original_goes_on_from_the_best_metric_of_the_run():
    theirs = transformers.EarlyStoppingCallback(2)
    theirs.early_stopping_patience_counter = 1
    callback = EarlyStoppingCallback.from_state(theirs.state())
    callback.on_train_begin(settings(), TrainerState(global_step=5, best_metric=0.5), TrainerControl())
    control = TrainerControl()
    callback.on_evaluate(settings(), TrainerState(global_step=6), control, metrics={"eval_loss": 0.7})
    assert control.should_training_stop


def test_a_second_run_starts_anew():
    callback, args = EarlyStoppingCallback(1), settings()
    for _ in range(2):
        callback.on_train_begin(args, TrainerState(), TrainerControl())
        first, second = TrainerControl(), TrainerControl()
        callback.on_evaluate(args, TrainerState(global_step=1), first, metrics={"eval_loss": 1.0})
        callback.on_evaluate(args, TrainerState(global_step=2), second, metrics={"eval_loss": 1.0})
        assert (first.should_training_stop, second.should_training_stop) == (False, True)


@pytest.mark.parametrize("name", ["b_f1", "eval_b_f1"])
def test_several_eval_sets_count_as_one_round(name):
    callback = EarlyStoppingCallback(2)
    handler = CallbackHandler([DefaultFlowCallback, callback], None, None, None, None)
    args = settings(metric_for_best_model=name, greater_is_better=True)
    control = handler.on_train_begin(args, TrainerState(), TrainerControl())
    for step, f1 in enumerate([0.5, 0.4, 0.3], start=1):
        state = TrainerState(global_step=step)
        parts = [{"eval_a_f1": 0.1}, {"eval_b_f1": f1}, {"eval_c_f1": 0.1}]
        for part in parts:
            control = handler.on_evaluate(args, state, control, part, is_round_end=False)
        control = handler.on_evaluate(args, state, control, parts[0] | parts[1] | parts[2], is_round_end=True)
        assert callback.early_stopping_patience_counter == step - 1
        assert control.should_training_stop == (step == 3)


def test_an_evaluation_before_the_first_step_does_not_count():
    callback, control = EarlyStoppingCallback(1), TrainerControl()
    callback.on_train_begin(settings(), TrainerState(), control)
    for step, loss in [
        (0, 0.1),
        (1, 0.9),
    ]:  # the original, too, has no best metric from an evaluation on start
        state = TrainerState(global_step=step)
        callback.on_evaluate(settings(), state, control, metrics={"eval_loss": loss})
    assert not control.should_training_stop


def test_a_metric_that_never_shows_is_an_error_that_names_what_was_seen():
    callback, args = EarlyStoppingCallback(), settings(metric_for_best_model="f1")
    state, control = TrainerState(global_step=1), TrainerControl()
    callback.on_evaluate(args, state, control, metrics={"eval_a_loss": 1.0}, is_round_end=False)
    with pytest.raises(
        ValueError, match=r"'eval_f1'.*\['eval_a_loss', 'eval_b_loss'\].*metric_for_best_model"
    ):
        callback.on_evaluate(
            args, state, control, metrics={"eval_b_loss": 1, "eval_a_loss": 1}, is_round_end=True
        )


def test_an_evaluation_under_another_prefix_is_not_its_business():
    callback, control = EarlyStoppingCallback(), TrainerControl()
    for step in (1, 2):
        state = TrainerState(global_step=step)
        callback.on_evaluate(settings(), state, control, metrics={"train_loss": 1.0}, is_round_end=True)
    assert callback.state() == EarlyStoppingCallback().state()
    assert not control.should_training_stop


def test_a_metric_that_showed_before_may_miss_a_round():
    callback, state = EarlyStoppingCallback(), TrainerState(global_step=1)
    for metrics in ({"eval_loss": 1.0}, {"eval_other": 1.0}):
        callback.on_evaluate(settings(), state, TrainerControl(), metrics=metrics, is_round_end=True)
    assert callback.early_stopping_patience_counter == 0


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
