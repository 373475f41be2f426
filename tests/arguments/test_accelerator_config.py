"""The settings for Accelerate, with the fields of the original."""

from __future__ import annotations

import dataclasses
import json

import pytest
from transformers.trainer_pt_utils import AcceleratorConfig as OriginalConfig

from footplate.arguments import AcceleratorConfig


def test_fields_and_defaults_equal_the_original():
    assert dataclasses.asdict(AcceleratorConfig()) == dataclasses.asdict(OriginalConfig())
    assert [f.name for f in dataclasses.fields(AcceleratorConfig)] == [
        f.name for f in dataclasses.fields(OriginalConfig)
    ]


def test_a_file_is_read_and_a_dictionary_written(tmp_path):
    values = {"split_batches": True, "gradient_accumulation_kwargs": {"num_steps": 2}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    config = AcceleratorConfig.from_json_file(path)
    assert config.to_dict() == OriginalConfig.from_json_file(path).to_dict()
    config.to_dict()["gradient_accumulation_kwargs"]["num_steps"] = 9
    assert config.gradient_accumulation_kwargs == {"num_steps": 2}


def test_an_unknown_key_raises_with_file_and_suggestion(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"even_batch": True}))
    with pytest.raises(ValueError, match=r"config\.json holds 'even_batch'.* Did you mean 'even_batches'\?"):
        AcceleratorConfig.from_json_file(path)


def test_pop_takes_a_setting_out():
    config = AcceleratorConfig(use_configured_state=True)
    assert config.pop("use_configured_state") is True
    assert config.pop("use_configured_state", "gone") == "gone"
