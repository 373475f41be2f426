"""One test per rule: what it refuses, what the message names, and what passes."""

from __future__ import annotations

import inspect

import pytest
import torch
import transformers
from torch import nn

import footplate
import tiny
from footplate.training import checks


def build(trial=None):
    return tiny.Regression()


def metrics(prediction):
    return {}


def batch_metrics(prediction, compute_result=False):
    return {}


def frozen():
    return tiny.Regression().requires_grad_(False)


MODEL = tiny.Regression()
OPTIMIZER = torch.optim.SGD(tiny.Regression().parameters(), lr=0.1)

REFUSED = {
    "no model": (checks.check_model_source, (None, None), ValueError, ["neither", "model_init"]),
    "two models": (checks.check_model_source, (tiny.Regression(), build), ValueError, ["both", "model_init"]),
    "a dictionary as arguments": (
        checks.check_is_arguments,
        ({}, footplate.TrainingArguments),
        TypeError,
        ["builtins.dict", "footplate.TrainingArguments"],
    ),
    "a class as model": (checks.check_is_module, (tiny.Regression,), TypeError, ["torch.nn.Module", "type"]),
    "a frozen model": (checks.check_is_trainable, (frozen(),), ValueError, ["Regression", "requires_grad"]),
    "arguments before the model": (
        checks.check_order,
        (footplate.TrainingArguments("x"), tiny.Regression(), None, footplate.TrainingArguments),
        TypeError,
        ["first argument", "`model`", "TrainingArguments", "Trainer(model=..., args=..."],
    ),
    "data as arguments": (
        checks.check_order,
        (tiny.Regression(), tiny.regression_data(4), None, footplate.TrainingArguments),
        TypeError,
        ["second argument", "`args`", "data (list)", "train_dataset=..."],
    ),
    "data as collator": (
        checks.check_order,
        (tiny.Regression(), None, torch.utils.data.TensorDataset(), footplate.TrainingArguments),
        TypeError,
        ["third argument", "`data_collator`", "data (TensorDataset)", "train_dataset=..."],
    ),
    "an optimizer over other parameters": (
        checks.check_optimizer_parameters,
        (OPTIMIZER, tiny.Regression(), False),
        ValueError,
        ["None of the 2 parameters in SGD", "(Regression)", "`optimizers`"],
    ),
    "a loader as data": (
        checks.check_is_dataset,
        (torch.utils.data.DataLoader(tiny.regression_data(4)), "test"),
        TypeError,
        ["The test set is a DataLoader", "loader.dataset", "get_test_dataloader"],
    ),
    "a file as output folder": (
        checks.check_output_dir,
        (__file__,),
        ValueError,
        ["output_dir=", "is a file", "folder"],
    ),
    "an output folder below a file": (
        checks.check_output_dir,
        (f"{__file__}/runs/a",),
        ValueError,
        ["output_dir=", "lies below", "folder"],
    ),
    "two optimizers": (
        checks.check_optimizer_sources,
        ((OPTIMIZER, None), (torch.optim.SGD, {}), None),
        RuntimeError,
        ["optimizers", "optimizer_cls_and_kwargs"],
    ),
    "an optimizer of another model": (
        checks.check_optimizer_sources,
        ((OPTIMIZER, None), None, build),
        RuntimeError,
        ["model_init", "create_optimizer"],
    ),
    "a schedule of another model": (
        checks.check_optimizer_sources,
        ((None, "schedule"), None, build),
        RuntimeError,
        ["model_init"],
    ),
    "a collator that is a list": (checks.check_collator, ([],), TypeError, ["data_collator", "list"]),
    "no batch": (checks.report_no_batch, (0,), ValueError, ["train_dataset"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_by_name(case):
    check, given, error, words = REFUSED[case]
    with pytest.raises(error) as caught:
        check(*given)
    assert all(word in str(caught.value) for word in words)


ALLOWED = {
    "values in order": (
        checks.check_order,
        (MODEL, {"a": 1}, list, footplate.TrainingArguments),  # another rule judges the dictionary
    ),
    "an optimizer over some of the parameters": (
        checks.check_optimizer_parameters,
        (torch.optim.SGD([*MODEL.parameters()][:1], lr=0.1), MODEL, False),
    ),
    "an optimizer that shows no parameters": (checks.check_optimizer_parameters, (object(), MODEL, False)),
    "a folder that is not there": (checks.check_output_dir, ("not/there/yet",)),
    "a dataset": (checks.check_is_dataset, (tiny.regression_data(2), "test")),
    "a model": (checks.check_model_source, (tiny.Regression(), None)),
    "a model_init": (checks.check_model_source, (None, build)),
    "a module": (checks.check_is_module, (nn.Linear(1, 1),)),
    "one weight that learns": (checks.check_is_trainable, (nn.Sequential(frozen(), tiny.Regression()),)),
    "an optimizer": (checks.check_optimizer_sources, ((OPTIMIZER, None), None, None)),
    "an optimizer class with model_init": (
        checks.check_optimizer_sources,
        ((None, None), (torch.optim.SGD, {}), build),
    ),
    "a function as collator": (checks.check_collator, (list,)),
    "an update": (checks.report_no_batch, (1,)),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_can_work_passes(case):
    check, given = ALLOWED[case]
    assert check(*given) is None


def test_arguments_of_transformers_are_told_apart_by_their_module(tmp_path):
    theirs = tiny.arguments(tmp_path, transformers)
    with pytest.raises(TypeError, match=r"transformers\..*TrainingArguments"):
        checks.check_is_arguments(theirs, footplate.TrainingArguments)
    checks.check_is_arguments(tiny.arguments(tmp_path), footplate.TrainingArguments)


@pytest.mark.parametrize(
    ("settings", "data", "words"),
    [
        ({"eval_strategy": "epoch"}, None, ["eval_strategy='epoch'", "eval_dataset"]),
        ({"eval_on_start": True}, None, ["eval_on_start=True", "eval_dataset"]),
        ({"eval_strategy": "epoch"}, [], ["`eval_dataset` is empty"]),
        ({"eval_on_start": True}, {"near": [1], "far": []}, ["eval_dataset['far'] is empty"]),
    ],
)
def test_evaluation_without_data_is_refused(settings, data, words, tmp_path):
    with pytest.raises(ValueError) as caught:
        checks.check_eval_dataset(tiny.arguments(tmp_path, **settings), data)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("data", [[1], {"near": [1]}, iter([])], ids=["one", "several", "stream"])
def test_evaluation_with_data_passes(data, tmp_path):
    checks.check_eval_dataset(tiny.arguments(tmp_path, eval_strategy="epoch", eval_on_start=True), data)
    checks.check_eval_dataset(tiny.arguments(tmp_path), None)


@pytest.mark.parametrize("data", [[], {"near": [1], "far": []}], ids=["one", "several"])
def test_an_empty_set_that_nothing_evaluates_passes(data, tmp_path):
    checks.check_eval_dataset(tiny.arguments(tmp_path), data)


def test_data_without_length_needs_a_number_of_updates(tmp_path):
    stream = iter([1])
    with pytest.raises(ValueError, match=r"list_iterator.*max_steps"):
        checks.check_train_length(tiny.arguments(tmp_path), stream, has_length=False)
    checks.check_train_length(tiny.arguments(tmp_path, max_steps=3), stream, has_length=False)
    checks.check_train_length(tiny.arguments(tmp_path), [1], has_length=True)
    checks.check_train_length(tiny.arguments(tmp_path), None, has_length=False)


def test_metrics_by_batch_must_be_told_of_the_last_one(tmp_path):
    args = tiny.arguments(tmp_path, batch_eval_metrics=True)
    with pytest.raises(ValueError, match=r"compute_result.*batch_eval_metrics=False"):
        checks.check_batch_metrics(args, metrics)
    checks.check_batch_metrics(args, batch_metrics)
    checks.check_batch_metrics(args, None)
    checks.check_batch_metrics(tiny.arguments(tmp_path), metrics)


def test_metrics_of_training_batches_need_a_function(tmp_path):
    args = tiny.arguments(tmp_path, train_metrics_batches=4)
    with pytest.raises(ValueError, match=r"train_metrics_batches=4.*`compute_metrics`.*is None"):
        checks.check_train_metrics(args, None)
    with pytest.raises(ValueError, match=r"train_metrics_batches=4.*an object with update and compute"):
        checks.check_train_metrics(args, metrics, is_streaming=True)
    checks.check_train_metrics(args, metrics)
    checks.check_train_metrics(tiny.arguments(tmp_path), None)


def test_speeds_are_measured_for_every_set():
    assert checks.keys_without_metrics([""]) == {"runtime", "samples_per_second", "steps_per_second"}
    assert {"near_runtime", "far_runtime"} <= checks.keys_without_metrics(["near", "far"])


@pytest.mark.parametrize(
    ("name", "found"),
    [("f1", {"f1"}), ("eval_f1", {"f1"}), ("eval_near_f1", {"near_f1"}), ("any", {checks.ANY_KEY})],
)
def test_a_best_metric_that_evaluation_gives_passes(name, found):
    checks.check_best_metric(name, found, ["labels"])


@pytest.mark.parametrize(
    ("name", "found", "words"),
    [
        ("f2", {"f1", "loss"}, ["'f2'", "['f1', 'loss']", "compute_metrics"]),
        ("eval_loss", {"runtime"}, ["'eval_loss'", "without labels", "['labels']", "label_names"]),
    ],
)
def test_a_best_metric_that_evaluation_does_not_give_is_refused(name, found, words):
    with pytest.raises(ValueError) as caught:
        checks.check_best_metric(name, found, ["labels"])
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("name", "label_names", "words"),
    [
        ("", [], ["The evaluation set has", "['a', 'b']", "forward does not name", "label_names"]),
        ("long", ["labels"], ["The evaluation set 'long' has", "none of ['labels'] is there", "label_names"]),
    ],
)
def test_a_set_without_labels_is_explained(name, label_names, words):
    text = checks.explain_no_labels(name, ["b", "a"], label_names)
    assert [word for word in words if word not in text] == []


def test_a_best_metric_that_somebody_may_add_is_warned_of(caplog):
    checks.check_best_metric("f1", ["loss"], ["labels"], is_sure=False)
    assert "metric_for_best_model='f1' is not among what evaluation gives: ['loss']" in caplog.text


def test_a_trial_that_failed_is_explained():
    text = checks.explain_failed_trial("the evaluation set", "KeyError: 'f1' (a.py, line 3)")
    assert "first batch of the evaluation set" in text
    assert "KeyError: 'f1' (a.py, line 3)" in text


def test_every_rule_of_the_file_is_tested_here():
    rules = [name for name, value in vars(checks).items() if inspect.isfunction(value) and name[0] != "_"]
    source = inspect.getsource(inspect.getmodule(test_every_rule_of_the_file_is_tested_here))
    assert [name for name in rules if f"checks.{name}" not in source] == []
