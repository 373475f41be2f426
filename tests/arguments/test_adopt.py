"""Arguments of transformers' class, and of a library's subclass of it, are taken over value by value."""

from __future__ import annotations

import dataclasses
import logging

import pytest
import transformers

import tiny
from footplate import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments
from footplate.arguments.adopt import adopt
from footplate.arguments.notices import warn_once


@dataclasses.dataclass
class LibraryArguments(transformers.TrainingArguments):
    """As a library writes them: new fields, other defaults, and something that is set at the end."""

    learning_rate: float = 1e-3
    beta: float = 0.1
    chosen: list[str] = dataclasses.field(default_factory=lambda: ["a"])

    def __post_init__(self):
        super().__post_init__()
        self.note = f"beta {self.beta}"


SETTINGS = {
    "eval_strategy": "steps",
    "logging_steps": 7,
    "save_strategy": "epoch",
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.1,
    "optim": "sgd",
    "max_steps": 5,
    "report_to": "none",
    "label_names": ["labels"],
    "include_for_metrics": ["inputs"],
    "accelerator_config": {"non_blocking": True},
    "hub_token": "secret",
    "seed": 3,
}


@pytest.mark.parametrize("settings", [{}, SETTINGS], ids=["defaults", "settings"])
def test_every_value_is_taken_over(settings):
    theirs = transformers.TrainingArguments("runs", **settings)
    ours = adopt(theirs)
    assert type(ours) is TrainingArguments
    for field in dataclasses.fields(theirs):
        expected, found = getattr(theirs, field.name), getattr(ours, field.name)
        if field.name == "accelerator_config":
            expected, found = expected.to_dict() | {"use_configured_state": False}, found.to_dict()
        assert found == expected, field.name


def test_what_a_library_adds_stays_readable():
    ours = adopt(LibraryArguments("runs", beta=0.5))
    assert (ours.beta, ours.chosen, ours.note, ours.learning_rate) == (0.5, ["a"], "beta 0.5", 1e-3)
    with pytest.raises(AttributeError, match="'gamma'"):
        ours.gamma  # noqa: B018


def test_the_settings_of_generation_are_taken_over():
    ours = adopt(
        transformers.Seq2SeqTrainingArguments("runs", predict_with_generate=True, generation_num_beams=2)
    )
    assert type(ours) is Seq2SeqTrainingArguments
    assert (ours.predict_with_generate, ours.generation_num_beams) == (True, 2)


def test_old_names_of_the_other_class_get_their_current_meaning():
    theirs = LibraryArguments("runs")
    vars(theirs).update(group_by_length=True, save_safetensors=True, overwrite_output_dir=True)  # as in 4.x
    ours = adopt(theirs)
    assert ours.train_sampling_strategy == "group_by_length"
    assert ours.overwrite_output_dir is True


def test_one_notice_names_the_class(caplog):
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="footplate"):
        for _ in range(2):
            adopt(LibraryArguments("runs"))
    (record,) = caplog.records
    assert "LibraryArguments" in record.getMessage()
    assert "footplate.TrainingArguments" in record.getMessage()


@pytest.mark.parametrize(
    "args", [TrainingArguments("runs"), "runs", {"output_dir": "runs"}, None, transformers]
)
def test_anything_else_stays_as_it_is(args):
    assert adopt(args) is args


def test_a_trainer_takes_them_and_trains_as_the_original_does(tmp_path):
    losses = []
    for library, subfolder in ((transformers, "theirs"), (None, "ours")):
        args = LibraryArguments(
            tmp_path / subfolder,
            use_cpu=True,
            max_steps=4,
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
        )
        trainer_class = library.Trainer if library else Trainer
        model = tiny.bert_classifier()
        trainer = trainer_class(model, args, train_dataset=tiny.classification_data())
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
        assert trainer.args.beta == 0.1
    assert losses[0] == losses[1]
    assert len(losses[0]) == 4


def test_a_trainer_for_generation_takes_them(tmp_path):
    args = transformers.Seq2SeqTrainingArguments(tmp_path, use_cpu=True, report_to="none")
    trainer = Seq2SeqTrainer(tiny.Regression(), args)
    assert isinstance(trainer.args, Seq2SeqTrainingArguments)
