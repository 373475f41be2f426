"""Each rule: what breaks it raises and names the setting, what keeps it passes."""

from __future__ import annotations

import inspect
import logging

import numpy as np
import pytest
import transformers
from accelerate import PartialState
from accelerate.state import AcceleratorState

from footplate.arguments import TrainingArguments, checks, derived
from footplate.arguments.notices import warn_once

EVAL = {"eval_strategy": "steps"}
# the settings, and words of the error
REFUSED = [
    ({"per_device_train_batch_size": 0}, "per_device_train_batch_size=0 .* of 1 or more"),
    ({"per_device_train_batch_size": 2.5}, "per_device_train_batch_size=2.5 .* a whole number"),
    ({"per_device_train_batch_size": True}, "per_device_train_batch_size=True"),
    ({"per_device_eval_batch_size": -1}, "per_device_eval_batch_size=-1"),
    ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0"),
    ({"num_train_epochs": -1}, "num_train_epochs=-1"),
    ({"num_train_epochs": float("inf")}, "num_train_epochs=inf"),
    ({"max_steps": 1.5}, "max_steps=1.5 .* a whole number"),
    ({"learning_rate": -1e-3}, "learning_rate=-0.001"),
    ({"learning_rate": float("nan")}, "learning_rate=nan"),
    ({"warmup_steps": -1}, "warmup_steps=-1"),
    ({"weight_decay": -0.1}, "weight_decay=-0.1"),
    ({"adam_beta1": 1.5}, "adam_beta1=1.5 .* from 0 to 1"),
    ({"adam_beta2": -0.5}, "adam_beta2=-0.5"),
    ({"adam_epsilon": -1}, "adam_epsilon=-1"),
    ({"max_grad_norm": -1.0}, "max_grad_norm=-1.0 .* or None"),
    ({"label_smoothing_factor": 1.1}, "label_smoothing_factor=1.1"),
    ({"neftune_noise_alpha": -5}, "neftune_noise_alpha=-5"),
    ({"torch_empty_cache_steps": 0}, "torch_empty_cache_steps=0"),
    ({"eval_accumulation_steps": 0}, "eval_accumulation_steps=0"),
    ({"eval_delay": -1}, "eval_delay=-1"),
    ({"train_metrics_batches": -1}, "train_metrics_batches=-1"),
    ({"seed": -1}, "seed=-1"),
    ({"seed": 2**32}, "seed=4294967296"),
    ({"data_seed": 0.5}, "data_seed=0.5"),
    ({"log_level": "warn"}, "log_level='warn' .* Did you mean 'warning'"),
    ({"log_level_replica": "loud"}, "log_level_replica='loud'"),
    ({"include_num_input_tokens_seen": "non_pading"}, "Did you mean 'non_padding'"),
    ({"train_sampling_strategy": "randm"}, "Did you mean 'random'"),
    ({"loss_weighting": "item"}, "Did you mean 'items'"),
    ({"on_nonfinite": "ignore"}, "on_nonfinite='ignore' .*'warn', 'skip', 'raise'"),
    ({"ddp_backend": "ncl"}, "Did you mean 'nccl'"),
    ({"dataloader_multiprocessing_context": "thread"}, "'fork', 'spawn', 'forkserver'"),
    ({"include_for_metrics": ["input"]}, "Did you mean 'inputs'"),
    ({"eval_strategy": "step"}, "eval_strategy='step' .* Did you mean 'steps'"),
    ({"logging_strategy": "epochs"}, "logging_strategy='epochs' .* Did you mean 'epoch'"),
    ({"save_strategy": "bets"}, "save_strategy='bets' .* Did you mean 'best'"),
    ({"hub_strategy": "every_sav"}, "Did you mean 'every_save'"),
    ({"lr_scheduler_type": "cosin"}, "Did you mean 'cosine'"),
    ({"optim": "adamw"}, "optim='adamw' .* Did you mean 'adamw_torch'"),
    ({"debug": "underflow"}, "debug='underflow' .* Did you mean 'underflow_overflow'"),
    ({"logging_steps": 0}, "logging_steps=0 does not fit logging_strategy='steps'"),
    ({"logging_steps": -5}, "logging_steps=-5"),
    ({"logging_steps": 2.5}, "logging_steps=2.5 .* whole number of updates, or to a share"),
    ({**EVAL, "eval_steps": 10.5}, "eval_steps=10.5 does not fit eval_strategy='steps'"),
    ({**EVAL, "eval_steps": -1}, "eval_steps=-1"),
    ({"save_steps": 7.5}, "save_steps=7.5 does not fit save_strategy='steps'"),
    ({"save_steps": "often"}, "save_steps='often'"),
    ({"fp16": True, "bf16": True}, "fp16=True and bf16=True exclude each other"),
    ({"fp16_full_eval": True, "bf16_full_eval": True}, "fp16_full_eval=True and bf16_full_eval=True"),
    ({"fp16": True, "use_cpu": True}, "fp16=True needs an accelerator.* Set bf16=True"),
    ({"tf32": True, "use_cpu": True}, "tf32=True needs an Ampere or newer GPU"),
    ({"load_best_model_at_end": True}, "load_best_model_at_end=True needs evaluations.* eval_strategy"),
    ({"save_strategy": "best"}, "save_strategy='best' needs evaluations"),
    ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "'reduce_lr_on_plateau' needs evaluations"),
    ({"lr_scheduler_type": "greedy"}, "'greedy' needs evaluations"),
    ({"dataloader_num_workers": -1}, "dataloader_num_workers=-1"),
    ({"dataloader_prefetch_factor": 2}, "dataloader_prefetch_factor=2 needs workers"),
    ({"dataloader_num_workers": 1, "dataloader_prefetch_factor": 0}, "dataloader_prefetch_factor=0"),
    ({"dataloader_persistent_workers": True}, "dataloader_persistent_workers=True needs workers"),
    ({"param_groups": [{"lr": 1e-3}]}, "param_groups holds {'lr': 0.001}"),
    ({"param_groups": ["head"]}, "param_groups holds 'head'"),
    ({"train_sampling_strategy": "weighted"}, "'weighted' needs sample_weights"),
    ({"train_sampling_strategy": "weighted", "sample_weights": [1.0, -1.0]}, "negative or not finite"),
    ({"save_every": "soon"}, "save_every='soon' is not a length of time.* '30min'"),
    ({"save_every": 0}, "save_every=0 "),
    ({"max_time": "7h90"}, "max_time='7h90'"),
    ({"max_time": True}, "max_time=True"),
    ({"hang_timeout": "never"}, "hang_timeout='never' is not a length of time"),
    ({"metrics_on": "first"}, "metrics_on='first'.* Did you mean 'first_rank'"),
    ({"lr_scheduler_kwargs": "{oops"}, "lr_scheduler_kwargs: '{oops' is not a JSON object"),
    ({"accelerator_config": {"split_batch": True}}, "Did you mean 'split_batches'"),
    ({"accelerator_config": dict}, "is a class"),
]
ACCEPTED = [
    {"num_train_epochs": 0},
    {"num_train_epochs": 0.5},
    {"max_steps": 0},
    {"learning_rate": np.float64(1e-3), "seed": np.int64(3)},
    {"max_grad_norm": None},
    {"save_steps": 0},
    {"save_steps": -1},
    {"save_total_limit": 0},
    {"logging_strategy": "epoch", "logging_steps": 0},
    {"logging_steps": 0.1, "eval_steps": 0.25, **EVAL},
    {"bf16": True},
    {"bf16": True, "use_cpu": True},
    {"tf32": False},
    {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 2, "dataloader_persistent_workers": True},
    {"param_groups": [{"match": "head.*", "lr": 1e-3}, {"layer_decay": 0.9}]},
    {"train_sampling_strategy": "weighted", "sample_weights": "weight"},
    {"train_sampling_strategy": "weighted", "sample_weights": [0.0, 1.0]},
    # the best model is saved when it is measured: evaluation and save schedules need no relation
    {**EVAL, "eval_steps": 7, "save_steps": 10, "load_best_model_at_end": True},
    {"eval_strategy": "epoch", "save_strategy": "steps", "load_best_model_at_end": True},
    {"eval_strategy": "epoch", "save_strategy": "no", "load_best_model_at_end": True},
    {**EVAL, "save_strategy": "best"},
    {"save_every": "30min", "max_time": "7h50m", "save_in_background": False},
    {"save_every": 90, "max_time": 0.5},
    {"hang_timeout": None, "metrics_on": "first_rank", "train_sampling_strategy": "keyed"},
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_a_broken_rule_raises_and_names_the_setting(settings, words):
    with pytest.raises(ValueError, match=words):
        TrainingArguments("runs", **settings)


@pytest.mark.parametrize("settings", ACCEPTED, ids=str)
def test_what_keeps_the_rules_passes(settings):
    args = TrainingArguments("runs", **settings)
    assert all(getattr(args, name) == value for name, value in settings.items())


@pytest.mark.parametrize("name", [*checks.NUMBERS, *checks.CHOICES])
def test_every_row_of_the_tables_is_a_setting(name):
    assert name in TrainingArguments.__dataclass_fields__


def test_every_rule_of_the_file_is_run():
    takes_arguments = {
        function
        for name, function in vars(checks).items()
        if name.startswith("check_") and list(inspect.signature(function).parameters) == ["args"]
    }
    assert set(checks.CHECKS) == takes_arguments - {checks.check_all}


def test_weights_that_nobody_draws_by_are_warned_of_once(caplog):
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            TrainingArguments("runs", sample_weights="weight")
    assert [record.getMessage() for record in caplog.records] == [
        "sample_weights has no effect without train_sampling_strategy='weighted'."
    ]


def test_fp16_on_a_machine_without_accelerator_raises_without_use_cpu():
    if derived.find_accelerator() is None:
        with pytest.raises(ValueError, match="fp16=True needs an accelerator"):
            TrainingArguments("runs", fp16=True)
    else:
        assert TrainingArguments("runs", fp16=True).mixed_precision == "fp16"


def test_a_state_of_accelerate_that_does_not_exist_is_refused():
    AcceleratorState._reset_state(reset_partial_state=True)
    for library in (TrainingArguments, transformers.TrainingArguments):
        with pytest.raises(ValueError, match="use_configured_state"):
            library("runs", accelerator_config={"use_configured_state": True})


def test_arguments_leave_a_state_of_accelerate_that_the_next_ones_may_use():
    """sentence-transformers makes its arguments so, to compare the user's with the defaults."""
    for library in (TrainingArguments, transformers.TrainingArguments):
        AcceleratorState._reset_state(reset_partial_state=True)
        library("runs", use_cpu=True)
        library("runs", accelerator_config={"use_configured_state": True})
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_state_of_accelerate_that_exists_is_used():
    try:
        PartialState(cpu=True)
        args = TrainingArguments("runs", accelerator_config={"use_configured_state": True})
        assert args.accelerator_config.use_configured_state is True
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("value", [1, 7])
def test_the_cache_is_emptied_after_whole_numbers_of_updates(value):
    assert TrainingArguments("runs", torch_empty_cache_steps=value).torch_empty_cache_steps == value


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_the_cache_is_not_emptied_after_anything_else(value):
    for library in (TrainingArguments, transformers.TrainingArguments):
        with pytest.raises(ValueError, match="torch_empty_cache_steps"):
            library("runs", torch_empty_cache_steps=value)
