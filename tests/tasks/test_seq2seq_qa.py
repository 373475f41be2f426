"""Answers to questions that the model writes; and what is wrong with rows."""

import random

import numpy as np
import pytest
import transformers
from datasets import Dataset

from footplate import compute_squad_metrics
from footplate.tasks import TaskError
from footplate.tasks.common.answering import load_answerer
from tasks import original, pretrained, small

PEOPLE, PLACES = ["anna", "boris", "chen", "dilan"], ["paris", "seoul", "lima", "oslo"]


def questions(count, seed):
    """Who is where: questions about the person and the place."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        person, place = chance.choice(PEOPLE), chance.choice(PLACES)
        context, answer = f"{person} is in {place} .", (person, place)[number % 2]
        start = context.index(answer)
        rows.append(
            {
                "id": f"q{number}",
                "question": ("who is there ?", "where is that ?")[number % 2],
                "context": context,
                "answers": {"text": [answer], "answer_start": [start]},
            }
        )
    return rows


def train(tmp_path, train_file, validation_file, *words):
    return small.run(
        "seq2seq_qa",
        *small.from_scratch("t5"),
        *("--train_file", train_file, "--validation_file", validation_file, "--output_dir", tmp_path / "out"),
        *("--do_train", "--do_eval", "--learning_rate", "1e-2", "--per_device_train_batch_size", 16),
        *("--num_train_epochs", 15, "--report_to", "none", "--max_seq_length", 32, "--max_answer_length", 8),
        *("--predict_with_generate", *words),
    )


def test_answers_are_learned_measured_and_given_later(tmp_path):
    dev = small.write_squad(tmp_path / "dev.json", questions(30, 1))
    results = train(
        tmp_path,
        small.write_squad(tmp_path / "train.json", questions(200, 0)),
        dev,
        *("--do_predict", "--test_file", dev),
    )
    assert results["eval_exact_match"] > 80  # chance: 12.5
    assert results["eval_f1"] > 80
    assert results["predict_exact_match"] == results["eval_exact_match"]
    assert len((tmp_path / "out" / "generated_predictions.txt").read_text().split("\n")) == 30
    answerer = load_answerer(str(tmp_path / "out"), str(tmp_path / "later"))
    row = {"id": "1", "question": "who is there ?", "context": "chen is in lima ."}
    assert answerer.answer(Dataset.from_list([row])) == [{"answer": "chen"}]


def test_questions_without_an_answer_are_scored_by_version_2(tmp_path):
    rows = questions(40, 0)
    rows[3] = {**rows[3], "answers": {"text": [], "answer_start": []}}
    train_file = small.write_lines(tmp_path / "train.jsonl", rows)
    with pytest.raises(TaskError, match=r"row 4: the question has no answer .--version_2_with_negative"):
        train(tmp_path, train_file, train_file)
    flags = ["--version_2_with_negative", "--num_train_epochs", 1]
    results = train(tmp_path, train_file, train_file, *flags)
    assert {"eval_exact", "eval_f1", "eval_HasAns_exact", "eval_NoAns_f1"} <= set(results)


@pytest.mark.parametrize("length", [32, 12])  # the shorter one cuts texts into several features
def test_the_run_is_that_of_the_trainer_of_transformers(tmp_path, length):
    rows, dev = questions(40, 0), questions(8, 1)
    texts = [f"question: {row['question']} context: {row['context']}" for row in rows]
    folder = pretrained.save_model(tmp_path / "model", "t5", "AutoModelForSeq2SeqLM", texts)
    mine = small.run(
        "seq2seq_qa",
        *original.flags_of(folder, tmp_path, *original.FLAGS, "--max_seq_length", length),
        *("--train_file", small.write_lines(tmp_path / "train.jsonl", rows)),
        *("--validation_file", small.write_lines(tmp_path / "dev.jsonl", dev)),
        *("--predict_with_generate", "--max_answer_length", 8, "--per_device_eval_batch_size", 1),
    )

    tokenizer, model = original.load(folder, "AutoModelForSeq2SeqLM")

    def tokenize(batch, **options):
        pairs = zip(batch["question"], batch["context"], strict=True)
        sources = [f"question: {question} context: {context}" for question, context in pairs]
        made = tokenizer(sources, max_length=length, padding="max_length", truncation=True, **options)
        targets = [answers["text"][0] for answers in batch["answers"]]
        labels = tokenizer(text_target=targets, max_length=8, padding="max_length", truncation=True)
        pad = tokenizer.pad_token_id
        labels = [[-100 if token == pad else token for token in row] for row in labels["input_ids"]]
        owners = made.pop("overflow_to_sample_mapping", range(len(sources)))
        made["labels"] = [labels[owner] for owner in owners]
        made["owner"] = list(owners)
        return made

    columns = list(rows[0])
    train_set = Dataset.from_list(rows).map(tokenize, batched=True, remove_columns=columns)
    dev_set = Dataset.from_list(dev).map(
        tokenize, batched=True, remove_columns=columns, fn_kwargs={"return_overflowing_tokens": True}
    )
    collator = transformers.DataCollatorForSeq2Seq(tokenizer, model=model)
    settings = {"predict_with_generate": True, "per_device_eval_batch_size": 1}
    trainer = original.train(tmp_path, model, tokenizer, (train_set, dev_set), collator, **settings)
    original.check_same_figures(tmp_path, "loss")
    output = trainer.predict(dev_set, max_length=8)
    assert mine["eval_loss"] == output.metrics["test_loss"]
    assert mine["eval_samples"] == len(dev_set)
    tokens = np.where(output.predictions == -100, tokenizer.pad_token_id, output.predictions)
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    answers = {f"q{owner}": text.strip() for owner, text in zip(dev_set["owner"], texts, strict=True)}
    references = [{"id": row["id"], "answers": row["answers"]} for row in dev]
    scores = compute_squad_metrics(answers, references)
    assert mine["eval_f1"] == scores["f1"]
    assert mine["eval_exact_match"] == scores["exact_match"]


def test_plain_answers_and_columns_of_other_names_serve_too(tmp_path):
    rows = [
        {"q": row["question"], "text": row["context"], "a": row["answers"]["text"][0]}
        for row in questions(40, 0)
    ]
    table = small.write_csv(tmp_path / "train.csv", rows)
    names = ["--question_column", "q", "--context_column", "text", "--answer_column", "a"]
    assert "eval_f1" in train(tmp_path, table, table, *names, "--num_train_epochs", 1)
    with pytest.raises(TaskError, match=r"train\.csv has no column 'question', 'context', 'answers'"):
        train(tmp_path, table, table)
