"""Multiple choice: with and without the beginning of the second sentence; and what is wrong with rows."""

import random

import numpy as np
import pytest
import transformers
from datasets import Dataset

from footplate.tasks import TaskError
from tasks import original, pretrained, small

ANIMALS, ALIVE = ["dog", "cat", "bird", "cow"], ["eats", "sleeps", "plays", "runs", "drinks"]
LIFELESS = ["rusts", "melts", "prints", "boils", "rings", "leaks", "burns"]


def stories(count, seed):
    """Animals, something that they do, and things that they cannot do."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        label, verbs = chance.randrange(4), chance.sample(LIFELESS, 4)
        verbs[label] = chance.choice(ALIVE)
        endings = {f"ending{number}": f"{verb} now" for number, verb in enumerate(verbs)}
        sentence = f"here is a {chance.choice(ANIMALS)} ."
        rows.append({"sent1": sentence, "sent2": "it", **endings, "label": label})
    return rows


def train(tmp_path, rows, more_rows, *words):
    train_file = small.write_csv(tmp_path / "train.csv", rows)
    validation_file = small.write_csv(tmp_path / "dev.csv", more_rows)
    return small.run(
        "swag",
        *small.from_scratch("bert"),
        *("--train_file", train_file, "--validation_file", validation_file, "--output_dir", tmp_path / "out"),
        *("--do_train", "--do_eval", "--learning_rate", "3e-3", "--per_device_train_batch_size", 16),
        *("--num_train_epochs", 4, "--report_to", "none", *words),
    )


def test_endings_are_learned_and_predicted(tmp_path):
    dev = stories(50, 1)
    results = train(tmp_path, stories(200, 0), dev, "--do_predict", "--test_file", tmp_path / "dev.csv")
    assert results["eval_accuracy"] > 0.9  # chance: 0.25
    assert results["eval_samples"] == 50
    lines = (tmp_path / "out" / "predict_results.txt").read_text().splitlines()
    right = [int(line.split("\t")[1]) == row["label"] for line, row in zip(lines[1:], dev, strict=True)]
    assert np.mean(right) == pytest.approx(results["eval_accuracy"])


def test_two_endings_without_the_beginning_of_a_sentence_serve_too(tmp_path):
    rows = []
    for row in stories(200, 0):
        other = row[f"ending{(row['label'] + 1) % 4}"]
        pair = [row[f"ending{row['label']}"], other][:: 1 if row["label"] % 2 else -1]
        label = 0 if row["label"] % 2 else 1
        rows.append({"sent1": row["sent1"], "ending0": pair[0], "ending1": pair[1], "label": label})
    results = train(tmp_path, rows[:150], rows[150:], "--pad_to_max_length", "--max_seq_length", 24)
    assert results["eval_accuracy"] > 0.85  # chance: 0.5


def test_the_run_is_that_of_the_trainer_of_transformers(tmp_path):
    rows, dev = stories(40, 0), stories(16, 1)
    texts = [f"{row['sent1']} {row['sent2']} {row['ending0']}" for row in rows]
    folder = pretrained.save_model(tmp_path / "model", "bert", "AutoModel", texts)
    mine = small.run(
        "swag",
        *original.flags_of(folder, tmp_path, *original.FLAGS, "--evaluation_strategy", "epoch"),
        *("--train_file", small.write_csv(tmp_path / "train.csv", rows)),
        *("--validation_file", small.write_csv(tmp_path / "dev.csv", dev), "--max_seq_length", 12),
    )

    tokenizer, model = original.load(folder, "AutoModelForMultipleChoice")

    def tokenize(batch):
        first = [text for text in batch["sent1"] for _ in range(4)]
        second = [
            f"{header} {batch[f'ending{number}'][row]}"
            for row, header in enumerate(batch["sent2"])
            for number in range(4)
        ]
        tokens = tokenizer(first, second, truncation=True, max_length=12)
        return {
            name: [values[i : i + 4] for i in range(0, len(values), 4)] for name, values in tokens.items()
        }

    def measure(prediction):
        return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}

    sets = [Dataset.from_list(part).map(tokenize, batched=True) for part in (rows, dev)]
    collator = transformers.DataCollatorForMultipleChoice(tokenizer)
    trainer = original.train(tmp_path, model, tokenizer, sets, collator, measure, eval_strategy="epoch")
    original.check_same_figures(tmp_path, "loss", "eval_loss", "eval_accuracy", "grad_norm", "learning_rate")
    assert mine["eval_accuracy"] == trainer.evaluate()["eval_accuracy"]


def test_bad_rows_and_columns_are_named(tmp_path):
    rows = stories(20, 0)
    broken = [*rows[:3], {**rows[3], "label": 4}, {**rows[4], "ending2": None}]
    with pytest.raises(TaskError, match=r"dev\.csv: 2 of 5 rows .* row 4: the label 4 .* row 5: .*'ending2'"):
        train(tmp_path, rows, broken)
    assert train(tmp_path, rows, broken, "--skip_bad_rows", "--num_train_epochs", 1)["eval_samples"] == 3
    with pytest.raises(TaskError, match=r"train\.csv has no column 'sent1'"):
        train(tmp_path, [{"ending0": "a", "ending1": "b", "label": 0}], rows)
    with pytest.raises(TaskError, match=r"train\.csv has no column 'ending1'"):
        train(tmp_path, [{"sent1": "a", "ending0": "b", "label": 0}], rows)


def test_without_files_the_dataset_of_the_original_is_asked_for(tmp_path):
    flags = ["--do_train", "--output_dir", tmp_path / "out"]
    with pytest.raises(TaskError, match="--dataset_name swag cannot be loaded"):
        small.run("swag", *small.from_scratch("bert"), *flags)


@pytest.mark.slow
def test_endings_of_real_stories_are_remembered(tmp_path):
    file = pretrained.find_data("multiple_choice/codah") / "train.csv"
    results = small.run(
        "swag",
        *("--model_name_or_path", pretrained.find_minilm(), "--output_dir", tmp_path / "out"),
        *("--train_file", file, "--validation_file", file, "--max_train_samples", 24),
        *("--do_train", "--do_eval", "--max_eval_samples", 24, "--max_seq_length", 32),
        *("--learning_rate", "3e-4", "--num_train_epochs", 8, "--report_to", "none"),
    )
    assert results["eval_accuracy"] > 0.6  # chance: 0.25
