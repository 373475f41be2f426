"""No setting is silent: each is read, refused, or in the table of those without effect."""

from __future__ import annotations

import ast
import dataclasses
import logging
from pathlib import Path

import pytest

import footplate
import tiny
from footplate import Trainer, comm
from footplate.arguments import AcceleratorConfig, Seq2SeqTrainingArguments, TrainingArguments
from footplate.arguments.headings import heading_of
from footplate.arguments.notices import warn_once
from footplate.arguments.parser import HfArgumentParser
from footplate.arguments.unsupported import (
    NO_EFFECT,
    NO_EFFECT_HEADING,
    REFUSED,
    REFUSED_HEADING,
    check_supported,
)
from footplate.distributed.ddp import _OPTIONS as DDP_OPTIONS

SOURCE = Path(footplate.__file__).parent
FIELDS = {field.name: field for field in dataclasses.fields(Seq2SeqTrainingArguments)}
# Fields that other folders read under another name: of a property, or of a function that gets the arguments.
READ_AS = {
    "per_device_eval_batch_size": "eval_batch_size",
    "bf16": "mixed_precision",
    "fp16": "mixed_precision",
    "use_cpu": "device",
    "save_every": "save_every_seconds",
    "max_time": "max_time_seconds",
    "hang_timeout": "hang_seconds",
    "fsdp": "sharding",
    "fsdp_config": "sharding",
    "parallelism_config": "sharding",
    "save_on_each_node": "should_save",
    "log_level": "apply_log_level",
    "log_level_replica": "apply_log_level",
    "log_on_each_node": "apply_log_level",
    "logging_steps": "compute_steps",
    "eval_steps": "compute_steps",
    "save_steps": "compute_steps",
}
# the constructor of the arguments does all there is to do
ACT_AT_ONCE = {"tf32", "sortish_sampler", "ddp_backend", "ddp_timeout"}
READ_BY_TABLE = {f"ddp_{name}" for name in DDP_OPTIONS}
FOR_SCRIPTS = {"do_train", "do_eval", "do_predict", "resume_from_checkpoint", "local_rank"}


def names_read(file: Path) -> set[str]:
    """What a file reads: `args.x` in any way, `run.settings.get("x")`, and functions it calls with `args`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = ast.unparse(node.value)
            if owner.split(".")[-1] in ("args", "accelerator_config"):
                found.add(node.attr)
        elif isinstance(node, ast.Call):
            called, given = ast.unparse(node.func), [ast.unparse(argument) for argument in node.args]
            if called == "run.settings.get":
                found.add(ast.literal_eval(given[0]))
            elif called == "getattr" and given[0] == "args" and isinstance(node.args[1], ast.Constant):
                found.add(node.args[1].value)
            elif any(text.split(".")[-1] == "args" for text in given):
                found.add(called.split(".")[-1])
    return found


READ = set().union(
    *(names_read(file) for file in SOURCE.rglob("*.py") if "arguments" not in file.relative_to(SOURCE).parts)
)


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_is_read_refused_or_without_effect(name):
    is_read = name in READ or READ_AS.get(name) in READ or name in ACT_AT_ONCE | FOR_SCRIPTS | READ_BY_TABLE
    assert is_read + (name in NO_EFFECT) + (name in REFUSED) == 1


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(AcceleratorConfig)])
def test_every_entry_of_the_accelerator_config_is_read_or_without_effect(name):
    assert (name in READ) + (f"accelerator_config.{name}" in NO_EFFECT) == 1


def test_the_lists_hold_nothing_but_settings():
    entries = {f"accelerator_config.{field.name}" for field in dataclasses.fields(AcceleratorConfig)}
    assert {*REFUSED, *READ_AS, *ACT_AT_ONCE, *FOR_SCRIPTS, *READ_BY_TABLE} <= FIELDS.keys()
    assert NO_EFFECT.keys() <= FIELDS.keys() | entries


# A value for every setting without effect: other than the default, and allowed.
VALUES = {
    **dict.fromkeys(NO_EFFECT, True),
    "trackio_static_space_id": "me/space",
    "eval_accumulation_steps": 4,
    "accelerator_config.use_seedable_sampler": False,
}


def settings_with(path):
    """The arguments that set one row of the table."""
    owner, _, name = path.rpartition(".")
    return {owner: {name: VALUES[path]}} if owner else {name: VALUES[path]}


@pytest.mark.parametrize("path", NO_EFFECT)
def test_a_setting_without_effect_is_warned_of_once(path, caplog):
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="footplate"):
        for _ in range(2):
            args = TrainingArguments("runs", **settings_with(path))
    assert [record.getMessage() for record in caplog.records] == [f"{path} has no effect: {NO_EFFECT[path]}."]
    assert TrainingArguments(**args.to_dict() | {"hub_token": args.hub_token}) == args


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments])
def test_nothing_is_warned_of_that_was_not_set(cls, caplog):
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="footplate"):
        args = cls("runs")
        cls(**args.to_dict())  # holds every name, and masked tokens
        HfArgumentParser(cls).parse_args_into_dataclasses(["--output_dir", "runs"], look_for_args_file=False)
    assert not caplog.records


def test_a_subclass_with_a_default_of_its_own_is_not_warned_of_it(caplog):
    @dataclasses.dataclass
    class Patient(TrainingArguments):
        eval_accumulation_steps: int | None = 4

    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="footplate"):
        Patient("runs")
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "heading", "start"),
    [
        *(
            (name, NO_EFFECT_HEADING, f"No effect: {why}.")
            for name, why in NO_EFFECT.items()
            if "." not in name
        ),
        *((name, REFUSED_HEADING, f"Refused: {what} is not in") for name, what in REFUSED.items()),
    ],
)
def test_the_help_says_so_from_the_same_table(name, heading, start):
    for cls in (TrainingArguments, Seq2SeqTrainingArguments):
        field = cls.__dataclass_fields__[name]
        assert heading_of(field) == heading
        assert field.metadata["help"].startswith(start)


@pytest.mark.parametrize(("name", "value"), [("deepspeed", {}), ("debug", "underflow_overflow")])
def test_what_this_version_does_not_do_is_refused_by_name(name, value, tmp_path):
    assert name in REFUSED
    with pytest.raises(NotImplementedError, match=rf"{name}=.*not in this version.*Leave {name} unset"):
        check_supported(tiny.arguments(tmp_path, **{name: value}))


@pytest.mark.parametrize(
    "settings", [{}, {"fsdp": ""}, {"fsdp": []}, {"fsdp": False}, {"debug": ""}], ids=str
)
def test_ordinary_arguments_are_supported(settings, tmp_path):
    check_supported(tiny.arguments(tmp_path, **settings))


@pytest.mark.parametrize("non_blocking", [True, False])
def test_batches_are_copied_without_waiting_if_asked_for(non_blocking, tmp_path, monkeypatch):
    args = tiny.arguments(tmp_path, accelerator_config={"non_blocking": non_blocking})
    trainer = Trainer(tiny.Regression(), args)
    asked = []
    monkeypatch.setattr(comm, "move_to_device", lambda data, device, non_blocking: asked.append(non_blocking))
    trainer._prepare_input({})
    assert asked == [non_blocking]


@pytest.mark.parametrize(("given", "level"), [("error", logging.ERROR), ("passive", logging.NOTSET)])
def test_a_trainer_sets_the_level_of_the_log(given, level, tmp_path):
    logger = logging.getLogger("footplate")
    before = logger.level
    try:
        logger.setLevel(logging.NOTSET)
        Trainer(tiny.Regression(), tiny.arguments(tmp_path, log_level=given))
        assert logger.level == level
    finally:
        logger.setLevel(before)
