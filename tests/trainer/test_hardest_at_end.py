"""`hardest_rows`: a file, a table and a note when a run has ended, and nothing that could harm the run."""

from __future__ import annotations

import json
import os
import signal

import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer, TrainerCallback, TrainingArguments, rng
from footplate.integrations.journal import read_events
from footplate.trainer import hardest_at_end
from footplate.training.signals import is_interactive


class Side(nn.Module):
    """On which side of a plane a point lies."""

    def __init__(self):
        super().__init__()
        self.layer, self.dropout = nn.Linear(4, 2), nn.Dropout(0.1)

    def forward(self, x, labels):
        logits = self.dropout(self.layer(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def points(num_rows=100, wrong=(17, 60)):
    x = torch.randn(num_rows, 4, generator=torch.Generator().manual_seed(0))
    side = (x.sum(1) > 0).long()
    x = x + 0.5 * (2 * side - 1)[:, None]
    return [{"x": x[i], "labels": int(side[i]) ^ (i in wrong)} for i in range(num_rows)]


def build(folder, kind=Trainer, data=None, **settings):
    torch.manual_seed(0)
    settings = {"max_steps": 30, "learning_rate": 0.1, "hardest_rows": 5, "logging_steps": 10, **settings}
    callbacks = settings.pop("callbacks", None)
    args = tiny.arguments(folder, **settings)
    return kind(Side(), args, train_dataset=data or points(), eval_dataset=points(20), callbacks=callbacks)


def read_file(folder):
    text = (folder / "hardest_rows.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def notes_of(folder):
    return [event for event in read_events(folder / "events.jsonl") if event["kind"] == "hardest"]


def test_the_hardest_rows_are_written_printed_and_noted(tmp_path, capsys):
    trainer = build(tmp_path)
    trainer.train()
    rows = read_file(tmp_path)
    assert [row["row"] for row in rows][:2] in ([17, 60], [60, 17])
    assert len(rows) == 5
    assert {"step", "row", "loss", "outlier", "input", "target", "prediction", "correct"} <= rows[0].keys()
    assert rows[0]["step"] == 30
    printed = capsys.readouterr().out
    assert "The hardest of 100 rows: median loss" in printed
    assert "one pass" in printed
    assert f"All 5 are in {tmp_path / 'hardest_rows.jsonl'}" in printed
    (note,) = notes_of(tmp_path)
    assert [row["row"] for row in note["rows"]] == [row["row"] for row in rows]
    assert sum(note["bins"]) == note["num_rows"] == 100
    assert [row["loss"] for row in trainer.find_hardest_rows(5).rows] == [row["loss"] for row in rows]


def test_a_run_is_the_same_with_and_without_it(tmp_path):
    class Listen(TrainerCallback):
        def __init__(self):
            self.heard = []

        def on_train_end(self, args, state, control, **kwargs):
            self.heard.append(rng.capture()["cpu"].tolist())

        def on_log(self, args, state, control, logs, **kwargs):
            self.heard.append({name: value for name, value in logs.items() if "_per_" not in name})
            self.heard[-1].pop("train_runtime", None)

    found = []
    for number in (0, 5):
        listener = Listen()
        trainer = build(tmp_path / str(number), hardest_rows=number, callbacks=[listener])
        trainer.train()
        weights = {name: value.tolist() for name, value in trainer.model.state_dict().items()}
        found.append((listener.heard, weights, trainer.state.global_step, trainer.model.training))
    assert found[0] == found[1]
    assert not (tmp_path / "0" / "hardest_rows.jsonl").exists()
    assert notes_of(tmp_path / "0") == []


def test_the_pass_is_made_with_the_best_model(tmp_path):
    settings = {"eval_strategy": "steps", "eval_steps": 10, "save_strategy": "steps", "save_steps": 10}
    trainer = build(tmp_path, load_best_model_at_end=True, **settings)
    trainer.train()
    assert [row["loss"] for row in trainer.find_hardest_rows(5).rows] == [
        row["loss"] for row in read_file(tmp_path)
    ]


def test_a_pass_that_takes_long_says_so(tmp_path, capsys, monkeypatch):
    build(tmp_path / "short").train()
    words = "Looking for the hardest rows"
    assert words not in capsys.readouterr().out
    monkeypatch.setattr(hardest_at_end, "LONG_SECONDS", 0.0)
    build(tmp_path / "long").train()
    assert capsys.readouterr().out.count(words) == 1


def test_a_run_whose_rows_have_no_label_that_counts_is_told(tmp_path, caplog):
    class Seldom(Side):
        def forward(self, x, labels):
            return super().forward(x, labels.clamp(min=0) if self.training else labels)

    data = [{**row, "labels": -100} for row in points()]
    args = tiny.arguments(tmp_path, max_steps=2, hardest_rows=5)
    Trainer(Seldom(), args, train_dataset=data).train()
    assert "no row has a label that counts" in caplog.text
    assert not (tmp_path / "hardest_rows.jsonl").exists()


def test_an_error_of_the_pass_is_a_warning(tmp_path, caplog):
    class Fails(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            if not model.training:
                raise RuntimeError("only training rows have a loss")
            return super().compute_loss(model, inputs, return_outputs, **kwargs)

    result = build(tmp_path, Fails).train()
    assert result.global_step == 30
    (warning,) = [record.getMessage() for record in caplog.records if "hardest_rows=5" in record.getMessage()]
    assert "only training rows have a loss" in warning
    assert not (tmp_path / "hardest_rows.jsonl").exists()


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path, caplog, monkeypatch):
    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("footplate.trainer.hardest_at_end.write_hardest", refuse)
    assert build(tmp_path).train().global_step == 30
    assert "No space left on device" in caplog.text
    assert len(notes_of(tmp_path)) == 1


class Interrupted(Trainer):
    """Gets a signal in the middle of the pass, once."""

    number = signal.SIGINT

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        if not model.training and self.number:
            number, self.number = self.number, 0
            os.kill(os.getpid(), number)
        return super().compute_loss(model, inputs, return_outputs, **kwargs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_pass_leaves_the_trained_model_on_disk(tmp_path, number):
    plain = build(tmp_path / "plain")
    plain.train()
    assert not is_interactive()
    Interrupted.number = number
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        build(tmp_path / "hit", Interrupted).train()
    assert (tmp_path / "hit" / "checkpoint-30" / "manifest.json").is_file()
    Interrupted.number = 0
    resumed = build(tmp_path / "hit", Interrupted)
    resumed.train(resume_from_checkpoint=True)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
    times = ("train_runtime", "train_samples_per_second", "train_steps_per_second")
    first, second = (
        [{name: value for name, value in log.items() if name not in times} for log in run.state.log_history]
        for run in (plain, resumed)
    )
    assert first == second
    assert read_file(tmp_path / "hit") == read_file(tmp_path / "plain")


def test_a_signal_in_the_pass_writes_no_checkpoint_of_mixed_weights(tmp_path):
    """The weights in memory are those of the best checkpoint, the optimizer's state is that of the end."""

    class HitInThePass(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            if "train_runtime" in (self.state.log_history or [{}])[-1]:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().compute_loss(model, inputs, return_outputs, **kwargs)

    trainer = build(
        tmp_path,
        HitInThePass,
        max_steps=35,  # the last update is not evaluated
        **{"eval_strategy": "steps", "eval_steps": 10, "save_strategy": "best"},
        **{"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True},
    )
    with pytest.raises(SystemExit):
        trainer.train()
    best = trainer.state.best_global_step
    assert best < 35
    assert (tmp_path / f"checkpoint-{best}" / "manifest.json").is_file()
    assert not (tmp_path / "checkpoint-35").exists()


def test_a_run_that_a_signal_ends_earlier_makes_no_pass(tmp_path):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 7:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        build(tmp_path, callbacks=[Stop()]).train()
    assert not (tmp_path / "hardest_rows.jsonl").exists()


def test_a_run_without_rows_to_look_at_is_told(tmp_path, caplog):
    class OwnLoader(Trainer):
        def get_train_dataloader(self):
            rows = points()
            return [
                {
                    "x": torch.stack([row["x"] for row in rows[i : i + 8]]),
                    "labels": torch.tensor([row["labels"] for row in rows[i : i + 8]]),
                }
                for i in range(0, 96, 8)
            ]

    args = tiny.arguments(tmp_path, max_steps=3, hardest_rows=5)
    OwnLoader(Side(), args).train()
    assert "pass `train_dataset` to Trainer" in caplog.text


@pytest.mark.parametrize("value", [-1, 2.5])
def test_a_wrong_number_of_rows_is_refused(tmp_path, value):
    with pytest.raises(ValueError, match="hardest_rows"):
        TrainingArguments(str(tmp_path), hardest_rows=value)
