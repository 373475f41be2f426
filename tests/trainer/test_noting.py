"""What an evaluation tells of its answers besides the metrics, and that it changes nothing."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer, TrainerCallback
from footplate.evaluation import choices, classes
from footplate.trainer import noting


class Sorter(nn.Module):
    """A linear classifier of three classes, the same one every time."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, num_classes)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.layer(self.dropout(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def points(count: int = 40, seed: int = 0) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 2, generator=generator)
    return [{"x": row, "labels": int(row[0] > 0) + int(row[1] > 0.3)} for row in rows]


def build(folder: Any, model: Any = None, evaluate: Any = None, options: Any = None, **settings: Any) -> Any:
    settings = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "learning_rate": 0.1, **settings}
    options = {"compute_metrics": tiny.accuracy, **(options or {})}
    data = points(seed=1) if evaluate is None else evaluate
    return tiny.build_trainer(folder, model or Sorter(), points(), data, options=options, **settings)


def read(folder: Any, kind: str = "classes") -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [event for event in events if event["kind"] == kind]


def count_matrix(event: dict[str, Any]) -> np.ndarray:
    matrix = np.diag(event["hits"])
    for right, other, count in event["cells"]:
        matrix[right, other] = count
    return matrix


def test_every_evaluation_notes_its_classes_and_a_prediction_does_too(tmp_path):
    trainer = build(tmp_path, metric_for_best_model="accuracy")
    trainer.train()
    output = trainer.predict(points(30, seed=2))
    notes = read(tmp_path)
    assert [(note["set"], note["step"]) for note in notes] == [
        ("eval", 2),
        ("eval", 4),
        ("eval", 6),
        ("test", 6),
    ]
    accuracies = [log["eval_accuracy"] for log in trainer.state.log_history if "eval_accuracy" in log]
    assert [note["num_right"] / note["num_items"] for note in notes[:3]] == pytest.approx(accuracies)
    highest = -1.0
    for note, accuracy in zip(notes, accuracies, strict=False):
        assert note["is_best"] == (accuracy > highest)
        highest = max(highest, accuracy)
    expected = np.zeros((3, 3), int)
    np.add.at(expected, (output.label_ids, output.predictions.argmax(1)), 1)
    assert (count_matrix(notes[3]) == expected).all()


def test_a_note_comes_after_the_log_of_its_evaluation(tmp_path):
    build(tmp_path).evaluate()
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert kinds == ["begin", "log", "classes"]


def test_each_of_several_sets_has_its_own(tmp_path):
    sets = {"known": points(20, seed=1), "new": points(30, seed=2)}
    build(tmp_path, evaluate=sets).evaluate()
    assert [(note["set"], note["num_items"]) for note in read(tmp_path)] == [
        ("eval_known", 20),
        ("eval_new", 30),
    ]


class Listener(TrainerCallback):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_note(self, args: Any, state: Any, control: Any, kind: str, values: Any, **kwargs: Any) -> None:
        self.heard.append((kind, values["set"], values["num_classes"]))


def test_callbacks_hear_of_it(tmp_path):
    listener = Listener()
    build(tmp_path, options={"callbacks": [listener]}).evaluate()
    assert listener.heard == [("classes", "eval", 3)]


@pytest.mark.parametrize("change", ["report", "metrics", "loss_only"])
def test_where_nothing_is_collected_or_wanted_nothing_is_noted(tmp_path, change):
    options = {"compute_metrics": None} if change == "metrics" else {}
    settings = {"report": {"report": False}, "loss_only": {"prediction_loss_only": True}}.get(change, {})
    listener = Listener()
    build(tmp_path, options={**options, "callbacks": [listener]}, **settings).evaluate()
    assert (listener.heard, read(tmp_path)) == ([], [])


def history(trainer: Any) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in log.items() if "runtime" not in key and "per_second" not in key}
        for log in trainer.state.log_history
    ]


def test_a_run_with_notes_is_equal_to_one_without_to_the_last_bit(tmp_path, monkeypatch):
    found = []
    for name in ("with", "without"):
        if name == "without":
            monkeypatch.setattr(noting, "describe_answers", lambda *given: ("classes", None))
        trainer = build(tmp_path / name)
        trainer.train()
        found.append(
            (history(trainer), trainer.model.state_dict(), torch.get_rng_state(), np.random.get_state()[1])
        )
    assert len(read(tmp_path / "with")) == 3
    assert not read(tmp_path / "without")
    assert found[0][0] == found[1][0]
    for name, weight in found[0][1].items():
        assert torch.equal(weight, found[1][1][name])
    assert torch.equal(found[0][2], found[1][2])
    assert (found[0][3] == found[1][3]).all()


def test_a_look_that_fails_is_a_line_for_developers_and_no_more(tmp_path, monkeypatch, caplog):
    def fail(task: Any, names: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(noting, "summarize_task", fail)
    with caplog.at_level(logging.DEBUG, logger="footplate"):
        metrics = build(tmp_path).evaluate()
    assert metrics["eval_accuracy"] >= 0
    assert not read(tmp_path)
    (record,) = [record for record in caplog.records if "could not be described" in record.message]
    assert record.levelno == logging.DEBUG


def test_predictions_are_given_back_as_they_are(tmp_path):
    trainer = build(tmp_path)
    output = trainer.predict(points(30, seed=2))
    model = trainer.model.eval()
    rows = torch.stack([row["x"] for row in points(30, seed=2)])
    np.testing.assert_array_equal(output.predictions, model.layer(rows).detach().numpy())


def test_a_quick_evaluation_of_many_scores_is_not_slowed_down(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "SECONDS_PER_SCORE", 1.0)  # as if there were a billion times as many
    build(tmp_path).evaluate()
    assert not read(tmp_path)
    monkeypatch.undo()
    build(tmp_path).evaluate()
    assert read(tmp_path)


def describe(scores: Any, labels: Any, model: Any = None, seconds: float = 1.0, **settings: Any) -> Any:
    """What is noted of these answers of a model."""
    trainer = SimpleNamespace(
        model=model or Sorter(),
        args=SimpleNamespace(**settings),
        label_names=["labels"],
        _items_are_shifted=False,
    )
    evaluation = SimpleNamespace(dataset=None, prefix="eval", describe_answers=None)
    output = SimpleNamespace(predictions=scores, label_ids=labels)
    return noting.describe_answers(trainer, evaluation, output, seconds)[1]


RNG = np.random.default_rng(0)
SCORES, LABELS = RNG.standard_normal((20_000, 512), dtype=np.float32), RNG.integers(0, 512, 20_000)


def test_a_look_may_cost_a_hundredth_of_the_evaluation():
    assert describe(SCORES, LABELS, seconds=0.6) is None
    assert describe(SCORES, LABELS, seconds=60.0)["num_items"] == 20_000
    assert describe(SCORES[:2000], LABELS[:2000], seconds=0.01) is not None  # 10 ms are always allowed


def test_tables_of_few_classes_do_not_come_and_go_with_the_speed_of_the_machine():
    """100,000 rows of 10 classes, however quick the model is."""
    labels = np.arange(100_000) % 10
    scores = np.eye(10, dtype=np.float32)[labels]
    assert describe(scores, labels, seconds=0.0)["num_items"] == 100_000


def test_a_model_that_writes_text_has_no_classes():
    tokens, labels = RNG.standard_normal((4, 6, 50)), RNG.integers(0, 50, (4, 6))
    labels[0, 0] = -100
    assert describe(tokens, labels)["form"] == "tokens"
    assert describe(tokens, labels, model=tiny.gpt()) is None
    assert describe(tokens, labels, predict_with_generate=True) is None
    classifier = tiny.bert_classifier()  # its vocabulary has 50 words
    assert describe(tokens, labels, model=classifier) is None


def test_a_regression_with_whole_numbers_has_no_classes():
    values, labels = RNG.standard_normal((30, 1)), RNG.integers(0, 2, 30)
    assert describe(values, labels) is not None
    model = tiny.bert_classifier(num_labels=2)
    model.config.problem_type = "regression"
    assert describe(values, labels, model=model) is None


def test_a_trainer_of_transformers_models_names_classes_by_their_config(tmp_path):
    model = tiny.bert_classifier(id2label={0: "sad", 1: "calm", 2: "glad"})
    data = tiny.classification_data(20)
    args = tiny.arguments(tmp_path)
    Trainer(model, args, eval_dataset=data, compute_metrics=tiny.accuracy).evaluate()
    (note,) = read(tmp_path)
    assert note["names"] == ["sad", "calm", "glad"]
    assert len(note["bins"]) == classes.NUM_BINS
