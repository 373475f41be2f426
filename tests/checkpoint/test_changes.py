"""Every setting has exactly one fate when it changes, and those that depend on others have theirs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from footplate.arguments import Seq2SeqTrainingArguments, TrainingArguments
from footplate.checkpoint.changed_facts import compare_facts
from footplate.checkpoint.changes import APPLIED, HARMLESS, PROCESSES, REFUSED, SPECIAL, judge

CLASSES = {"harmless": set(HARMLESS), "applied": set(APPLIED), "refused": set(REFUSED)}
FIELDS = [field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_in_exactly_one_class(name):
    assert sum(name in members for members in CLASSES.values()) == 1


def test_the_classes_hold_nothing_but_fields():
    assert set.union(*CLASSES.values()) == set(FIELDS)
    assert set(SPECIAL) - {PROCESSES} <= set(FIELDS)
    assert {field.name for field in dataclasses.fields(TrainingArguments)} < set(FIELDS)


def test_every_reason_is_a_sentence_part():
    assert all(text and not text.endswith(".") for text in [*APPLIED.values(), *REFUSED.values()])


PLAIN = TrainingArguments("runs").to_dict()
EVAL = {"eval_strategy": "steps"}
PLATEAU = {"lr_scheduler_type": "reduce_lr_on_plateau", **EVAL}
WEIGHTED = {"train_sampling_strategy": "weighted"}
GROUPED = {"train_sampling_strategy": "group_by_length"}
BY_TOKENS = {"per_device_train_tokens": 256}
READS_APART = {"dispatch_batches": False}
SHARDED_STREAM = {"accelerator_config": READS_APART}
# what both runs have, the change, its outcome, words of the text
DEPENDS = [
    ({}, ("per_device_train_batch_size", 8, 4), "applied", "same sample"),
    (GROUPED, ("per_device_train_batch_size", 8, 4), "refused", "grouped by length"),
    ({}, ("per_device_train_tokens", None, 256), "refused", "the order of samples"),
    (BY_TOKENS, ("per_device_train_tokens", 256, 512), "refused", "the order of samples"),
    (BY_TOKENS, ("per_device_train_batch_size", 8, 4), "applied", "same sample"),
    (BY_TOKENS, ("length_column_name", "length", "n"), "refused", "grouped by length"),
    (BY_TOKENS, ("processes", 2, 1), "refused", "grouped by length"),
    (GROUPED, ("gradient_accumulation_steps", 1, 4), "applied", "same sample"),
    ({}, ("length_column_name", "length", "n"), "harmless", ""),
    (GROUPED, ("length_column_name", "length", "n"), "refused", "grouped by length"),
    ({}, ("sample_weights", None, "weight"), "harmless", ""),
    (WEIGHTED, ("sample_weights", "weight", "other"), "refused", "the order of samples"),
    ({}, ("data_seed", None, 42), "harmless", ""),
    ({}, ("data_seed", None, 43), "refused", "the order of samples"),
    ({"data_seed": 7}, ("seed", 42, 43), "refused", "the order of samples"),
    ({}, ("num_train_epochs", 3.0, 5.0), "applied", "ends there"),
    ({"max_steps": 10}, ("num_train_epochs", 3.0, 5.0), "harmless", ""),
    ({}, ("max_steps", 100, 200), "applied", "ends there"),
    ({}, ("learning_rate", 1e-4, 1e-3), "applied", "highest rate"),
    (PLATEAU, ("learning_rate", 1e-4, 1e-3), "refused", "follows a metric"),
    ({}, ("lr_scheduler_type", "linear", "cosine"), "applied", "this curve"),
    (EVAL, ("lr_scheduler_type", "linear", "reduce_lr_on_plateau"), "refused", "does not fit a curve"),
    (EVAL, ("lr_scheduler_type", "greedy", "linear"), "refused", "does not fit a curve"),
    (PLATEAU, ("lr_scheduler_kwargs", {"factor": 0.1}, {"factor": 0.5}), "refused", "does not fit a curve"),
    ({}, ("optim", "adamw_torch", "adamw_torch_fused"), "applied", "last bits"),
    ({}, ("optim", "adamw_torch", "sgd"), "refused", "does not fit"),
    ({}, ("loss_weighting", "default", "batches"), "harmless", ""),
    ({}, ("loss_weighting", "default", "items"), "refused", "scale of loss"),
    ({}, ("loss_weighting", "batches", "items"), "refused", "scale of loss"),
    ({}, ("fp16", False, True), "refused", "loss scaling"),
    ({}, ("bf16", False, True), "applied", "last bits"),
    (
        {},
        ("param_groups", [{"match": "head", "lr": 1e-3}], [{"match": "head", "lr": 1e-2}]),
        "applied",
        "rates and decay",
    ),
    ({}, ("param_groups", [{"match": "head"}], [{"match": "body"}]), "refused", "move to another group"),
    ({}, ("param_groups", None, [{"layer_decay": 0.9}]), "refused", "move to another group"),
    ({}, ("param_groups", [{"layer_decay": 0.8}], [{"layer_decay": 0.9}]), "applied", "rates"),
    ({}, ("eval_steps", 10, 20), "harmless", ""),
    (PLATEAU, ("eval_steps", 10, 20), "applied", "moves with these evaluations"),
    ({}, ("fsdp", None, "full_shard"), "applied", "divided anew"),
    ({}, ("deepspeed", None, {"stage": 2}), "refused", "another division"),
    ({}, ("processes", 2, 1), "applied", "same sample"),
    (GROUPED, ("processes", 2, 1), "refused", "grouped by length"),
    (SHARDED_STREAM, ("processes", 2, 1), "applied", "a stream is shared out in another way"),
    ({}, ("accelerator_config", {"even_batches": True}, {"even_batches": False}), "applied", "same sample"),
    ({}, ("accelerator_config", {"dispatch_batches": None}, READS_APART), "applied", "shared out in another"),
    ({}, ("accelerator_config", {"non_blocking": False}, {"non_blocking": True}), "applied", "last bits"),
    ({}, ("my_temperature", 0.5, 0.7), "applied", "a setting of your own"),
]


@pytest.mark.parametrize(("common", "change", "outcome", "words"), DEPENDS, ids=lambda value: str(value)[:60])
def test_a_change_is_judged_with_the_other_settings_in_view(common, change, outcome, words):
    name, was, now = change
    found, text = judge(name, {**PLAIN, **common, name: was}, {**PLAIN, **common, name: now})
    assert found == outcome
    assert words in text


def test_groups_by_length_stay_if_the_batch_of_all_processes_does():
    saved = {**PLAIN, **GROUPED, "per_device_train_batch_size": 4, "processes": 2}
    current = {**PLAIN, **GROUPED, "per_device_train_batch_size": 8, "processes": 1}
    for name in ("per_device_train_batch_size", "processes"):
        assert judge(name, saved, current)[0] == "applied"
        assert judge(name, saved, {**current, name: 3})[0] == "refused"


# ---- what no setting says ----

FACTS: dict[str, Any] = {
    "data": {"type": "Dataset", "rows": 8, "fingerprint": "a", "columns": ["x"], "first_row": "1"},
    "model": {"class": "M", "parameters": 3, "shapes": "s"},
    "versions": {"python": "3.11.1", "torch": "2.8"},
}
CHANGED_FACTS = {
    "length": ("data", {"rows": 9, "first_row": "2"}, ["len(train_dataset)"], "some may come twice"),
    "first row": (
        "data",
        {"first_row": "2", "fingerprint": "b"},
        ["first row of train_dataset"],
        "other data",
    ),
    "columns": ("data", {"columns": ["y"]}, ["columns of train_dataset"], "other data"),
    "fingerprint": ("data", {"fingerprint": "b"}, ["train_dataset"], "prepared anew"),
    "class of the data": ("data", {"type": "list"}, ["train_dataset"], "other data"),
    "class of the model": ("model", {"class": "N", "shapes": "t"}, ["model"], "are loaded into this model"),
    "shapes": ("model", {"shapes": "t", "parameters": 4}, ["model"], "do not fit are refused"),
    "a version": ("versions", {"torch": "2.9"}, ["version of torch"], "last bits"),
    "two versions": (
        "versions",
        {"torch": "2.9", "python": "3.12"},
        ["version of python", "version of torch"],
        "last bits",
    ),
    "a library that only one side has": ("versions", {"numpy": "2"}, [], ""),
    "a length that is not known": ("data", {"rows": None}, [], ""),
    "nothing": ("data", {}, [], ""),
}


@pytest.mark.parametrize("case", CHANGED_FACTS)
def test_a_changed_fact_is_noticed_with_what_it_means(case):
    part, changes, names, words = CHANGED_FACTS[case]
    found = compare_facts(FACTS, {**FACTS, part: {**FACTS[part], **changes}})
    assert [change[0] for change in found] == names
    assert all(outcome == "noticed" and words in text for _, _, _, outcome, text in found)


@pytest.mark.parametrize(
    "saved", [None, [], "text", {}, {"data": 3, "versions": ["x"]}, {"data": {"rows": None}}]
)
def test_facts_that_are_missing_or_damaged_are_not_compared(saved):
    assert compare_facts(saved, FACTS) == []
