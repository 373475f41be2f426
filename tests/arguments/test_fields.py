"""The dataclass: fields and defaults of the original, and a class that behaves like any dataclass."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import inspect
import json
import pickle
import typing
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum

import pytest
import transformers
import yaml

from footplate.arguments import Seq2SeqTrainingArguments, TrainingArguments
from footplate.outputs import SchedulerType

OWN_FIELDS = [
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
    "rehearsal",
    "save_full_model",
]
ORIGINAL_FIELDS = dataclasses.fields(transformers.TrainingArguments)


def default_of(a_field):
    is_made = a_field.default_factory is not dataclasses.MISSING
    return a_field.default_factory() if is_made else a_field.default


@dataclass
class MyArguments(TrainingArguments):
    temperature: float = 0.5
    tags: list[str] = field(default_factory=list)


def test_fields_stand_in_the_order_of_the_original_and_ours_follow():
    names = [a_field.name for a_field in dataclasses.fields(TrainingArguments)]
    assert names == [a_field.name for a_field in ORIGINAL_FIELDS] + OWN_FIELDS


@pytest.mark.parametrize("original", ORIGINAL_FIELDS, ids=lambda a_field: a_field.name)
def test_default_equals_the_original(original):
    ours = TrainingArguments.__dataclass_fields__[original.name]
    assert default_of(ours) == default_of(original)
    assert type(default_of(ours)) is type(default_of(original))


@pytest.mark.parametrize("original", ORIGINAL_FIELDS, ids=lambda a_field: a_field.name)
def test_value_after_construction_equals_the_original(original, tmp_path):
    ours = getattr(TrainingArguments(str(tmp_path)), original.name)
    theirs = getattr(transformers.TrainingArguments(str(tmp_path)), original.name)
    if original.name == "accelerator_config":
        ours, theirs = ours.to_dict(), theirs.to_dict() | {"use_configured_state": False}
    assert ours == theirs


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments])
def test_every_field_has_a_help_text(cls):
    assert all(a_field.metadata["help"].endswith(".") for a_field in dataclasses.fields(cls))


def test_output_dir_comes_first_and_has_a_default():
    assert TrainingArguments("runs", 4).per_device_train_batch_size == 4
    assert TrainingArguments().output_dir == transformers.TrainingArguments().output_dir == "trainer_output"


def test_a_list_default_is_not_shared():
    TrainingArguments().include_for_metrics.append("loss")
    assert TrainingArguments().include_for_metrics == []


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments, MyArguments])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda args: pickle.loads(pickle.dumps(args))])
def test_copies_and_pickles_are_equal(cls, duplicate):
    args = cls("runs", learning_rate=3e-4, eval_strategy="steps", overwrite_output_dir=True)
    twin = duplicate(args)
    assert twin == args
    assert twin is not args
    assert twin.overwrite_output_dir is True


def test_replace_changes_one_value_and_keeps_the_rest():
    args = MyArguments("runs", eval_strategy="epoch", hub_token="secret", tags=["a"])
    other = dataclasses.replace(args, learning_rate=1e-3)
    assert other.learning_rate == 1e-3
    assert dataclasses.replace(other, learning_rate=args.learning_rate) == args


def test_a_subclass_takes_its_own_fields_and_old_names():
    args = MyArguments("runs", temperature=0.1, evaluation_strategy="epoch", tags=["x"])
    assert (args.temperature, args.eval_strategy, args.tags) == (0.1, "epoch", ["x"])


def test_a_subclass_may_run_its_own_post_init():
    @dataclass
    class Checked(TrainingArguments):
        scale: float = 1.0

        def __post_init__(self):
            super().__post_init__()
            self.scale *= 2

    assert Checked("runs", scale=3.0).scale == 6.0
    with pytest.raises(ValueError, match="per_device_train_batch_size=0"):
        Checked("runs", per_device_train_batch_size=0)


def test_a_subclass_may_define_a_field_that_was_an_old_name():
    @dataclass
    class WithRatio(TrainingArguments):
        warmup_ratio: float = 0.25

    assert WithRatio("runs").warmup_ratio == 0.25
    assert WithRatio("runs", warmup_ratio=0.5).warmup_ratio == 0.5
    assert WithRatio("runs", warmup_ratio=0.5).warmup_steps == 0


def test_a_subclass_may_mix_in_an_abstract_class():
    class Named(ABC):
        @abstractmethod
        def name(self): ...

    @dataclass
    class Both(TrainingArguments, Named):
        def name(self):
            return self.run_name

    assert Both("runs", run_name="first").name() == "first"


def test_a_subclass_may_write_its_own_constructor():
    class Fixed(TrainingArguments):
        def __init__(self, rate, **kwargs):
            super().__init__("runs", learning_rate=rate, **kwargs)

    args = Fixed(0.1, evaluation_strategy="epoch", max_steps=3)
    assert (args.learning_rate, args.eval_strategy, args.max_steps) == (0.1, "epoch", 3)


@pytest.mark.parametrize("cls", [TrainingArguments, MyArguments])
def test_printing_never_shows_a_token(cls):
    args = cls("runs", hub_token="secret")
    for text in (str(args), repr(args), f"{args}"):
        assert "secret" not in text
        assert "hub_token=<HUB_TOKEN>" in text
        assert text.startswith(f"{cls.__name__}(")


def test_printing_lists_the_settings_by_name_as_the_original_does():
    def names(args):
        return [line.split("=")[0] for line in str(args).splitlines()[1:-1]]

    ours, theirs = names(TrainingArguments("runs")), names(transformers.TrainingArguments("runs"))
    assert [name for name in ours if name not in OWN_FIELDS] == theirs
    assert ours == sorted(ours)


# ---- what tools read of the class ----


@dataclass
class Documented(Seq2SeqTrainingArguments):
    """Fields of three modules."""

    scale: float | None = None


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments, MyArguments, Documented])
def test_the_signature_shows_the_fields_with_their_defaults(cls):
    parameters = inspect.signature(cls).parameters
    fields = [a_field for a_field in dataclasses.fields(cls) if a_field.init]
    assert list(parameters) == [a_field.name for a_field in fields]
    assert parameters["learning_rate"].default == 5e-5
    assert parameters["output_dir"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_settings_can_be_filtered_by_the_signature():
    settings = {"learning_rate": 0.1, "evaluation_strategy": "epoch", "batch": 3, "temperature": 2.0}
    known = {
        name: value for name, value in settings.items() if name in inspect.signature(MyArguments).parameters
    }
    assert known == {"learning_rate": 0.1, "temperature": 2.0}
    assert MyArguments("runs", **known).temperature == 2.0


def test_the_signature_of_a_constructor_of_its_own_is_shown():
    class Fixed(TrainingArguments):
        def __init__(self, rate, **kwargs):
            super().__init__("runs", learning_rate=rate, **kwargs)

    assert str(inspect.signature(Fixed)) == "(rate, **kwargs)"


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments, MyArguments, Documented])
@pytest.mark.parametrize("where", [lambda cls: cls, lambda cls: cls.__init__], ids=["class", "constructor"])
def test_every_annotation_resolves_also_in_another_module(cls, where):
    hints = typing.get_type_hints(where(cls))
    assert {a_field.name for a_field in dataclasses.fields(cls)} <= hints.keys()
    assert not any(isinstance(hint, str) for hint in hints.values())
    assert hints["lr_scheduler_type"] == SchedulerType | str


def parameters_of(function):
    return set(inspect.signature(function).parameters) - {"self"}


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments])
def test_metadata_hold_what_argparse_takes_and_nothing_else(cls):
    taken = parameters_of(argparse.Action.__init__) | {"aliases"}  # which every parser of such classes reads
    for a_field in dataclasses.fields(cls):
        assert a_field.metadata.keys() <= taken, a_field.name


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("eval_strategy", "steps"),
        ("logging_strategy", "epoch"),
        ("save_strategy", "best"),
        ("hub_strategy", "end"),
        ("lr_scheduler_type", "cosine"),
        ("optim", "adafactor"),
    ],
)
def test_strategies_are_members_that_equal_and_print_as_text(name, given):
    settings = {"eval_strategy": "epoch", name: given}
    args = TrainingArguments("runs", **settings)
    value, theirs = getattr(args, name), getattr(transformers.TrainingArguments("runs", **settings), name)
    assert isinstance(value, Enum)
    assert value == given == theirs
    assert value.value == theirs.value == given
    assert f"{value} {value!s}" == f"{given} {given}"
    assert value.name == theirs.name
    assert json.dumps(value) == json.dumps(given)
    assert type(args.to_dict()[name]) is str
    assert yaml.safe_load(yaml.safe_dump(args.to_dict()))[name] == given


@pytest.mark.parametrize(
    "name", ["default_optim", "deepspeed_plugin", "fsdp_plugin_args", "_n_gpu", "local_rank"]
)
def test_what_libraries_ask_for_besides_the_fields_equals_the_original(name):
    settings = {"use_cpu": True}
    ours = getattr(TrainingArguments("runs", **settings), name)
    assert ours == getattr(transformers.TrainingArguments("runs", **settings), name)


def test_default_optim_can_be_read_from_the_class():
    assert TrainingArguments.default_optim == transformers.TrainingArguments.default_optim
    assert TrainingArguments("runs").optim == TrainingArguments.default_optim


def test_the_number_of_accelerators_can_be_set_as_people_do():
    args = TrainingArguments("runs", use_cpu=True)
    args._n_gpu = 1
    assert args.n_gpu == 1


def test_the_state_of_accelerate_is_that_of_this_process():
    state = TrainingArguments("runs", use_cpu=True).distributed_state
    assert (state.num_processes, state.process_index, state.device.type) == (1, 0, "cpu")
    with state.main_process_first():
        assert state.is_main_process
