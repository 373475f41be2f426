"""The parser: the original's results on the same dataclasses, and files with overrides beyond it."""

# ruff: noqa: RUF009 (`HfArg` returns a dataclass field, made anew at each call)

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import Namespace
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Optional

import pytest
import transformers
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from footplate.arguments import (
    AcceleratorConfig,
    HfArg,
    HfArgumentParser,
    Seq2SeqTrainingArguments,
    TrainingArguments,
)
from footplate.arguments.headings import ADDED_HEADING, heading_of
from footplate.arguments.notices import warn_once
from footplate.arguments.old_names import OLD_NAMES
from footplate.arguments.parser import LAST_HEADINGS
from footplate.outputs import IntervalStrategy, OptimizerNames, SchedulerType


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Number(Enum):
    ONE = 1
    TWO = 2


@dataclass
class Basic:
    foo: int
    bar: float
    baz: str
    flag: bool


@dataclass
class Defaults:
    foo: int = 42
    baz: str = field(default="toto", metadata={"help": "help message"})
    on: bool = True
    off: bool = False
    maybe: bool | None = None


@dataclass
class Choices:
    color: Color = "red"
    number: Number = 1
    literal: Literal["a", "b", 42] = "a"
    chosen: str = field(default="x", metadata={"choices": ["x", "y"]})


@dataclass
class Lists:
    ints: list[int] = field(default_factory=list)
    words: list[str] = field(default_factory=lambda: ["Hello", "world"])
    floats: list[float] = field(default_factory=lambda: [0.1, 0.2])
    required: list[int] = field(default_factory=list)


@dataclass
class Optionals:
    foo: int | None = None
    bar: Optional[float] = field(default=None, metadata={"help": "help message"})  # noqa: UP045
    baz: str | None = None
    words: list[str] | None = None
    ints: list[int] | None = None


@dataclass
class Aliased:
    size: int = HfArg(default=1, aliases=["--sz", "-s"], help="A size.")
    names: list[str] = HfArg(default_factory=list, aliases="-n", metadata={"metavar": "NAME"})


@dataclass
class Grouped:
    _argument_group_name = "my own heading"
    depth: int = 2


@dataclass
class WithConfig:
    config: str = "base"
    rate: float = 0.5


SAME_AS_ORIGINAL = [
    (Basic, ["--foo", "1", "--bar", "0.5", "--baz", "quux", "--flag"]),
    (Basic, ["--foo", "1", "--bar", "0.5", "--baz", "quux"]),
    (Basic, ["--foo=1", "--bar=0.5", "--baz=quux", "--flag", "false"]),
    (Defaults, []),
    (Defaults, ["--foo", "12", "--baz", "x"]),
    (Defaults, ["--on", "--off", "--maybe", "True"]),
    (Defaults, ["--on", "False", "--off", "yes", "--maybe", "no"]),
    (Defaults, ["--no_on"]),
    (Defaults, ["--no-on", "--off", "1"]),
    (Choices, []),
    (Choices, ["--color", "green", "--number", "2", "--literal", "42", "--chosen", "y"]),
    (Lists, []),
    (Lists, ["--ints", "1", "2", "--words", "a", "b", "c", "--floats", "0.7"]),
    (Optionals, []),
    (Optionals, ["--foo", "12", "--bar", "3.14", "--baz", "42", "--words", "a", "b", "--ints", "1", "2"]),
    (Aliased, ["--sz", "3", "-n", "a", "b"]),
    (Aliased, ["-s", "3", "--names", "a"]),
    (Grouped, ["--depth", "3"]),
]


@pytest.mark.parametrize(
    ("cls", "words"), SAME_AS_ORIGINAL, ids=[f"{c.__name__}-{w}" for c, w in SAME_AS_ORIGINAL]
)
def test_command_line_gives_what_the_original_gives(cls, words):
    (ours,) = HfArgumentParser(cls).parse_args_into_dataclasses(words, look_for_args_file=False)
    (theirs,) = transformers.HfArgumentParser(cls).parse_args_into_dataclasses(
        words, look_for_args_file=False
    )
    assert ours == theirs


TRAINING_WORDS = [
    ["--output_dir", "runs"],
    [
        "--output-dir",
        "runs",
        "--learning-rate",
        "1e-4",
        "--num_train_epochs",
        "2.5",
        "--do_train",
        "--max_steps",
        "7",
    ],
    [
        "--eval_strategy",
        "steps",
        "--eval_steps",
        "0.1",
        "--lr_scheduler_type",
        "cosine",
        "--optim",
        "adafactor",
    ],
    ["--lr_scheduler_kwargs", '{"min_lr": "0.1", "n": 3}', "--include_for_metrics", "inputs", "loss"],
    [
        "--label_names",
        "a",
        "b",
        "--report_to",
        "tensorboard",
        "--disable_tqdm",
        "true",
        "--greater_is_better",
        "false",
    ],
    [
        "--no_dataloader_pin_memory",
        "--bf16",
        "False",
        "--use_cpu",
        "--warmup_steps",
        "0.1",
        "--save_total_limit",
        "3",
    ],
    [
        "--accelerator_config",
        '{"split_batches": true}',
        "--debug",
        "underflow_overflow",
        "--logging_steps",
        "10",
    ],
]


@pytest.mark.parametrize("words", TRAINING_WORDS, ids=str)
def test_training_arguments_come_out_as_in_the_original(words):
    (ours,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
    (theirs,) = transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses(
        words
    )
    expected = theirs.to_dict()
    expected["accelerator_config"]["use_configured_state"] = False
    assert {name: value for name, value in ours.to_dict().items() if name in expected} == expected


def parse(cls, *words, **kwargs):
    return HfArgumentParser(cls).parse_args_into_dataclasses(list(words), **kwargs)


def test_a_missing_required_option_ends_with_its_name(capsys):
    with pytest.raises(SystemExit):
        parse(Basic, "--foo", "1")
    assert "required: --bar" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--foo", "x"], "argument --foo: invalid literal"),
        (["--on", "perhaps"], "argument --on/--no_on: 'perhaps' is neither true nor false"),
        (["--no_on", "true"], "--no_on takes no value, but 'true' was given"),
    ],
)
def test_a_value_of_the_wrong_type_ends_with_a_reason(words, message, capsys):
    with pytest.raises(SystemExit):
        parse(Defaults, *words)
    assert message.replace("/--no_on", "") in capsys.readouterr().err.replace("/--no_on/--no-on", "")


def test_a_word_outside_the_choices_ends_with_a_suggestion(capsys):
    with pytest.raises(SystemExit):
        parse(TrainingArguments, "--optim", "adamw_torc")
    assert "Did you mean 'adamw_torch'?" in capsys.readouterr().err


def test_a_flag_without_default_and_every_no_form_work():
    assert parse(Defaults, "--maybe")[0].maybe is True
    assert parse(Defaults, "--no_maybe")[0].maybe is False
    assert parse(Defaults, "--off", "--no_off")[0].off is False


def test_an_unknown_option_raises_with_a_suggestion():
    with pytest.raises(ValueError, match=r"--lerning_rate\. Did you mean '--learning_rate'\?"):
        parse(TrainingArguments, "--lerning_rate", "1")


def test_what_nobody_knows_is_returned_if_asked_for():
    args, remaining = parse(Defaults, "--foo", "1", "--other", "x", return_remaining_strings=True)
    assert args.foo == 1
    assert remaining == ["--other", "x"]


def test_several_dataclasses_and_further_arguments_share_the_line():
    parser = HfArgumentParser([Defaults, Grouped])
    parser.add_argument("--extra", type=int, default=5)
    first, second, rest = parser.parse_args_into_dataclasses(["--foo", "1", "--depth", "9", "--extra", "6"])
    assert (first.foo, second.depth, rest) == (1, 9, Namespace(extra=6))


def test_plain_argparse_use_and_set_defaults_work():
    parser = HfArgumentParser(Defaults)
    assert parser.parse_args([]) == Namespace(foo=42, baz="toto", on=True, off=False, maybe=None)
    parser.set_defaults(foo=7)
    assert parser.parse_args_into_dataclasses([])[0].foo == 7


def test_old_names_work_on_the_command_line():
    words = [
        "--evaluation_strategy",
        "epoch",
        "--per-gpu-train-batch-size",
        "3",
        "--no_cuda",
        "--warmup_ratio",
        "0.1",
    ]
    (args,) = parse(TrainingArguments, *words, "--overwrite_output_dir", "--output_dir", "runs")
    assert (args.eval_strategy, args.per_device_train_batch_size) == ("epoch", 3)
    assert (args.use_cpu, args.warmup_steps, args.overwrite_output_dir) == (True, 0.1, True)


@pytest.mark.parametrize("name", sorted(OLD_NAMES))
def test_every_old_name_is_an_option(name):
    old = OLD_NAMES[name]
    text = {bool: "true", int: "3", float: "0.5"}.get(old.hint, "eager")
    namespace = HfArgumentParser(TrainingArguments).parse_args([f"--{name}", text])
    assert getattr(namespace, name) == {bool: True, int: 3, float: 0.5}.get(old.hint, "eager")


def test_another_dataclass_may_own_a_name_of_the_past():
    @dataclass
    class Model:
        past_index: int = 0

    model, args = HfArgumentParser([Model, TrainingArguments]).parse_args_into_dataclasses(
        ["--past_index", "4"]
    )
    assert model.past_index == 4
    assert args.past_index == -1


def write(path, values):
    path.write_text(json.dumps(values) if path.suffix == ".json" else yaml.safe_dump(values))
    return str(path)


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
def test_a_config_file_is_overridden_by_the_command_line(tmp_path, suffix):
    path = write(
        tmp_path / f"run.{suffix}", {"output_dir": "a", "learning_rate": 0.5, "do_train": True, "bf16": False}
    )
    for words in (["--config", path], [f"--config={path}"], [path]):
        (args,) = parse(TrainingArguments, *words, "--learning_rate", "1e-4")
        assert (args.output_dir, args.learning_rate, args.do_train, args.bf16) == ("a", 1e-4, True, False)


def test_a_later_config_file_overrides_an_earlier_one(tmp_path):
    first = write(tmp_path / "a.yaml", {"foo": 1, "baz": "first"})
    second = write(tmp_path / "b.json", {"foo": 2})
    (args,) = parse(Defaults, "--config", first, "--config", second)
    assert (args.foo, args.baz) == (2, "first")


def test_a_required_option_may_come_from_a_file(tmp_path):
    path = write(tmp_path / "run.json", {"foo": 1, "bar": 0.5})
    parser = HfArgumentParser(Basic)
    (args,) = parser.parse_args_into_dataclasses([path, "--baz", "x"])
    assert args == Basic(1, 0.5, "x", False)
    with pytest.raises(SystemExit):  # and stays required without it
        parser.parse_args_into_dataclasses(["--baz", "x"])


def test_a_dataclass_with_a_config_field_keeps_the_option():
    assert parse(WithConfig, "--config", "mine")[0].config == "mine"


def test_a_script_may_add_its_own_config_option():
    parser = HfArgumentParser(Defaults)
    parser.add_argument("--config")
    assert parser.parse_args_into_dataclasses(["--config", "x.yaml"])[1] == Namespace(config="x.yaml")


def test_a_config_option_without_a_file_or_of_another_kind_raises(tmp_path):
    with pytest.raises(ValueError, match="--config is the last word"):
        parse(Defaults, "--config")
    with pytest.raises(ValueError, match=r"run\.toml is not a config file"):
        parse(Defaults, "--config", "run.toml")
    with pytest.raises(ValueError, match="holds a list, not settings by name"):
        parse(Defaults, "--config", write(tmp_path / "run.yaml", [1, 2]))


def test_an_unknown_key_of_a_file_raises_with_file_and_suggestion(tmp_path):
    path = write(tmp_path / "run.yaml", {"lerning_rate": 0.1})
    for call in (
        lambda: parse(TrainingArguments, "--config", path),
        lambda: HfArgumentParser(TrainingArguments).parse_yaml_file(path),
        lambda: HfArgumentParser(TrainingArguments).parse_dict({"lerning_rate": 0.1}),
    ):
        with pytest.raises(ValueError, match=r"'lerning_rate'\. Did you mean 'learning_rate'\?"):
            call()


def test_extra_keys_are_left_out_if_allowed():
    (args,) = HfArgumentParser(Defaults).parse_dict({"foo": 1, "other": 2}, allow_extra_keys=True)
    assert args == Defaults(foo=1)


def test_traps_of_yaml_are_stepped_over(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "learning_rate: 1e-4\neval_strategy: no\nlogging_nan_inf_filter: off\nmax_grad_norm: null\n"
    )
    (args,) = HfArgumentParser(TrainingArguments).parse_yaml_file(path)
    assert (args.learning_rate, args.eval_strategy) == (1e-4, "no")
    assert (args.logging_nan_inf_filter, args.max_grad_norm) == (False, None)


def test_text_in_a_file_that_is_no_number_is_refused_by_name(tmp_path):
    path = write(tmp_path / "run.yaml", {"learning_rate": "fast"})
    with pytest.raises(ValueError, match="learning_rate='fast'"):
        HfArgumentParser(TrainingArguments).parse_yaml_file(path)


# what is one option in the original stays one, though we have more; and one option in two spellings is one
ABBREVIATED = {
    "--learning_r": ("--learning_rate", {"learning_rate": 3.0}),
    "--learning": ("--learning_rate", {"learning_rate": 3.0}),  # not "--learning_rate or --learning-rate?"
    "--num_train": ("--num_train_epochs", {"num_train_epochs": 3.0}),
    "--max_s": ("--max_steps", {"max_steps": 3}),
    "--warmup": ("--warmup_steps", {"warmup_steps": 3.0}),  # `warmup_ratio` is an old name
    "--eval_a": ("--eval_accumulation_steps", {"eval_accumulation_steps": 3}),
}


@pytest.mark.parametrize("word", ABBREVIATED)
@pytest.mark.parametrize("written", ["apart", "with ="])
def test_an_abbreviated_flag_says_which_flag_was_meant(word, written, caplog):
    warn_once.cache_clear()
    meant, expected = ABBREVIATED[word]
    words = [word, "3"] if written == "apart" else [f"{word}=3"]
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words, look_for_args_file=False)
    assert {name: getattr(args, name) for name in expected} == expected
    assert f"{word} was read as {meant}" in caplog.text


def test_an_abbreviation_of_several_flags_is_refused_with_each_of_them_once(capsys):
    with pytest.raises(SystemExit):
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
            ["--lr", "3"], look_for_args_file=False
        )
    assert "--lr could match --lr_scheduler_type, --lr_scheduler_kwargs\n" in capsys.readouterr().err


def test_a_flag_in_full_gives_no_notice(caplog):
    warn_once.cache_clear()
    HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
        ["--learning-rate", "1e-3", "--fp16=false"], look_for_args_file=False
    )
    assert "was read as" not in caplog.text


def test_yaml_without_its_package_names_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path / "run.yaml", {"foo": 1})
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImportError, match=r"pip install footplate\[yaml\]"):
        HfArgumentParser(Defaults).parse_yaml_file(path)


def test_an_empty_yaml_file_gives_the_defaults(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("# nothing yet\n")
    assert HfArgumentParser(Defaults).parse_yaml_file(path) == (Defaults(),)


def test_files_and_dictionaries_give_what_the_original_gives(tmp_path):
    values = {"foo": 3, "baz": "x", "on": False, "maybe": None}
    ours, theirs = HfArgumentParser(Defaults), transformers.HfArgumentParser(Defaults)
    json_file = write(tmp_path / "a.json", values)
    yaml_file = write(tmp_path / "a.yaml", values)
    assert ours.parse_dict(values) == theirs.parse_dict(values)
    assert ours.parse_json_file(json_file) == theirs.parse_json_file(json_file)
    assert ours.parse_yaml_file(yaml_file) == theirs.parse_yaml_file(yaml_file)


def test_old_names_work_in_files(tmp_path):
    path = write(tmp_path / "run.yaml", {"evaluation_strategy": "steps", "warmup_ratio": "1e-1"})
    (args,) = HfArgumentParser(TrainingArguments).parse_yaml_file(path)
    assert (args.eval_strategy, args.warmup_steps) == ("steps", 0.1)


def test_files_of_words_are_read_before_the_line(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    (tmp_path / "train.args").write_text("--foo 1 --baz file")
    other = tmp_path / "other.args"
    other.write_text("--foo 2")
    monkeypatch.setattr(sys, "argv", [str(script), "--baz", "line"])
    parser = HfArgumentParser(Defaults)
    assert parser.parse_args_into_dataclasses()[0] == Defaults(foo=1, baz="line")
    assert parser.parse_args_into_dataclasses(look_for_args_file=False)[0] == Defaults(baz="line")
    assert parser.parse_args_into_dataclasses(args_filename=str(other))[0] == Defaults(foo=2, baz="line")
    words = ["--args", str(other), "--on", "false"]
    (args,) = parser.parse_args_into_dataclasses(words, args_file_flag="--args")
    assert args == Defaults(foo=2, baz="file", on=False)


def test_types_written_as_text_resolve_and_unknown_ones_say_so():
    @dataclass
    class Broken:
        value: NoSuchType = None  # noqa: F821

    with pytest.raises(RuntimeError, match="type hints of Broken cannot be resolved"):
        HfArgumentParser(Broken)


def test_fields_that_the_constructor_does_not_take_are_no_options():
    @dataclass
    class Partial:
        given: int = 1
        made: int = field(init=False, default=2)

    parser = HfArgumentParser(Partial)
    assert "--made" not in parser.format_help()
    assert parser.parse_args_into_dataclasses(["--given", "5"])[0].made == 2


def test_a_parser_without_dataclasses_is_plain_argparse():
    parser = HfArgumentParser()
    parser.add_argument("--x", type=int)
    assert parser.parse_args_into_dataclasses(["--x", "1"]) == (Namespace(x=1),)


def test_help_is_grouped_short_and_shows_defaults():
    text = HfArgumentParser([Grouped, Seq2SeqTrainingArguments]).format_help()
    for heading in ("my own heading:", "Learning rate:", "Evaluation:", "Data:", "Generation:"):
        assert f"\n{heading}\n" in text
    assert "--learning_rate FLOAT" in text
    assert "(default: 5e-05)" in text
    assert "--[no_]bf16" in text
    assert "--learning-rate" not in text  # one spelling is enough to read
    assert "evaluation_strategy" not in text
    assert text.count("usage:") == 1
    assert len(text.split("\n\n")[0]) < 120  # not every option in the usage line


def headings(*classes):
    """The headings of the help, in order."""
    lines = HfArgumentParser(classes).format_help().splitlines()
    return [line.removesuffix(":") for line in lines if line.endswith(":") and not line.startswith(" ")]


@pytest.mark.parametrize(
    ("classes", "first"),
    [
        ((TrainingArguments,), ["options", ADDED_HEADING, "Output"]),
        ((Grouped, Seq2SeqTrainingArguments), ["options", "my own heading", ADDED_HEADING]),
        ((Seq2SeqTrainingArguments, Grouped), ["options", ADDED_HEADING, "Output"]),
    ],
)
def test_help_begins_with_what_is_added_and_ends_with_what_has_no_effect(classes, first):
    found = headings(*classes)
    assert found[: len(first)] == first
    assert found[-2:] == list(LAST_HEADINGS)
    assert len(found) == len(set(found))


def test_every_own_setting_stands_under_the_first_heading():
    text = HfArgumentParser(TrainingArguments).format_help()
    added = text.split(f"{ADDED_HEADING}:")[1].split("\n\n")[0]
    fields = dataclasses.fields(TrainingArguments)
    names = [field.name for field in fields if heading_of(field) == ADDED_HEADING]
    assert len(names) == 26
    assert all(name in added for name in names)


def test_the_default_of_a_flag_is_shown_only_if_it_is_true():
    actions = {action.dest: action for action in PARSER._actions}
    formatter = PARSER._get_formatter()
    assert formatter._get_help_string(actions["report"]).endswith("(default: %(default)s)")
    assert formatter._get_help_string(actions["warmup_steps"]).endswith("(default: %(default)s)")
    assert "default" not in formatter._get_help_string(actions["bf16"])


def test_an_older_word_is_accepted_and_not_shown():
    assert parse(TrainingArguments, "--loss_weighting", "default")[0].loss_weighting == "batches"
    assert "--loss_weighting {batches,items} " in HfArgumentParser(TrainingArguments).format_help()


def argv_of(args: TrainingArguments) -> list[str]:
    """The settings as words of a command line."""
    words = []
    for name, value in args.to_dict().items():
        if value is None or name in ("hub_token", "parallelism_config"):
            continue
        if isinstance(value, dict):
            value = [json.dumps(value)]
        elif isinstance(value, list):
            value = [json.dumps(item) if isinstance(item, dict) else str(item) for item in value]
        else:
            value = [str(value)]
        words += [f"--{name}", *value]
    return words


NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
RUNS: dict[str, Any] = {
    "output_dir": NAMES,
    "per_device_train_batch_size": st.integers(1, 1000),
    "num_train_epochs": st.floats(0, 100),
    "max_steps": st.integers(-1, 10**6),
    "learning_rate": st.floats(0, 1),
    "lr_scheduler_type": st.sampled_from(["linear", "cosine", SchedulerType.CONSTANT]),
    "lr_scheduler_kwargs": st.none()
    | st.dictionaries(NAMES, st.integers() | st.booleans() | st.floats(-9, 9)),
    "warmup_steps": st.integers(0, 100) | st.floats(0, 0.99),
    "optim": st.sampled_from(list(OptimizerNames)),
    "optim_target_modules": st.none() | st.just("all-linear") | st.lists(NAMES, min_size=2),
    "bf16": st.booleans(),
    "tf32": st.sampled_from([None, False]),
    "logging_steps": st.integers(1, 1000) | st.floats(0.001, 0.99),
    "include_num_input_tokens_seen": st.sampled_from([True, False, "all", "non_padding", "no"]),
    "disable_tqdm": st.sampled_from([None, True, False]),
    "report_to": st.sampled_from([None, "none", "tensorboard", ["tensorboard", "wandb"]]),
    "trackio_static_space_id": st.sampled_from([None, False, "me/space"]),
    "eval_strategy": st.sampled_from(["no", "epoch", IntervalStrategy.STEPS]),
    "include_for_metrics": st.lists(st.sampled_from(["inputs", "loss"]), unique=True),
    "save_total_limit": st.none() | st.integers(1, 9),
    "hub_private_repo": st.sampled_from([None, True, False]),
    "greater_is_better": st.sampled_from([None, True, False]),
    "metric_for_best_model": st.none() | NAMES,
    "data_seed": st.none() | st.integers(0, 99),
    "use_cpu": st.booleans(),
    "accelerator_config": st.sampled_from([None, {"even_batches": False}]),
    "dataloader_pin_memory": st.booleans(),
    "label_names": st.none() | st.lists(NAMES),
    "fsdp_config": st.sampled_from([None, {"min_num_params": 3}]),
    "debug": st.sampled_from(["", "underflow_overflow", "underflow_overflow tpu_metrics_debug"]),
    "keep_columns": st.none() | st.lists(NAMES),
    "param_groups": st.none()
    | st.lists(st.just({"match": "head.*", "lr": 0.1}) | st.just({"layer_decay": 0.9})),
    "run_name": st.none() | NAMES,
}
SLOW_START = hypothesis_settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
PARSER = HfArgumentParser(TrainingArguments)


@SLOW_START
@given(st.fixed_dictionaries({}, optional=RUNS))
def test_any_settings_survive_json_and_yaml(values):
    args = TrainingArguments(**values)
    assert PARSER.parse_dict(json.loads(args.to_json_string())) == (args,)
    assert PARSER.parse_dict(yaml.safe_load(yaml.safe_dump(args.to_dict()))) == (args,)


@SLOW_START
@given(st.fixed_dictionaries({}, optional=RUNS))
def test_any_settings_survive_the_command_line(values):
    args = TrainingArguments(**values)
    assert PARSER.parse_args_into_dataclasses(argv_of(args), look_for_args_file=False) == (args,)


def test_every_field_can_be_given_on_the_command_line():
    options = PARSER.format_help()
    assert all(f.name in options for f in dataclasses.fields(TrainingArguments))


@dataclass
class ScriptData:
    max_eval_samples: int | None = field(default=None, metadata={"help": "The script's own."})
    report: str = "here"


@pytest.mark.parametrize("order", [(ScriptData, TrainingArguments), (TrainingArguments, ScriptData)])
def test_a_field_of_ours_makes_way_for_a_script_that_has_the_name(order):
    words = ["--output_dir", "x", "--max_eval_samples", "7", "--report", "there"]
    filled = HfArgumentParser(order).parse_args_into_dataclasses(words, look_for_args_file=False)
    data, args = (
        next(part for part in filled if isinstance(part, cls)) for cls in (ScriptData, TrainingArguments)
    )
    assert (data.max_eval_samples, data.report) == (7, "there")
    assert (args.max_eval_samples, args.report) == (None, True)


def test_a_name_of_the_original_in_two_dataclasses_is_still_a_conflict():
    @dataclass
    class Twice:
        learning_rate: float = 0.1

    for library in (transformers.HfArgumentParser, HfArgumentParser):
        arguments = TrainingArguments if library is HfArgumentParser else transformers.TrainingArguments
        with pytest.raises(Exception, match="learning_rate"):
            library((Twice, arguments))


# ---- the parser of transformers, and others built on it, read our classes ----


def parse_with_original(cls, *words):
    parser = transformers.HfArgumentParser(cls)
    (args,) = parser.parse_args_into_dataclasses(["--output_dir", "runs", *words], look_for_args_file=False)
    return args


@dataclass
class ClientArguments(TrainingArguments):
    """As a library writes them, on our class."""

    _VALID_DICT_FIELDS = [*TrainingArguments._VALID_DICT_FIELDS, "model_init_kwargs"]
    model_init_kwargs: dict | str | None = field(default=None, metadata={"help": "For the model."})
    beta: float = field(default=0.1, metadata={"help": "Strength."})


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        (["--learning_rate", "1e-3"], "learning_rate", 1e-3),
        (["--bf16"], "bf16", True),
        (["--no_dataloader_pin_memory"], "dataloader_pin_memory", False),
        (["--eval_strategy", "epoch"], "eval_strategy", "epoch"),
        (["--lr_scheduler_type", "cosine"], "lr_scheduler_type", "cosine"),
        (["--lr_scheduler_kwargs", '{"num_cycles": 2}'], "lr_scheduler_kwargs", {"num_cycles": 2}),
        (["--accelerator_config", '{"split_batches": true}'], "accelerator_config", AcceleratorConfig(True)),
        (["--report_to", "none"], "report_to", []),
        (["--label_names", "a", "b"], "label_names", ["a", "b"]),
        (["--tf32", "false"], "tf32", False),
        (["--save_every", "30min"], "save_every", "30min"),
        (["--max_time", "90"], "max_time_seconds", 90.0),
        (["--eval_memory_limit", "2GB"], "eval_memory_limit", "2GB"),
        (["--param_groups", '[{"match": "a.*", "lr": 0.1}]'], "param_groups", [{"match": "a.*", "lr": 0.1}]),
        (["--sample_weights", "weight", "--train_sampling_strategy", "weighted"], "sample_weights", "weight"),
        (["--max_shard_size", "5GB"], "max_shard_size", "5GB"),
        (["--metrics_on", "first_rank"], "metrics_on", "first_rank"),
        (["--hang_timeout", "2min"], "hang_seconds", 120.0),
        (["--order_memory_limit", "1GB"], "order_memory_limit", "1GB"),
        (["--dataloader_prefetch_to_device", "false"], "dataloader_prefetch_to_device", False),
        (["--save_full_model"], "save_full_model", True),
        (["--train_sampling_strategy", "keyed"], "train_sampling_strategy", "keyed"),
        (["--model_init_kwargs", '{"a": 1}'], "model_init_kwargs", {"a": 1}),
        (["--beta", "0.5"], "beta", 0.5),
    ],
)
def test_the_parser_of_transformers_fills_our_class_and_a_librarys_subclass(words, name, expected):
    assert getattr(parse_with_original(ClientArguments, *words), name) == expected


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments])
def test_the_parser_of_transformers_gives_our_defaults(cls):
    assert parse_with_original(cls) == cls("runs")


def test_the_parser_of_transformers_fills_the_settings_of_generation():
    args = parse_with_original(
        Seq2SeqTrainingArguments, "--predict_with_generate", "--generation_config", "a/b"
    )
    assert (args.predict_with_generate, args.generation_config) == (True, "a/b")


def test_the_parser_of_transformers_shows_its_help():
    text = transformers.HfArgumentParser(TrainingArguments).format_help()
    assert "--save_on_error" in text
    assert "Updates to train" in text
