"""Tests of the events themselves."""

import inspect

import transformers

from footplate import callbacks
from footplate.callbacks.base import TrainerCallback
from footplate.state import TrainerControl, TrainerState

EVENTS = [
    *("on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_substep_end"),
    *("on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_epoch_end", "on_log", "on_evaluate"),
    *("on_predict", "on_prediction_step", "on_save", "on_push_begin", "on_train_end"),
]


def test_all_sixteen_events_exist_and_three_of_our_own():
    events = [name for name in vars(TrainerCallback) if name.startswith("on_")]
    assert sorted(events) == sorted([*EVENTS, "on_round_end", "on_seal", "on_samples", "on_note"])


def test_every_event_has_the_parameters_of_the_original():
    for event in EVENTS:
        ours = inspect.signature(getattr(TrainerCallback, event)).parameters
        theirs = inspect.signature(getattr(transformers.TrainerCallback, event)).parameters
        assert list(ours) == list(theirs), event


def test_an_event_does_nothing_until_it_is_defined():
    control = TrainerControl()
    for event in EVENTS:
        metrics = {"metrics": {}} if event == "on_predict" else {}
        assert getattr(TrainerCallback(), event)(None, TrainerState(), control, **metrics) is None
    assert control == TrainerControl()


def test_the_docstring_names_every_event_and_keyword():
    keywords = ["model", "processing_class", "tokenizer", "optimizer", "lr_scheduler", "train_dataloader"]
    keywords += [
        "eval_dataloader",
        "trainer",
        "predictor",
        "inputs",
        "outputs",
        "loss",
        "metrics",
        "is_round_end",
        "is_best",
        "best_metric",
        "on_round_end",
        "logs",
    ]
    assert TrainerCallback.__doc__ is not None
    assert [name for name in EVENTS + keywords if name not in TrainerCallback.__doc__] == []


def test_no_callback_wants_step_data_unless_it_says_so():
    own = [getattr(callbacks, name) for name in callbacks.__all__ if name.endswith("Callback")]
    assert [cls for cls in own if cls.wants_step_data] == []  # SampleCallback decides for each object
    assert len(own) == 7
