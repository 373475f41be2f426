"""The settings for generation, with the fields of the original."""

from __future__ import annotations

import dataclasses

import transformers

from footplate.arguments import HfArgumentParser, Seq2SeqTrainingArguments, TrainingArguments


def test_fields_of_generation_equal_the_original():
    base = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    theirs = [f for f in dataclasses.fields(transformers.Seq2SeqTrainingArguments) if f.name not in base]
    ours = dataclasses.fields(Seq2SeqTrainingArguments)[-len(theirs) :]
    assert [(field.name, field.default) for field in ours] == [
        (field.name, field.default) for field in theirs
    ]


def test_it_is_checked_and_takes_old_names_like_its_base():
    args = Seq2SeqTrainingArguments("runs", evaluation_strategy="epoch", predict_with_generate=True)
    assert isinstance(args, TrainingArguments)
    assert args.eval_strategy == "epoch"


def test_it_is_filled_from_the_command_line():
    words = [
        "--output_dir",
        "runs",
        "--predict_with_generate",
        "--generation_num_beams",
        "4",
        "--generation_config",
        "g",
    ]
    (args,) = HfArgumentParser(Seq2SeqTrainingArguments).parse_args_into_dataclasses(words)
    assert (args.predict_with_generate, args.generation_num_beams, args.generation_config) == (True, 4, "g")


def test_the_sortish_sampler_groups_by_length_unless_another_order_is_named():
    assert Seq2SeqTrainingArguments("runs").train_sampling_strategy == "random"
    assert Seq2SeqTrainingArguments("runs", sortish_sampler=True).train_sampling_strategy == "group_by_length"
    named = Seq2SeqTrainingArguments("runs", sortish_sampler=True, train_sampling_strategy="sequential")
    assert named.train_sampling_strategy == "sequential"
