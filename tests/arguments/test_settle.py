"""What users write comes into one form, the original's where it has one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os

import pytest
import transformers

from footplate.arguments import AcceleratorConfig, TrainingArguments
from footplate.arguments.notices import warn_once
from footplate.arguments.settle import find_types, is_numeric, settle
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
    {"gradient_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": False}},
    {"gradient_checkpointing": True, "activation_checkpointing": False},
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


@pytest.mark.parametrize(
    ("name", "given", "is_said"),
    [
        *(("eval_wer", None, True), ("dev_mse", None, True), ("wer", True, False), ("wer", False, False)),
        *(("accuracy", None, False), ("answer", None, False), ("ood_loss", None, False)),
    ],
)
def test_a_metric_that_should_fall_and_counts_as_rising_is_warned_of(caplog, name, given, is_said):
    warn_once.cache_clear()
    args = TrainingArguments("runs", metric_for_best_model=name, greater_is_better=given)
    assert ("should fall. Set greater_is_better=False" in caplog.text) is is_said
    assert args.greater_is_better is (given if given is not None else name != "ood_loss")  # as the original


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


def test_the_older_word_for_the_weighting_works_with_one_notice(caplog):
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        weightings = [TrainingArguments("runs", loss_weighting="default").loss_weighting for _ in range(2)]
    assert weightings == ["batches", "batches"]
    assert [record.getMessage() for record in caplog.records] == [
        "loss_weighting='default' is an older word and taken as 'batches'."
    ]


NUMBERS_AS_TEXT = {
    "learning_rate": ("1e-3", 1e-3),
    "per_device_train_batch_size": ("8.0", 8),
    "max_steps": ("1e3", 1000),
    "num_train_epochs": ("2.5", 2.5),
    "warmup_steps": ("1", 1),
    "weight_decay": ("0", 0),
    "save_total_limit": ("3", 3),
    "seed": ("7", 7),
    "data_seed": ("7", 7),
    "eval_steps": ("0.5", 0.5),
    "logging_steps": ("10", 10),
    "show_samples": ("2", 2),
    "hardest_rows": ("20", 20),
}


def test_numbers_in_text_become_numbers_with_one_notice(caplog):
    """YAML reads 1e-3 as text."""
    warn_once.cache_clear()
    args = TrainingArguments("x", **{name: text for name, (text, _) in NUMBERS_AS_TEXT.items()})
    for name, (_, number) in NUMBERS_AS_TEXT.items():
        value = getattr(args, name)
        assert (value, type(value)) == (number, type(number)), name
    (record,) = [record for record in caplog.records if "given as text" in record.getMessage()]
    assert "learning_rate='1e-3' as 0.001" in record.getMessage()
    assert "seed='7' as 7" in record.getMessage()


def test_every_numeric_setting_reads_text():
    numeric = {name for name, hint in find_types(TrainingArguments).items() if is_numeric(hint)}
    assert {"learning_rate", "seed", "eval_steps", "ddp_timeout"} <= numeric
    for name in numeric:
        # one may be out of range; what is not possible is text
        with contextlib.suppress(ValueError):
            args = TrainingArguments("x", **{name: "1"})
            assert getattr(args, name) == 1, name


@dataclasses.dataclass
class OwnArguments(TrainingArguments):
    temperature: float = 1.0
    name: str = "1"


def test_settings_of_a_users_own_class_are_read_too_and_text_stays_text():
    args = OwnArguments("x", temperature="0.5", name="2")
    assert (args.temperature, args.name) == (0.5, "2")


@pytest.mark.parametrize(
    ("hint", "expected"),
    [(float, True), (int | None, True), ("Optional[int]", True), ("str | float | None", False), (str, False)],
)
def test_types_that_hold_numbers_alone_are_known(hint, expected):
    assert is_numeric(hint) is expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": "fast"}, "learning_rate='fast' is text that is not a number"),
        ({"max_steps": "2.5"}, "max_steps='2.5' is not a whole number"),
        ({"save_total_limit": "all"}, "save_total_limit='all'"),
        ({"learning_rate": "nan"}, "learning_rate=nan is not possible"),
    ],
)
def test_text_that_is_no_number_is_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        TrainingArguments("x", **settings)


# ---- JSON in fields of a subclass ----


@dataclasses.dataclass
class JsonArguments(TrainingArguments):
    _VALID_DICT_FIELDS = [*TrainingArguments._VALID_DICT_FIELDS, "model_init_kwargs"]
    model_init_kwargs: dict | str | None = None
    other: str | None = None


def test_the_fields_that_may_be_json_are_those_of_the_original_and_ours():
    assert set(TrainingArguments._VALID_DICT_FIELDS) >= set(transformers.TrainingArguments._VALID_DICT_FIELDS)
    assert isinstance(TrainingArguments._VALID_DICT_FIELDS, list)  # libraries add a list to it


def test_a_subclass_names_further_fields_that_are_read_as_json():
    given = '{"dtype": "bfloat16", "scale": 0.5, "deep": {"on": true}}'
    args = JsonArguments("x", model_init_kwargs=given, other=given, lr_scheduler_kwargs='{"a": 1}')
    assert args.model_init_kwargs == {"dtype": "bfloat16", "scale": 0.5, "deep": {"on": True}}
    assert args.other == given
    assert args.lr_scheduler_kwargs == {"a": 1}
    with pytest.raises(ValueError, match="model_init_kwargs"):
        JsonArguments("x", model_init_kwargs="{broken")


# ---- accumulation in the settings of Accelerate ----


@pytest.mark.parametrize("num_steps", [3, "given twice"])
def test_num_steps_of_accelerate_becomes_the_accumulation(num_steps):
    config = {"gradient_accumulation_kwargs": {"num_steps": 3}}
    given = {"gradient_accumulation_steps": 3} if num_steps != 3 else {}
    args = TrainingArguments("x", accelerator_config=config, **given)
    assert args.gradient_accumulation_steps == 3
    settle(args)
    assert args.gradient_accumulation_steps == 3
    assert dataclasses.replace(args, seed=1).gradient_accumulation_steps == 3


def test_num_steps_that_contradict_the_accumulation_are_refused():
    config = AcceleratorConfig(gradient_accumulation_kwargs={"num_steps": 3})
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps=2 and num_steps=3 .* contradict"):
        TrainingArguments("x", accelerator_config=config, gradient_accumulation_steps=2)


def test_other_settings_of_accelerates_accumulation_leave_ours_alone():
    config = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    assert TrainingArguments("x", accelerator_config=config).gradient_accumulation_steps == 1


def test_the_parser_of_transformers_changes_no_type_that_is_read_later():
    transformers.HfArgumentParser(TrainingArguments)  # sets Field.type to one member of each union
    assert TrainingArguments("x", save_every="30min").save_every == "30min"
