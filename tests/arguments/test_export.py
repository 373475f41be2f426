"""The settings as dictionaries and text, like the original's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers

from footplate.arguments import Seq2SeqTrainingArguments, TrainingArguments

SETTINGS = {
    "output_dir": "runs",
    "eval_strategy": "epoch",
    "debug": "underflow_overflow",
    "hub_token": "secret",
}
OWN = {
    "logging_dir",
    "loss_weighting",
    "on_nonfinite",
    "train_metrics_batches",
    "keep_columns",
    "param_groups",
    "sample_weights",
    "save_every",
    "max_time",
    "max_eval_samples",
    "eval_memory_limit",
    "show_samples",
    "hardest_rows",
    "report",
    "module_stats_steps",
    "save_in_background",
    "save_on_error",
    "save_makes_room",
    "max_shard_size",
    "metrics_on",
    "hang_timeout",
    "per_device_train_tokens",
    "padding_multiple",
    "order_memory_limit",
    "dataloader_prefetch_to_device",
    "save_full_model",
    "rehearsal",
}


@dataclass
class WithModelSettings(TrainingArguments):
    model_init_kwargs: Any = None
    api_token: str | None = None


def test_to_dict_has_the_keys_of_the_original_and_ours():
    theirs = transformers.TrainingArguments(**SETTINGS).to_dict()
    assert TrainingArguments(**SETTINGS).to_dict().keys() == theirs.keys() | OWN


def test_to_sanitized_dict_equals_the_original():
    theirs = transformers.TrainingArguments(**SETTINGS).to_sanitized_dict()
    ours = TrainingArguments(**SETTINGS).to_sanitized_dict()
    assert set(ours) == set(theirs) | OWN
    assert {name for name in theirs if ours[name] != theirs[name]} == {"accelerator_config"}
    assert all(type(value) in (bool, int, float, str) for value in ours.values())


def test_json_holds_the_dictionary_and_no_token():
    args = TrainingArguments(**SETTINGS)
    text = args.to_json_string()
    assert json.loads(text) == args.to_dict()
    assert "secret" not in text
    assert args.to_dict()["hub_token"] == "<HUB_TOKEN>"


@pytest.mark.parametrize("token", [None, "secret"])
def test_tokens_of_a_subclass_are_masked_too(token):
    values = WithModelSettings("runs", api_token=token).to_dict()
    assert values["api_token"] == "<API_TOKEN>"


def test_types_of_torch_and_configurations_become_plain():
    config = transformers.GenerationConfig(num_beams=3)
    args = WithModelSettings("runs", model_init_kwargs={"dtype": torch.bfloat16, "deep": {"config": config}})
    values = args.to_dict()["model_init_kwargs"]
    assert values["dtype"] == "bfloat16"
    assert values["deep"]["config"]["num_beams"] == 3
    assert args.model_init_kwargs["dtype"] is torch.bfloat16  # the settings themselves stay as they are


def test_a_generation_config_is_written_out_as_in_the_original():
    config = transformers.GenerationConfig(num_beams=3)
    ours = Seq2SeqTrainingArguments("runs", generation_config=config).to_dict()
    theirs = transformers.Seq2SeqTrainingArguments("runs", generation_config=config).to_dict()
    assert ours["generation_config"] == theirs["generation_config"]


def test_a_dictionary_makes_the_same_settings_again():
    args = TrainingArguments(
        "runs", eval_strategy="epoch", warmup_ratio=0.1, accelerator_config={"even_batches": False}
    )
    assert TrainingArguments(**args.to_dict()) == args
    assert TrainingArguments(**json.loads(args.to_json_string())) == args
