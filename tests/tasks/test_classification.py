"""Classification of texts: one class, several at once, a value; and what is wrong with rows."""

import json
import random

import pytest

from footplate.tasks import TaskError
from tasks import small

GOOD, BAD = ["good", "great", "fine", "nice", "lovely"], ["bad", "poor", "awful", "sad", "ugly"]


def sentences(count, seed):
    """Sentences with words that decide, and words that do not."""
    chance = random.Random(seed)
    rows = []
    for index in range(count):
        is_good = index % 2
        words = [
            chance.choice(GOOD if is_good else BAD),
            *chance.choices(["the", "film", "was", "day", "and", "so", "it"], k=5),
        ]
        chance.shuffle(words)
        rows.append({"sentence": " ".join(words), "label": is_good})
    return rows


def train(tmp_path, rows, more_rows, *words):
    train_file = small.write_csv(tmp_path / "train.csv", rows)
    validation_file = small.write_csv(tmp_path / "validation.csv", more_rows)
    return small.run(
        "classification",
        *small.from_scratch("bert"),
        *("--train_file", train_file, "--validation_file", validation_file, "--output_dir", tmp_path / "out"),
        *("--do_train", "--do_eval", "--learning_rate", "3e-3", "--per_device_train_batch_size", 16),
        *("--max_seq_length", 16, "--num_train_epochs", 5, "--report_to", "none", *words),
    )


def test_one_class_of_two_is_learned(tmp_path):
    results = train(tmp_path, sentences(160, 0), sentences(60, 1))
    assert results["eval_accuracy"] > 0.9  # chance: 0.5
    written = small.results_of(tmp_path / "out")
    assert written["eval_accuracy"] == results["eval_accuracy"]
    assert written["train_samples"] == 160
    assert written["eval_samples"] == 60
    assert (tmp_path / "out" / "README.md").exists()
    assert "task: classification" in (tmp_path / "out" / "run.yaml").read_text()


def test_a_label_unseen_in_training_is_named_with_file_and_row(tmp_path):
    rows = [{**row, "label": "yes" if row["label"] else "no"} for row in sentences(20, 0)]
    more = [*rows[:4], {"sentence": "so so", "label": "perhaps"}]
    with pytest.raises(
        TaskError, match=r"validation\.csv: 1 of 5 rows .* row 5: the label 'perhaps'.*no, yes"
    ):
        train(tmp_path, rows, more)
    results = train(tmp_path, rows, more, "--skip_bad_rows", "--num_train_epochs", 1)
    assert results["eval_samples"] == 4


def test_a_bad_row_is_named_as_its_file_counts_even_if_rows_are_split(tmp_path):
    rows = sentences(40, 0)
    rows[30]["sentence"] = ""
    train_file = small.write_csv(tmp_path / "train.csv", rows)
    words = ["--train_file", train_file, "--do_train", "--do_eval", "--output_dir", tmp_path / "out"]
    with pytest.raises(TaskError, match=r"row 31: the text in 'sentence' is missing"):
        small.run("classification", *small.from_scratch("bert"), *words)


def test_predictions_are_written_with_the_names_of_classes(tmp_path):
    rows = [{**row, "label": "yes" if row["label"] else "no"} for row in sentences(160, 0)]
    test_file = small.write_csv(tmp_path / "test.csv", rows[:10])
    train(tmp_path, rows, rows[:10], "--do_predict", "--test_file", test_file)
    lines = (tmp_path / "out" / "predict_results.txt").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[1] for line in lines[1:]] == [row["label"] for row in rows[:10]]
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == {"0": "no", "1": "yes"}
