"""What users write comes into one form, the original's where it has one."""

from __future__ import annotations

import dataclasses
import json
import logging
import os

import pytest
import transformers

from footplate.arguments import AcceleratorConfig, TrainingArguments
from footplate.arguments.settle import settle
from footplate.outputs import DebugOption, IntervalStrategy, OptimizerNames, SaveStrategy, SchedulerType

SETTINGS = [
    {},
    {"eval_strategy": "steps"},
    {"eval_strategy": "steps", "logging_steps": 7},
    {"eval_strategy": "steps", "eval_steps": 20.0, "logging_steps": 10.0, "save_steps": 20.0},
    {"eval_strategy": "steps", "eval_steps": 0},
    {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True},
    {"metric_for_best_model": "accuracy"},
    {"metric_for_best_model": "eval_loss"},
    {"metric_for_best_model": "f1", "greater_is_better": False},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"},
    {"lr_scheduler_type": "greedy", "eval_strategy": "epoch"},
    {"include_num_input_tokens_seen": True},
    {"include_num_input_tokens_seen": False},
    {"include_num_input_tokens_seen": "non_padding"},
    {"report_to": "none"},
    {"report_to": ["none"]},
    {"report_to": []},
    {"report_to": "tensorboard"},
    {"report_to": ["tensorboard", "wandb"]},
    {"torch_compile_mode": "reduce-overhead"},
    {"torch_compile_backend": "eager"},
    {"torch_compile": True},
    {"use_cpu": True},
    {"use_cpu": True, "bf16": True},
    {"debug": "underflow_overflow tpu_metrics_debug"},
    {"lr_scheduler_kwargs": '{"min_lr": "0.1", "on": "true", "n": "3", "deep": {"x": "1"}, "name": "a"}'},
    {"gradient_checkpointing_kwargs": '{"use_reentrant": false}'},
    {
        "accelerator_config": {
            "split_batches": True,
            "gradient_accumulation_kwargs": {"sync_each_batch": True},
        }
    },
    {"accelerator_config": '{"even_batches": false}'},
    {"output_dir": "~/runs"},
    {"warmup_steps": 0.1},
    {"do_eval": True},
    {"disable_tqdm": True},
    {"hub_strategy": "end", "push_to_hub": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings_settle_as_in_the_original(settings):
    ours = TrainingArguments(**settings)
    theirs = transformers.TrainingArguments(**settings).to_dict()
    theirs["accelerator_config"]["use_configured_state"] = False  # the original takes it out on the way
    assert {name: value for name, value in ours.to_dict().items() if name in theirs} == theirs


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settling_twice_changes_nothing(settings):
    args = TrainingArguments(**settings)
    before = dataclasses.asdict(args)
    settle(args)
    assert dataclasses.asdict(args) == before


@pytest.mark.parametrize("nothing", [None, "none", [], ["none"]])
def test_every_way_to_report_to_nobody_is_an_empty_list(nothing):
    assert TrainingArguments("runs", report_to=nothing).report_to == []


def test_names_become_enums():
    args = TrainingArguments("runs", eval_strategy="epoch", debug="underflow_overflow")
    assert args.eval_strategy is IntervalStrategy.EPOCH
    assert args.save_strategy is SaveStrategy.STEPS
    assert args.lr_scheduler_type is SchedulerType.LINEAR
    assert args.optim is OptimizerNames.ADAMW_TORCH_FUSED
    assert args.debug == [DebugOption.UNDERFLOW_OVERFLOW]


def test_enums_of_transformers_are_taken():
    args = TrainingArguments("runs", eval_strategy=transformers.IntervalStrategy.EPOCH)
    assert args.eval_strategy is IntervalStrategy.EPOCH


def test_a_bare_no_of_yaml_is_a_strategy():
    args = TrainingArguments("runs", eval_strategy=False, save_strategy=False)
    assert (args.eval_strategy, args.save_strategy) == ("no", "no")


@pytest.mark.parametrize(("given", "expected"), [(False, []), (True, ["tpu_metrics_debug"]), (None, [])])
def test_debug_as_a_switch_is_understood(given, expected):
    assert TrainingArguments("runs", debug=given).debug == expected


def test_saving_the_best_goes_by_the_loss_unless_told():
    args = TrainingArguments("runs", save_strategy="best", eval_strategy="epoch")
    assert (args.metric_for_best_model, args.greater_is_better) == ("loss", False)


def test_the_home_folder_is_found():
    assert TrainingArguments("~/runs").output_dir == os.path.expanduser("~/runs")


def test_a_masked_token_is_no_token():
    assert TrainingArguments("runs", hub_token="<HUB_TOKEN>").hub_token is None


def test_bars_hide_where_warnings_are_hidden():
    logger = logging.getLogger("footplate")
    before = logger.level
    try:
        logger.setLevel(logging.ERROR)
        assert TrainingArguments("runs").disable_tqdm is True
        assert TrainingArguments("runs", disable_tqdm=False).disable_tqdm is False
    finally:
        logger.setLevel(before)
    assert TrainingArguments("runs").disable_tqdm is False


def test_accelerator_settings_come_in_every_form(tmp_path):
    path = tmp_path / "accelerator.json"
    path.write_text(json.dumps({"split_batches": True}))
    theirs = transformers.trainer_pt_utils.AcceleratorConfig(split_batches=True)
    for form in ({"split_batches": True}, str(path), AcceleratorConfig(split_batches=True), theirs):
        assert TrainingArguments("runs", accelerator_config=form).accelerator_config == AcceleratorConfig(
            True
        )


def test_groups_of_parameters_may_come_as_json():
    args = TrainingArguments("runs", param_groups='[{"match": "head.*", "lr": 0.001}]')
    assert args.param_groups == [{"match": "head.*", "lr": 0.001}]
