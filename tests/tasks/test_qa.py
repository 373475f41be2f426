"""Question answering: SQuAD's files, learning, the numbers of the original, and wrong answers."""

import json
import random

import pytest
import torch
import transformers

from footplate.tasks import TaskError
from tasks import small

NUMBERS = ["one", "two", "three", "four", "five", "six"]
THINGS = ["cats", "dogs", "books", "cups", "trees", "boats"]
OTHERS = ["the", "house", "has", "and", "there", "is", "a", "big", "old", "red"]


def questions(count, seed):
    """Questions whose answer is the one number of a text."""
    chance = random.Random(seed)
    rows = []
    for index in range(count):
        number, thing = chance.choice(NUMBERS), chance.choice(THINGS)
        words = chance.choices(OTHERS, k=8)
        place = chance.randrange(len(words))
        words[place:place] = [number, thing]
        context = " ".join(words)
        answer = {"text": [number], "answer_start": [len(" ".join(words[:place])) + bool(place)]}
        rows.append(
            {"id": f"q{index}", "question": f"how many {thing}", "context": context, "answers": answer}
        )
    return rows


def flags(tmp_path, train_file, validation_file, *words):
    return [
        *("--train_file", train_file, "--validation_file", validation_file, "--output_dir", tmp_path / "out"),
        *("--do_train", "--do_eval", "--learning_rate", "5e-3", "--per_device_train_batch_size", 16),
        *("--max_seq_length", 32, "--doc_stride", 8, "--report_to", "none", *words),
    ]


@pytest.mark.parametrize("task", ["qa", "qa_beam_search"])
def test_answers_are_learned_from_squads_files(tmp_path, task):
    train_file = small.write_squad(tmp_path / "train.json", questions(200, 0))
    validation_file = small.write_squad(tmp_path / "dev.json", questions(40, 1))
    model = "bert" if task == "qa" else "xlnet"
    words = flags(tmp_path, train_file, validation_file, "--num_train_epochs", 4)
    words += ["--evaluation_strategy", "steps", "--eval_steps", 13, "--overwrite_output_dir"]
    results = small.run(task, *small.from_scratch(model), *words)
    assert results["eval_exact_match"] > 80  # untrained: below 10
    assert results["eval_f1"] >= results["eval_exact_match"]
    evaluations = [entry for entry in small.losses_in(tmp_path / "out") if "eval_f1" in entry]
    assert [entry["step"] for entry in evaluations][:3] == [13, 26, 39]
    assert {"eval_exact_match", "eval_f1"} <= evaluations[0].keys()
    assert ("eval_loss" in evaluations[0]) == (task == "qa")  # told the answers, XLNet searches no beams
    written = json.loads((tmp_path / "out" / "eval_predictions.json").read_text())
    assert set(written) == {f"q{index}" for index in range(40)}
    assert (tmp_path / "out" / "eval_nbest_predictions.json").exists()


def make_model(folder):
    """A folder with a small random BERT and its tokenizer."""
    from footplate.tasks.common.vocabulary import train_for_encoder

    texts = [f"{row['question']} {row['context']}" for row in questions(50, 0)]
    tokenizer = train_for_encoder(texts, 400)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokenizer))
    config.update_from_string(small.SIZES["bert"])
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


def train_original(model, train_rows, eval_rows, folder):
    """The same training by transformers, with preprocessing written out."""
    args = transformers.TrainingArguments(
        str(folder), learning_rate=5e-3, per_device_train_batch_size=16, logging_steps=1, num_train_epochs=2
    )
    args.report_to = []
    transformers.set_seed(args.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    head = transformers.AutoModelForQuestionAnswering.from_pretrained(model)
    features = []
    for row in train_rows:
        made = tokenizer(
            row["question"],
            row["context"],
            max_length=32,
            truncation="only_second",
            padding="max_length",
            return_offsets_mapping=True,
        )
        start = row["answers"]["answer_start"][0]
        end = start + len(row["answers"]["text"][0])
        inside = [number for number, part in enumerate(made.sequence_ids()) if part == 1]
        first = next(number for number in inside if made["offset_mapping"][number][0] == start)
        last = next(number for number in inside if made["offset_mapping"][number][1] == end)
        kept = {name: made[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        features.append({**kept, "start_positions": first, "end_positions": last})
    trainer = transformers.Trainer(
        head, args, train_dataset=features, data_collator=transformers.default_data_collator
    )
    result = trainer.train()
    return result.metrics, trainer.state.log_history


def test_losses_and_result_files_are_those_of_the_original(tmp_path):
    rows, more = questions(60, 0), questions(20, 1)
    model = make_model(tmp_path / "model")
    metrics, history = train_original(model, rows, more, tmp_path / "original")
    train_file = small.write_squad(tmp_path / "train.json", rows)
    validation_file = small.write_squad(tmp_path / "dev.json", more)
    words = flags(tmp_path, train_file, validation_file, "--num_train_epochs", 2, "--logging_steps", 1)
    small.run("qa", "--model_name_or_path", model, *words)
    losses = [entry["loss"] for entry in small.losses_in(tmp_path / "out") if "loss" in entry]
    assert losses == [entry["loss"] for entry in history if "loss" in entry]
    written = json.loads((tmp_path / "out" / "train_results.json").read_text())
    assert written["train_loss"] == metrics["train_loss"]
    assert set(written) == {*metrics, "epoch", "train_samples"}


def test_an_answer_that_is_not_in_its_context_is_named_with_file_and_row(tmp_path):
    rows = questions(10, 0)
    rows[3]["answers"] = {"text": ["nowhere"], "answer_start": [0]}
    rows[4]["answers"]["answer_start"] = [rows[4]["answers"]["answer_start"][0] + 1]
    train_file = small.write_squad(tmp_path / "train.json", rows)
    words = [*small.from_scratch("bert"), *flags(tmp_path, train_file, train_file, "--max_steps", 1)]
    named = (
        r"train\.json: 2 of 10 rows .* row 4: the answer 'nowhere' .* not in the context; "
        r"row 5: .*it stands at character \d+.*--skip_bad_rows"
    )
    with pytest.raises(TaskError, match=named):
        small.run("qa", *words)
    results = small.run("qa", *words, "--skip_bad_rows")
    assert results["train_samples"] == 8


def test_a_question_without_an_answer_needs_version_2(tmp_path):
    rows = questions(20, 0)
    rows[0]["answers"] = {"text": [], "answer_start": []}
    train_file = small.write_squad(tmp_path / "train.json", rows)
    words = [*small.from_scratch("bert"), *flags(tmp_path, train_file, train_file, "--max_steps", 1)]
    with pytest.raises(ValueError, match="version_2_with_negative"):
        small.run("qa", *words)
    results = small.run("qa", *words, "--version_2_with_negative", "--overwrite_output_dir")
    assert {"eval_exact", "eval_f1", "eval_HasAns_f1", "eval_NoAns_f1"} <= results.keys()
