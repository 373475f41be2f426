"""Older names: each is understood, announced once, and can be read and set."""

from __future__ import annotations

import json
import logging

import pytest

from footplate.arguments import AcceleratorConfig, TrainingArguments
from footplate.arguments.notices import warn_once
from footplate.arguments.old_names import OLD_NAMES

# old name, value given, today's field, today's value
MEANINGS = [
    ("adafactor", True, "optim", "adafactor"),
    ("dispatch_batches", True, "accelerator_config.dispatch_batches", True),
    ("evaluate_during_training", True, "eval_strategy", "steps"),
    ("evaluation_strategy", "epoch", "eval_strategy", "epoch"),
    ("fsdp_min_num_params", 100, "fsdp_config", {"min_num_params": 100}),
    (
        "fsdp_transformer_layer_cls_to_wrap",
        "BertLayer",
        "fsdp_config",
        {"transformer_layer_cls_to_wrap": "BertLayer"},
    ),
    ("group_by_length", True, "train_sampling_strategy", "group_by_length"),
    ("include_inputs_for_metrics", True, "include_for_metrics", ["inputs"]),
    ("include_tokens_per_second", True, "include_num_input_tokens_seen", "all"),
    ("label_smoothing", 0.1, "label_smoothing_factor", 0.1),
    ("lr_scheduler", "cosine", "lr_scheduler_type", "cosine"),
    ("no_cuda", True, "use_cpu", True),
    ("per_gpu_eval_batch_size", 3, "per_device_eval_batch_size", 3),
    ("per_gpu_train_batch_size", 3, "per_device_train_batch_size", 3),
    ("push_to_hub_model_id", "me/net", "hub_model_id", "me/net"),
    ("push_to_hub_organization", "us", "hub_model_id", "us/runs"),
    ("push_to_hub_token", "secret", "hub_token", "secret"),
    ("split_batches", True, "accelerator_config.split_batches", True),
    ("torchdynamo", "eager", "torch_compile_backend", "eager"),
    ("tpu_metrics_debug", True, "debug", ["tpu_metrics_debug"]),
    ("train_metrics", 5, "train_metrics_batches", 5),
    ("warmup_ratio", 0.25, "warmup_steps", 0.25),
    ("xpu_backend", "gloo", "ddp_backend", "gloo"),
]
WITHOUT_EFFECT = [name for name, old in OLD_NAMES.items() if old.becomes is None and old.reason]
KEPT = [name for name, old in OLD_NAMES.items() if old.becomes is None and not old.reason]


@pytest.fixture(autouse=True)
def _fresh_notices():
    warn_once.cache_clear()


def read(args, path):
    for name in path.split("."):
        args = getattr(args, name)
    return args


def test_the_two_lists_of_this_file_cover_the_table():
    assert {row[0] for row in MEANINGS} | {*WITHOUT_EFFECT, *KEPT} == set(OLD_NAMES)


def test_no_old_name_is_a_field_today():
    assert not OLD_NAMES.keys() & TrainingArguments.__dataclass_fields__.keys()


@pytest.mark.parametrize(("old", "given", "new", "expected"), MEANINGS, ids=[row[0] for row in MEANINGS])
def test_old_name_sets_what_it_means_today(old, given, new, expected):
    args = TrainingArguments("runs", **{old: given})
    assert read(args, new) == expected
    assert read(TrainingArguments("runs"), new) != expected


@pytest.mark.parametrize(("old", "given", "new", "expected"), MEANINGS, ids=[row[0] for row in MEANINGS])
def test_old_name_reads_back(old, given, new, expected):
    assert getattr(TrainingArguments("runs", **{old: given}), old) == given


@pytest.mark.parametrize(("old", "given", "new", "expected"), MEANINGS, ids=[row[0] for row in MEANINGS])
def test_old_name_can_be_set_later(old, given, new, expected):
    args = TrainingArguments("runs")
    setattr(args, old, given)
    assert read(args, new) == expected
    assert isinstance(args.accelerator_config, AcceleratorConfig)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_name_without_effect_is_accepted_announced_and_remembered(name, caplog):
    plain = TrainingArguments("runs")
    assert getattr(plain, name) == OLD_NAMES[name].default
    with caplog.at_level(logging.WARNING):
        args = TrainingArguments("runs", **{name: "a value"})
    assert args == plain
    assert getattr(args, name) == "a value"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        f"The argument {name} has no effect"
    ]


def test_a_name_that_keeps_its_effect_is_accepted_without_a_notice(caplog):
    assert KEPT == ["jit_mode_eval", "overwrite_output_dir"]
    with caplog.at_level(logging.WARNING):
        for name in KEPT:
            assert getattr(TrainingArguments("runs"), name) is False
            assert getattr(TrainingArguments("runs", **{name: True}), name) is True
    assert not caplog.records


def test_a_name_without_a_field_can_be_set_later():
    args = TrainingArguments("runs")
    args.overwrite_output_dir = True
    assert args.overwrite_output_dir is True
    assert args == TrainingArguments("runs")


def test_a_notice_comes_once_per_name(caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            TrainingArguments("runs", evaluation_strategy="epoch", no_cuda=True)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "The argument evaluation_strategy is an older name and taken as eval_strategy.",
        "The argument no_cuda is an older name and taken as use_cpu.",
    ]


def test_reading_an_old_name_says_nothing(caplog):
    with caplog.at_level(logging.WARNING):
        assert TrainingArguments("runs").warmup_ratio == 0.0
    assert not caplog.records


def test_given_steps_of_warmup_win_over_a_ratio():
    args = TrainingArguments("runs", warmup_ratio=0.1, warmup_steps=50)
    assert args.warmup_steps == 50
    assert args.warmup_ratio == 0.0


def test_a_warmup_ratio_of_one_warms_up_all_the_way():
    args = TrainingArguments("runs", warmup_ratio=1.0)
    assert [args.get_warmup_steps(steps) for steps in (1, 7, 1000, 10**6)] == [1, 7, 1000, 10**6]


@pytest.mark.parametrize("ratio", [-0.1, 1.5])
def test_a_warmup_ratio_outside_the_run_raises(ratio):
    with pytest.raises(ValueError, match=f"warmup_ratio={ratio}"):
        TrainingArguments("runs", warmup_ratio=ratio)


def test_old_and_new_name_may_agree_but_not_contradict():
    assert (
        TrainingArguments("runs", evaluation_strategy="epoch", eval_strategy="epoch").eval_strategy == "epoch"
    )
    with pytest.raises(ValueError, match="evaluation_strategy='steps' and eval_strategy='epoch' contradict"):
        TrainingArguments("runs", evaluation_strategy="steps", eval_strategy="epoch")
    with pytest.raises(ValueError, match="adafactor=True and optim='sgd' contradict"):
        TrainingArguments("runs", adafactor=True, optim="sgd")


def test_a_dump_of_4x_with_all_its_defaults_changes_nothing():
    defaults = {name: old.default for name, old in OLD_NAMES.items()}
    defaults |= {"push_to_hub_token": "<PUSH_TO_HUB_TOKEN>", "hub_token": "<HUB_TOKEN>"}
    today = {"eval_strategy": "epoch", "use_cpu": True, "optim": "adafactor", "warmup_steps": 5}
    assert TrainingArguments("runs", **today, **defaults) == TrainingArguments("runs", **today)


def test_items_and_entries_are_added_to_what_is_given():
    args = TrainingArguments(
        "runs",
        include_for_metrics=["loss"],
        include_inputs_for_metrics=True,
        accelerator_config={"even_batches": False},
        split_batches=True,
    )
    assert args.include_for_metrics == ["loss", "inputs"]
    assert (args.accelerator_config.even_batches, args.accelerator_config.split_batches) == (False, True)


def test_an_entry_is_added_to_a_configuration_file(tmp_path):
    path = tmp_path / "accelerator.json"
    path.write_text(json.dumps({"even_batches": False}))
    args = TrainingArguments("runs", accelerator_config=str(path), split_batches=True)
    assert (args.accelerator_config.even_batches, args.accelerator_config.split_batches) == (False, True)


def test_organization_goes_before_the_model_and_the_folder_stands_in():
    args = TrainingArguments("a/runs", push_to_hub_organization="us", push_to_hub_model_id="net")
    assert args.hub_model_id == "us/net"
    assert args.push_to_hub_organization == "us"
    assert TrainingArguments(output_dir="a/runs", push_to_hub_organization="us").hub_model_id == "us/runs"
    assert TrainingArguments("a/runs").push_to_hub_organization is None


def test_a_switch_that_cannot_be_taken_back_says_what_to_set():
    args = TrainingArguments("runs", group_by_length=True)
    with pytest.raises(ValueError, match="Set train_sampling_strategy instead"):
        args.group_by_length = False


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("learning_rat", "learning_rate"),
        ("evaluation_stratgy", "evaluation_strategy"),
        ("batch_size", None),
        ("num_epochs", None),
        ("wamup_ratio", "warmup_ratio"),
        ("per_device_batch_size", "per_device_eval_batch_size"),
    ],
)
def test_an_unknown_name_raises_and_says_what_was_meant(wrong, meant):
    with pytest.raises(TypeError, match=f"TrainingArguments has no argument '{wrong}'") as raised:
        TrainingArguments("runs", **{wrong: 1})
    if meant:
        assert f"Did you mean '{meant}'?" in str(raised.value)


def test_all_unknown_names_are_told_at_once():
    with pytest.raises(TypeError, match=r"'sead'\. Did you mean 'seed'\? It also has no argument 'xyzzy'\."):
        TrainingArguments("runs", sead=1, xyzzy=2)


def test_a_value_given_twice_raises_as_in_any_function():
    with pytest.raises(TypeError, match="multiple values for argument 'output_dir'"):
        TrainingArguments("runs", output_dir="other", no_cuda=True)


def test_an_unknown_attribute_raises():
    args = TrainingArguments("runs")
    with pytest.raises(AttributeError, match="no attribute 'xyzzy'"):
        _ = args.xyzzy
    assert not hasattr(args, "xyzzy")
