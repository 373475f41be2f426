"""What `fsdp` and `fsdp_config` mean, in the words of both versions of FSDP."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest
import torch
import transformers
from accelerate import ParallelismConfig

from footplate.arguments.fsdp_config import FsdpSettings, plan_sharding, read_fsdp, read_fsdp_environment
from footplate.arguments.notices import warn_once


@pytest.fixture(autouse=True)
def _fresh_notices():
    warn_once.cache_clear()


@pytest.mark.parametrize("fsdp", [None, False, "", [], "false", "0"])
def test_nothing_means_no_sharding(fsdp):
    assert read_fsdp(fsdp) is None


@pytest.mark.parametrize(
    "fsdp", [True, "true", "full_shard", ["full_shard"], "full_shard auto_wrap", "FULL_SHARD"]
)
def test_the_default_shards_all_layers_and_frees_them_after_forward(fsdp):
    assert read_fsdp(fsdp) == FsdpSettings()
    assert read_fsdp(fsdp, {}) == FsdpSettings(wrap="auto", reshard_after_forward=True)


def test_words_of_version_one_are_mapped():
    assert read_fsdp("shard_grad_op") == FsdpSettings(reshard_after_forward=False)
    assert read_fsdp("hybrid_shard,auto_wrap") == FsdpSettings(is_hybrid=True)
    assert read_fsdp(["hybrid_shard_zero2"]) == FsdpSettings(is_hybrid=True, reshard_after_forward=False)
    assert read_fsdp("full_shard offload") == FsdpSettings(cpu_offload=True)


def test_options_of_transformers_are_taken_as_words():
    options = [
        transformers.trainer_utils.FSDPOption.SHARD_GRAD_OP,
        transformers.trainer_utils.FSDPOption.OFFLOAD,
    ]
    assert read_fsdp(options) == FsdpSettings(reshard_after_forward=False, cpu_offload=True)


@pytest.mark.parametrize(
    ("fsdp", "config", "text"),
    [
        ("no_shard", None, "Leave fsdp unset"),
        (True, {"sharding_strategy": "NO_SHARD"}, "Leave fsdp unset"),
        (True, {"sharding_strategy": "3"}, "Leave fsdp unset"),
        ("full_shrd", None, "Did you mean 'full_shard'"),
        ("full_shard shard_grad_op", None, "Keep one of them"),
        (True, {"reshard_after_foward": True}, "Did you mean 'reshard_after_forward'"),
        (True, {"reshard_after_forward": "maybe"}, "is not known"),
        (True, {"version": 3}, "Set it to 2"),
        (True, {"xla": True}, "TPU"),
        (True, {"ignored_modules": "head"}, "Remove it"),
        (True, {"min_num_params": 5, "transformer_layer_cls_to_wrap": "Block"}, "Keep one of them"),
        (True, {"min_num_params": -5}, "whole number from 1"),
        (True, {"auto_wrap_policy": "SIZE_BASED_WRAP"}, "Set min_num_params"),
        (True, {"auto_wrap_policy": "size_wrap"}, "is not known"),
        (True, {"shard_size": 0}, "whole number from 1"),
        (True, {"shard_size": "two"}, "whole number from 1"),
        (True, {"cpu_offload": "perhaps"}, "true or false"),
        (True, {"state_dict_type": "LOCAL_STATE_DICT"}, "SHARDED_STATE_DICT"),
        (True, {"mixed_precision_policy": "fp16"}, "is not known"),
        (True, {"mixed_precision_policy": {"param_type": "bf16"}}, "Did you mean 'param_dtype'"),
        (True, {"offload_params": True, "cpu_offload": False}, "twice"),
        (True, "{bad", "is not JSON"),
        (True, "absent.json", "cannot be read"),
        (True, 7, "neither a dictionary nor the path"),
    ],
)
def test_what_is_wrong_raises_and_names_the_way_out(fsdp, config, text):
    with pytest.raises(ValueError) as caught:
        read_fsdp(fsdp, config)
    assert text in str(caught.value)


def test_names_have_a_prefix_or_not():
    expected = FsdpSettings(cpu_offload=True, activation_checkpointing=True, reshard_after_forward=False)
    plain = {"cpu_offload": True, "activation_checkpointing": "true", "reshard_after_forward": "False"}
    assert read_fsdp(True, plain) == expected
    assert read_fsdp(True, {f"fsdp_{name}": value for name, value in plain.items()}) == expected
    assert read_fsdp(True, {"fsdp_offload_params": True}).cpu_offload


def test_a_file_and_a_text_hold_the_same_settings(tmp_path):
    config = {"transformer_layer_cls_to_wrap": ["Block", "Other"], "shard_size": 4}
    expected = FsdpSettings(wrap="classes", layer_classes=("Block", "Other"), is_hybrid=True, shard_size=4)
    (tmp_path / "fsdp.json").write_text(json.dumps(config))
    forms = [config, json.dumps(config), str(tmp_path / "fsdp.json"), tmp_path / "fsdp.json"]
    assert [read_fsdp(True, form) for form in forms] == [expected] * 4


def test_parts_are_chosen_by_class_by_size_or_not_at_all():
    assert read_fsdp(True, {"transformer_layer_cls_to_wrap": "A, B"}).layer_classes == ("A", "B")
    size = read_fsdp(True, {"min_num_params": "1e3"})
    assert (size.wrap, size.min_num_params) == ("size", 1000)
    assert read_fsdp(True, {"auto_wrap_policy": "NO_WRAP"}).wrap == "none"
    both = {
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "min_num_params": 5,
        "transformer_cls_names_to_wrap": ["A"],
    }
    assert read_fsdp(True, both) == FsdpSettings(wrap="classes", layer_classes=("A",))
    assert read_fsdp(True, {"min_num_params": 0}) == FsdpSettings()


def test_strategies_of_version_one_stand_in_the_configuration_too(caplog):
    assert read_fsdp(True, {"version": 1, "sharding_strategy": "HYBRID_SHARD"}).is_hybrid
    assert "version 2, which is used" in caplog.text
    assert read_fsdp(True, {"sharding_strategy": 2}).reshard_after_forward is False
    assert read_fsdp(True, {"reshard_after_forward": "SHARD_GRAD_OP"}).reshard_after_forward is False
    assert read_fsdp(True, {"reshard_after_forward": 2}).reshard_after_forward == 2


def test_precision_is_named_by_a_word_a_dictionary_or_a_policy_of_torch(caplog):
    assert read_fsdp(True, {"mixed_precision_policy": "bf16"}).mixed_precision_policy == {
        "param_dtype": "bfloat16",
        "reduce_dtype": "bfloat16",
    }
    given = {"param_dtype": torch.bfloat16, "cast_forward_inputs": "false", "buffer_dtype": "bf16"}
    expected = {"param_dtype": "bfloat16", "cast_forward_inputs": False}
    assert read_fsdp(True, {"mixed_precision_policy": given}).mixed_precision_policy == expected
    assert "buffer_dtype has no effect" in caplog.text
    policy = torch.distributed.fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    found = read_fsdp(True, {"mixed_precision_policy": policy}).mixed_precision_policy
    assert found == {"param_dtype": "bfloat16", "cast_forward_inputs": True}


def test_state_dict_types_are_named_in_any_letters():
    assert read_fsdp(True, {"state_dict_type": "sharded_state_dict"}).state_dict_type == "SHARDED_STATE_DICT"
    assert read_fsdp(True).state_dict_type is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"state_dict_type": "FULL_STATE_DICT"}, "Set save_full_model=True"),
        ({"cpu_ram_efficient_loading": True}, "cpu_ram_efficient_loading has no effect"),
    ],
)
def test_what_has_no_effect_is_said_once(config, words, caplog, monkeypatch):
    monkeypatch.delenv("FSDP_CPU_RAM_EFFICIENT_LOADING", raising=False)
    args = SimpleNamespace(fsdp=True, fsdp_config=config, parallelism_config=None, save_full_model=False)
    with caplog.at_level(logging.WARNING):
        assert plan_sharding(args) == plan_sharding(args) == read_fsdp(True, config)
    assert [words in record.getMessage() for record in caplog.records] == [True]
    caplog.clear()
    warn_once.cache_clear()
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")  # as its launcher does: models obey it
    args.save_full_model = True
    plan_sharding(args)
    assert not caplog.records


def test_old_names_without_a_meaning_are_accepted_with_one_warning_each(caplog):
    old = {"use_orig_params": False, "backward_prefetch": "backward_post", "forward_prefetch": True}
    with caplog.at_level(logging.WARNING):
        assert read_fsdp(True, old) == read_fsdp(True, old) == FsdpSettings()
    assert len(caplog.records) == 3
    assert all("has no effect in version 2" in record.getMessage() for record in caplog.records)


def test_old_names_that_ask_for_what_happens_anyway_are_accepted_in_silence(caplog):
    old = {
        "use_orig_params": "true",
        "sync_module_states": True,
        "backward_prefetch": "BACKWARD_PRE",
        "forward_prefetch": False,
        "limit_all_gathers": True,
        "xla": False,
        "xla_fsdp_grad_ckpt": False,
        "ignored_modules": None,
    }
    assert read_fsdp(True, old) == FsdpSettings()
    assert not caplog.records


def test_a_configuration_without_fsdp_is_said_to_have_no_effect(caplog):
    assert read_fsdp(None, {"cpu_offload": True}) is None
    assert "fsdp_config has no effect without fsdp" in caplog.text


def test_variables_of_accelerate_launch_are_read(caplog):
    variables = {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
        "FSDP_RESHARD_AFTER_FORWARD": "false",
        "FSDP_OFFLOAD_PARAMS": "true",
        "FSDP_MIN_NUM_PARAMS": "100000000",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "Block",
        "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "FSDP_USE_ORIG_PARAMS": "true",
        "FSDP_BACKWARD_PREFETCH": "NO_PREFETCH",
        "FSDP_IGNORED_MODULES": "None",
        "FSDP_SOMETHING_NEW": "1",
    }
    assert read_fsdp_environment(variables) == FsdpSettings(
        wrap="classes",
        layer_classes=("Block",),
        reshard_after_forward=False,
        cpu_offload=True,
        state_dict_type="SHARDED_STATE_DICT",
    )
    assert read_fsdp_environment({**variables, "ACCELERATE_USE_FSDP": "false"}) is None
    assert read_fsdp_environment({}) is None


def settings_of(world_size, fsdp=None, **sizes):
    return SimpleNamespace(
        save_full_model=False,
        fsdp=fsdp,
        fsdp_config=None,
        world_size=world_size,
        parallelism_config=ParallelismConfig(**sizes),
    )


def test_sizes_of_accelerates_configuration_shard_the_model():
    assert plan_sharding(settings_of(4, dp_shard_size=4)) == FsdpSettings(shard_size=4)
    hybrid = plan_sharding(settings_of(4, dp_replicate_size=2, dp_shard_size=2))
    assert hybrid == FsdpSettings(is_hybrid=True, shard_size=2)
    offloaded = plan_sharding(settings_of(2, fsdp="full_shard offload", dp_shard_size=2))
    assert offloaded == FsdpSettings(cpu_offload=True, shard_size=2)


def test_copies_alone_are_not_sharded():
    assert plan_sharding(settings_of(2, dp_replicate_size=2)) is None


@pytest.mark.parametrize("name", ["tp_size", "cp_size"])
def test_what_torch_is_not_asked_to_split_is_refused_by_name(name):
    with pytest.raises(NotImplementedError, match=rf"{name}=2.*Set {name}=1"):
        plan_sharding(settings_of(2, **{name: 2}))


def test_sizes_must_make_up_the_processes_that_run():
    with pytest.raises(ValueError, match=r"2 x 2 processes, and 3 run"):
        plan_sharding(settings_of(3, dp_replicate_size=2, dp_shard_size=2))
