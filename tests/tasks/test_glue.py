"""GLUE: pairs and single sentences, the scores of each task, the numbers of the original; and XNLI."""

import json
import random

import datasets
import numpy as np
import pytest
import transformers
from sklearn.metrics import f1_score, matthews_corrcoef

from footplate.tasks import TaskError
from footplate.tasks.glue import SCORES, TEXTS
from tasks import pretrained, small
from tasks.test_classification import sentences

WORDS = ["red", "blue", "cat", "dog", "tree", "house", "old", "new", "runs", "sleeps"]


def pairs(count, seed, columns=("sentence1", "sentence2"), label=int):
    """Pairs whose label says whether the second repeats the first."""
    chance = random.Random(seed)
    rows = []
    for index in range(count):
        first = " ".join(chance.sample(WORDS[:4], 2))
        second = first if index % 2 else " ".join(chance.sample(WORDS[4:], 2))
        rows.append({columns[0]: first, columns[1]: second, "label": label(index % 2)})
    return rows


def flags(tmp_path, rows, more, *words):
    train_file = small.write_csv(tmp_path / "train.csv", rows)
    validation_file = small.write_csv(tmp_path / "dev.csv", more)
    return [
        *("--train_file", train_file, "--validation_file", validation_file, "--output_dir", tmp_path / "out"),
        *("--do_train", "--do_eval", "--learning_rate", "3e-3", "--per_device_train_batch_size", 16),
        *("--max_seq_length", 16, "--report_to", "none", *words),
    ]


def test_pairs_of_a_task_are_learned_and_scored_as_the_task_is(tmp_path):
    words = flags(tmp_path, pairs(160, 0), pairs(60, 1), "--task_name", "MRPC", "--num_train_epochs", 4)
    results = small.run("glue", *small.from_scratch("bert"), *words)
    assert results["eval_accuracy"] > 0.9  # chance: 0.5
    assert results["eval_combined_score"] == (results["eval_accuracy"] + results["eval_f1"]) / 2


def test_values_are_learned_as_a_regression(tmp_path):
    rows = pairs(160, 0, label=lambda same: 1.5 + same)
    words = flags(tmp_path, rows, pairs(60, 1, label=lambda same: 1.5 + same), "--task_name", "stsb")
    results = small.run("glue", *small.from_scratch("bert"), *words, "--num_train_epochs", 5)
    assert results["eval_pearson"] > 0.8  # chance: 0
    assert results["eval_spearmanr"] > 0.7


def test_files_without_a_task_take_their_first_columns(tmp_path):
    words = flags(tmp_path, sentences(40, 0), sentences(20, 1), "--max_steps", 1)
    results = small.run("glue", *small.from_scratch("bert"), *words)
    assert "eval_accuracy" in results


@pytest.mark.parametrize("task", sorted(TEXTS))
def test_every_task_has_its_columns_and_its_own_scores(tmp_path, task):
    columns = TEXTS[task]
    is_value = task == "stsb"
    rows = [
        {name: f"{row['sentence1']} {name}" for name in columns}
        | {"label": float(row["label"]) if is_value else row["label"]}
        for row in pairs(12, 0)
    ]
    words = flags(tmp_path, rows, rows, "--task_name", task, "--max_steps", 1)
    results = small.run("glue", *small.from_scratch("bert"), *words)
    for name in SCORES.get(task, ("accuracy",)):
        assert f"eval_{name}" in results
    assert ("eval_combined_score" in results) == (len(SCORES.get(task, ())) > 1)


def test_both_sets_of_mnli_are_evaluated(tmp_path, monkeypatch):
    rows = pairs(24, 0, ("premise", "hypothesis"))
    table = {name: [row[name] for row in rows] for name in rows[0]}
    hub = {name: datasets.Dataset.from_dict(table) for name in ("train", "validation_matched")}
    hub["validation_mismatched"] = datasets.Dataset.from_dict({**table, "hypothesis": table["premise"]})
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *words, **more: asked.append(words) or dict(hub))
    words = [
        "--task_name",
        "mnli",
        "--do_train",
        "--do_eval",
        "--max_steps",
        2,
        "--output_dir",
        tmp_path / "out",
    ]
    results = small.run("glue", *small.from_scratch("bert"), *words, "--report_to", "none")
    assert asked == [("nyu-mll/glue", "mnli")]
    assert results["eval_loss"] != results["eval_loss_mm"]
    assert {"eval_accuracy", "eval_accuracy_mm"} <= small.results_of(tmp_path / "out").keys()


def train_original(model, rows, more, folder):
    """The same training by transformers, with preprocessing written out."""
    args = transformers.TrainingArguments(
        str(folder), learning_rate=3e-3, per_device_train_batch_size=16, logging_steps=1, num_train_epochs=2
    )
    args.report_to = []
    transformers.set_seed(args.seed)
    config = transformers.AutoConfig.from_pretrained(model, num_labels=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    head = transformers.AutoModelForSequenceClassification.from_pretrained(model, config=config)

    def encode(row):
        made = tokenizer(
            row["sentence1"], row["sentence2"], padding="max_length", max_length=16, truncation=True
        )
        return {**made, "label": row["label"]}

    def measure(prediction):
        guesses = prediction.predictions.argmax(1)
        accuracy = float((guesses == prediction.label_ids).mean())
        f1 = float(f1_score(prediction.label_ids, guesses))
        return {"accuracy": accuracy, "f1": f1, "combined_score": (accuracy + f1) / 2}

    trainer = transformers.Trainer(
        head,
        args,
        train_dataset=[encode(row) for row in rows],
        eval_dataset=[encode(row) for row in more],
        data_collator=transformers.default_data_collator,
        compute_metrics=measure,
    )
    metrics = trainer.train().metrics
    history = list(trainer.state.log_history)
    return history, metrics, trainer.evaluate()


def test_losses_and_results_are_those_of_the_original(tmp_path):
    rows, more = pairs(60, 0), pairs(30, 1)
    texts = [f"{row['sentence1']} {row['sentence2']}" for row in rows]
    model = str(pretrained.save_model(tmp_path / "model", "bert", "AutoModel", texts, 400))
    history, trained, evaluated = train_original(model, rows, more, tmp_path / "original")
    words = flags(tmp_path, rows, more, "--task_name", "mrpc", "--num_train_epochs", 2, "--logging_steps", 1)
    results = small.run("glue", "--model_name_or_path", model, *words)
    losses = [entry["loss"] for entry in small.losses_in(tmp_path / "out") if "loss" in entry]
    assert losses == [entry["loss"] for entry in history if "loss" in entry]
    same = ("eval_loss", "eval_accuracy", "eval_f1", "eval_combined_score")
    assert [results[name] for name in same] == [evaluated[name] for name in same]
    written = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    assert set(written) == {*evaluated, "eval_samples"}
    written = json.loads((tmp_path / "out" / "train_results.json").read_text())
    assert set(written) == {*trained, "epoch", "train_samples"}


def test_correlation_of_cola_is_that_of_its_library():
    from footplate.tasks.common.scores import measure

    chance = np.random.default_rng(0)
    golds, guesses = chance.integers(0, 2, 50), chance.integers(0, 2, 50)
    found = measure(("matthews_correlation",), guesses, golds)
    assert found == {"matthews_correlation": matthews_corrcoef(golds, guesses)}


def test_an_unknown_task_of_glue_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(TaskError, match="--task_name foo: GLUE has the tasks cola, mnli"):
        small.run("glue", "--task_name", "foo", "--output_dir", tmp_path, "--do_train")


# ---- XNLI ----


def test_inference_is_learned_and_another_language_is_evaluated(tmp_path):
    named = {0: "neutral", 1: "entailment"}
    rows = pairs(160, 0, ("premise", "hypothesis"), named.get)
    more = pairs(60, 1, ("premise", "hypothesis"), named.get)
    words = flags(tmp_path, rows, more, "--language", "ko", "--num_train_epochs", 4)
    results = small.run("xnli", *small.from_scratch("bert"), *words)
    assert results["eval_accuracy"] > 0.9  # chance: 0.5
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "entailment", "1": "neutral"}


def test_a_language_to_learn_from_may_differ_from_the_one_to_evaluate(tmp_path, monkeypatch):
    asked = []

    def load(name, config, **more):
        asked.append((name, config))
        rows = pairs(12, len(config), ("premise", "hypothesis"))
        table = datasets.Dataset.from_dict({key: [row[key] for row in rows] for key in rows[0]})
        return {"train": table, "validation": table}

    monkeypatch.setattr(datasets, "load_dataset", load)
    words = ["--language", "ko", "--train_language", "en", "--do_train", "--do_eval", "--max_steps", 1]
    small.run("xnli", *small.from_scratch("bert"), *words, "--output_dir", tmp_path, "--report_to", "none")
    assert asked == [("facebook/xnli", "ko"), ("facebook/xnli", "en")]
