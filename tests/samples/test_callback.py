"""Samples during a run: the right rows, in the right places, and a run that does not notice."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import tiny
from footplate import Trainer, TrainerCallback
from footplate.samples.callback import SampleCallback
from footplate.samples.file import SampleFile
from footplate.samples.rows import choose_rows
from footplate.samples.text import plain_value

EVERY_TWO = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 6, "logging_steps": 1}


class Listener(TrainerCallback):
    """Keeps what trackers would be given."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, str, list[dict[str, Any]]]] = []

    def on_samples(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.blocks.append((state.global_step, kwargs["source"], kwargs["samples"]))


class Noisy(Dataset[Any]):
    """Rows that draw from every generator and count how often each is read."""

    def __init__(self, num_rows: int = 40) -> None:
        self.rows = tiny.classification_data(num_rows)
        self.reads = [0] * num_rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        row = self.rows[index]
        changed = int(torch.randint(1, 50, ())) + random.randrange(2) + int(np.random.randint(2))
        return {"input_ids": [changed % 50, *row["input_ids"][1:]], "labels": row["labels"]}


class Stream(IterableDataset[Any]):
    """Rows one after the other, counted."""

    def __init__(self, num_rows: int = 20) -> None:
        self.rows = tiny.regression_data(num_rows)
        self.num_read = 0

    def __iter__(self) -> Any:
        for row in self.rows:
            self.num_read += 1
            yield row


def regression(folder: Any, *callbacks: Any, **settings: Any) -> Any:
    data = tiny.regression_data(16)
    options = {"callbacks": [*callbacks]}
    return tiny.build_trainer(folder, tiny.Regression(), data, data, options=options, **settings)


def read_lines(folder: Any) -> list[dict[str, Any]]:
    text = Path(folder, "samples.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n")[:-1]]


# ---- which rows ----


def test_the_chosen_rows_depend_on_seed_and_length_alone():
    state = random.getstate()
    assert choose_rows(100, 5, seed=1) == choose_rows(100, 5, seed=1)
    assert choose_rows(100, 5, seed=1) != choose_rows(100, 5, seed=2)
    assert choose_rows(3, 10, seed=0) == [0, 1, 2]
    assert len(set(choose_rows(10**12, 10, seed=0))) == 10  # no list of a trillion is made
    assert random.getstate() == state


def test_the_same_rows_are_shown_at_each_evaluation(tmp_path):
    listener = Listener()
    regression(tmp_path, SampleCallback(every=None, count=3), listener, **EVERY_TWO).train()
    assert [(step, source) for step, source, _ in listener.blocks] == [(2, "eval"), (4, "eval"), (6, "eval")]
    shown = [[(row["row"], row["input"], row["target"]) for row in rows] for _, _, rows in listener.blocks]
    assert shown[0] == shown[1] == shown[2]
    assert [row for row, _, _ in shown[0]] == choose_rows(16, 3, seed=42)
    predictions = [[row["prediction"] for row in rows] for _, _, rows in listener.blocks]
    assert predictions[0] != predictions[2]


def test_data_seed_decides_where_it_is_set(tmp_path):
    listener = Listener()
    regression(tmp_path, SampleCallback(every=None, count=3), listener, data_seed=7, **EVERY_TWO).train()
    assert [row["row"] for row in listener.blocks[0][2]] == choose_rows(16, 3, seed=7)


def test_rows_that_draw_random_numbers_are_read_once_and_alike_with_any_number_of_workers(tmp_path):
    shown = []
    fixed = [Noisy()[index] for index in range(8)]  # training reads may differ with workers: not these
    for num_workers in (0, 2):
        listener, data = Listener(), Noisy()
        trainer = tiny.build_trainer(
            tmp_path,
            tiny.bert_classifier(),
            fixed,
            {"a": data},
            options={"callbacks": [SampleCallback(every=1, count=3, source="eval"), listener]},
            max_steps=3,
            dataloader_num_workers=num_workers,
        )
        trainer.train()
        assert [index for index, reads in enumerate(data.reads) if reads] == choose_rows(40, 3, seed=42)
        assert sum(data.reads) == 3
        shown.append(listener.blocks)
    assert shown[0] == shown[1]
    inputs = [[row["input"] for row in rows] for _, _, rows in shown[0]]
    assert inputs[0] == inputs[1] == inputs[2]
    assert {source for _, source, _ in shown[0]} == {"eval_a"}


def test_of_a_stream_the_first_rows_are_read_once(tmp_path):
    listener, stream = Listener(), Stream()
    trainer = regression(tmp_path, SampleCallback(every=1, count=3, source=stream), listener, max_steps=3)
    trainer.train()
    assert stream.num_read == 3
    assert [[row["row"] for row in rows] for _, _, rows in listener.blocks] == [[0, 1, 2]] * 3
    assert listener.blocks[0][2][1]["target"] == pytest.approx(stream.rows[1]["labels"].item())


def test_an_evaluation_stream_works_too(tmp_path):
    listener = Listener()
    data = tiny.regression_data(16)
    callbacks = [SampleCallback(every=None, count=3), listener]
    options = {"callbacks": callbacks}
    tiny.build_trainer(tmp_path, tiny.Regression(), data, Stream(), options=options, **EVERY_TWO).train()
    assert [len(rows) for _, _, rows in listener.blocks] == [3, 3, 3]


def test_tables_of_the_datasets_library_keep_their_row_numbers(tmp_path):
    import datasets

    rows = tiny.classification_data(30)
    table = datasets.Dataset.from_list([{**row, "note": str(index)} for index, row in enumerate(rows)])
    listener = Listener()
    trainer = tiny.build_trainer(
        tmp_path,
        tiny.bert_classifier(),
        None,
        table,
        options={"callbacks": [SampleCallback(every=None, count=10), listener]},
        per_device_eval_batch_size=4,
    )
    trainer.evaluate()
    for row in listener.blocks[0][2]:
        assert row["target"] == f"LABEL_{row['row'] % 3}"
        assert row["input"] == " ".join(map(str, rows[row["row"]]["input_ids"]))
    assert len(listener.blocks[0][2]) == 10


def test_each_of_several_sets_has_its_rows(tmp_path):
    listener = Listener()
    sets = {"near": tiny.regression_data(16), "far": tiny.regression_data(9, seed=5)}
    callbacks = {"callbacks": [SampleCallback(every=None, count=2), listener]}
    trainer = tiny.build_trainer(
        tmp_path, tiny.Regression(), sets["near"], sets, options=callbacks, **EVERY_TWO
    )
    trainer.train()
    expected = [(step, f"eval_{name}") for step in (2, 4, 6) for name in sets]
    assert [(step, source) for step, source, _ in listener.blocks] == expected


def test_rows_keep_their_numbers_where_evaluation_takes_fewer(tmp_path):
    listener = Listener()
    trainer = regression(tmp_path, SampleCallback(every=None, count=8), listener, max_eval_samples=3)
    trainer.evaluate()
    rows = listener.blocks[0][2]
    assert len(rows) == 3
    data = tiny.regression_data(16)
    assert [row["input"] for row in rows] == [data[row["row"]]["x"].item() for row in rows]


def test_an_overridden_loader_is_asked(tmp_path):
    class Doubled(Trainer):
        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return [
                {"x": batch["x"] * 2, "labels": batch["labels"]}
                for batch in super().get_eval_dataloader(eval_dataset)
            ]

    listener, data = Listener(), tiny.regression_data(16)
    trainer = Doubled(
        tiny.Regression(),
        tiny.arguments(tmp_path),
        eval_dataset=data,
        callbacks=[SampleCallback(every=None, count=2), listener],
    )
    trainer.evaluate()
    rows = listener.blocks[0][2]
    assert [row["input"] for row in rows] == [2 * data[row["row"]]["x"].item() for row in rows]


def test_rows_of_the_batch_just_seen_cost_no_forward(tmp_path):
    class Counting(tiny.Regression):
        num_calls = 0

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            self.num_calls += 1
            self.last = x.detach().clone(), self.slope.item(), self.offset.item()
            return super().forward(x, labels)

    class Witness(Listener):
        def on_samples(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            super().on_samples(args, state, control, **kwargs)
            x, slope, offset = kwargs["model"].last
            rows = kwargs["samples"]
            assert [row["input"] for row in rows] == x[: len(rows)].tolist()
            expected = [slope * value + offset for value in x[: len(rows)].tolist()]
            assert [row["prediction"] for row in rows] == pytest.approx(expected)

    listener, model = Witness(), Counting()
    options = {"callbacks": [SampleCallback(every=2, count=3), listener]}
    tiny.build_trainer(tmp_path, model, tiny.regression_data(), options=options, max_steps=5).train()
    assert model.num_calls == 5
    assert [(step, source, len(rows)) for step, source, rows in listener.blocks] == [
        (2, "train", 3),
        (4, "train", 3),
    ]


class HidesWhatItTakes(nn.Module):
    """Its forward names nothing, so labels are found by their usual names."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, **inputs: Any) -> dict[str, torch.Tensor]:
        logits = self.layer(inputs["x"])
        return {"loss": nn.functional.cross_entropy(logits, inputs["tag_labels"]), "logits": logits}


@pytest.mark.parametrize("source", ["train", "eval"])
def test_samples_show_the_labels_that_metrics_see(tmp_path, source):
    data = [{"x": torch.rand(3), "tag_labels": torch.tensor(index % 2)} for index in range(8)]
    seen, listener = [], Listener()

    def keep(prediction: Any) -> dict[str, float]:
        seen.append(prediction.label_ids)
        return {"rows": len(prediction.label_ids)}

    options = {"callbacks": [SampleCallback(every=1, count=8, source=source), listener]}
    trainer = tiny.build_trainer(
        tmp_path,
        HidesWhatItTakes(),
        data,
        data,
        options={**options, "compute_metrics": keep},
        max_steps=1,
        per_device_train_batch_size=8,
        remove_unused_columns=False,
    )
    trainer.train()
    trainer.evaluate()
    rows = listener.blocks[0][2]
    assert sorted(row["target"] for row in rows) == sorted(map(str, seen[-1].tolist()))
    assert not any("tag_labels" in row["input"] for row in rows)


# ---- the run does not notice ----


class Recording(Trainer):
    """A loss that draws random numbers and records something."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.record("noise", float(torch.rand(())) + random.random() + float(np.random.rand()))
        return (loss, outputs) if return_outputs else loss


def drawing_formatter(inputs: Any, labels: Any, predictions: Any) -> dict[str, Any]:
    return {"prediction": random.random() + float(torch.rand(())) + float(np.random.rand())}


@pytest.mark.parametrize(
    "callbacks",
    [
        [lambda: SampleCallback(every=None, count=5)],
        [lambda: SampleCallback(every=1, count=5, source="eval")],
        [lambda: SampleCallback(every=1, count=5), lambda: SampleCallback(every=None, count=2)],
        [lambda: SampleCallback(every=1, count=5, formatter=drawing_formatter)],
    ],
    ids=["at evaluations", "between updates", "of batches", "a formatter that draws"],
)
def test_a_run_is_the_same_with_and_without_samples(tmp_path, callbacks):
    results = []
    for chosen in ([], callbacks):
        trainer = Recording(
            tiny.bert_classifier(),
            tiny.arguments(tmp_path, **EVERY_TWO),
            train_dataset=Noisy(),
            eval_dataset=Noisy(),
            compute_metrics=tiny.accuracy,
            callbacks=[build() for build in chosen],
        )
        trainer.train()
        timed = ("runtime", "per_second")
        history = [
            {key: value for key, value in entry.items() if not key.endswith(timed)}
            for entry in trainer.state.log_history
        ]
        generators = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        weights = {name: value.tolist() for name, value in trainer.model.state_dict().items()}
        results.append((weights, history, generators))
    assert results[0] == results[1]
    assert any("noise" in entry for entry in results[0][1])


def test_rows_of_a_set_are_predicted_without_dropout(tmp_path):
    class Witness(Listener):
        def on_samples(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            super().on_samples(args, state, control, **kwargs)
            model = kwargs["model"]
            assert model.training
            model.eval()
            for row in kwargs["samples"]:
                ids = torch.tensor([data[row["row"]]["input_ids"]])
                scores = model(input_ids=ids).logits[0].detach().softmax(-1)
                assert row["confidence"] == pytest.approx(float(scores.max()), abs=1e-4)
            model.train()

    listener, data = Witness(), tiny.classification_data(20)
    model = tiny.bert_classifier(hidden_dropout_prob=0.9, attention_probs_dropout_prob=0.9)
    nn.init.normal_(model.classifier.weight)  # sure enough of itself that dropout would show
    options = {"callbacks": [SampleCallback(every=1, count=4, source="eval"), listener]}
    tiny.build_trainer(tmp_path, model, data, data, options=options, max_steps=2).train()
    assert len(listener.blocks) == 2


# ---- where they go ----


def test_the_file_has_a_line_for_each_row(tmp_path, capsys):
    listener = Listener()
    regression(tmp_path, SampleCallback(every=3, count=2), listener, max_steps=6).train()
    lines = read_lines(tmp_path)
    assert lines == [
        {"step": step, "source": source, **row} for step, source, rows in listener.blocks for row in rows
    ]
    assert [(line["step"], line["row"]) for line in lines] == [(3, 0), (3, 1), (6, 0), (6, 1)]
    assert list(lines[0]) == ["step", "source", "row", "input", "target", "prediction"]
    printed = capsys.readouterr().out
    assert "Samples (train) at step 3\n" in printed
    assert "   row  input" in printed


def test_console_and_file_can_be_switched_off(tmp_path, capsys):
    callback = SampleCallback(every=1, count=2, console=False, file=False)
    listener = Listener()
    regression(tmp_path, callback, listener, max_steps=2).train()
    assert len(listener.blocks) == 2
    assert "Samples" not in capsys.readouterr().out
    assert not (tmp_path / "samples.jsonl").exists()


def test_an_evaluation_outside_a_run_is_shown_and_not_written(tmp_path, capsys):
    regression(tmp_path, SampleCallback(every=None, count=2)).evaluate()
    assert "Samples (eval) at step 0" in capsys.readouterr().out
    assert not (tmp_path / "samples.jsonl").exists()


def test_an_evaluation_after_a_run_is_not_written(tmp_path, capsys):
    trainer = regression(tmp_path, SampleCallback(every=None, count=2), **EVERY_TWO)
    trainer.train()
    lines = read_lines(tmp_path)
    trainer.state.global_step = 7  # else the block of step 6 would be taken for this one
    trainer.evaluate()
    assert "Samples (eval) at step 7" in capsys.readouterr().out
    assert read_lines(tmp_path) == lines


@pytest.mark.parametrize("is_named", [False, True])
def test_rows_are_those_of_the_set_that_was_evaluated(tmp_path, is_named):
    listener = Listener()
    trainer = regression(tmp_path, SampleCallback(every=None, count=2), listener, max_steps=2)
    other = [{"x": torch.tensor(7.0), "labels": torch.tensor(float(index))} for index in range(5)]
    trainer.evaluate({"far": other} if is_named else other)
    ((_, source, rows),) = listener.blocks
    assert source == ("eval_far" if is_named else "eval")
    assert {row["input"] for row in rows} == {7.0}


def test_a_control_that_a_listener_returns_counts(tmp_path):
    class Stop(TrainerCallback):
        def on_samples(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = True

    trainer = regression(tmp_path, SampleCallback(every=2), Stop(), max_steps=6)
    assert trainer.train().global_step == 2


# ---- files and faults ----


class Killer(TrainerCallback):
    """Ends the process as a power cut would, before or after an evaluation's samples are written."""

    def __init__(self, step: int, event: str) -> None:
        self.step, self.event = step, event

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "eval_loss" in logs:
            self.kill("on_log", args, state)

    def on_samples(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if kwargs["source"] == "eval":
            self.kill("on_samples", args, state)

    def kill(self, event: str, args: Any, state: Any) -> None:
        if (event, state.global_step) != (self.event, self.step):
            return
        while not Path(args.output_dir, "checkpoint-4").is_dir():  # it is written in the background
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


def long_run(folder: Any, *callbacks: Any, resume: Any = None) -> None:
    samples = [SampleCallback(every=3, count=2), SampleCallback(every=None, count=3)]
    options = {"callbacks": [*samples, *callbacks]}
    settings = {"save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps", "eval_steps": 2}
    tiny.build_trainer(
        folder, tiny.bert_classifier(), Noisy(), Noisy(), options=options, max_steps=12, **settings
    ).train(resume_from_checkpoint=resume)


def killed_run(folder: Any, step: int, event: str) -> None:
    child = os.fork()
    if child == 0:
        long_run(folder, Killer(step, event))
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def test_the_file_of_a_killed_and_resumed_run_is_that_of_a_whole_one(tmp_path):
    long_run(tmp_path / "whole")
    assert {line["source"] for line in read_lines(tmp_path / "whole")} == {"train", "eval"}
    whole = (tmp_path / "whole" / "samples.jsonl").read_bytes()
    for step, event in [(6, "on_log"), (6, "on_samples"), (8, "on_samples"), (10, "on_log")]:
        folder = tmp_path / f"{event}-{step}"
        killed_run(folder, step, event)
        last = read_lines(folder)[-1]
        expected = {"on_samples": (step, "eval"), "on_log": (6, "train") if step == 6 else (9, "train")}
        assert (last["step"], last["source"]) == expected[event]
        long_run(folder, resume=True)
        assert (folder / "samples.jsonl").read_bytes() == whole


def test_a_new_run_starts_a_new_file(tmp_path):
    for _ in range(2):
        regression(tmp_path, SampleCallback(every=2, count=1), max_steps=4).train()
        assert [line["step"] for line in read_lines(tmp_path)] == [2, 4]


def test_a_torn_line_and_the_future_are_cut(tmp_path):
    file = SampleFile(tmp_path)
    for step in (1, 2, 3):
        file.append(step, "eval", [{"prediction": "가\n\x1b\udc80"}])
    lines = file.path.read_bytes().splitlines(keepends=True)
    file.path.write_bytes(b"".join(lines) + lines[0][:10])
    file.begin_run(2)
    assert file.path.read_bytes() == b"".join(lines[:2])
    assert read_lines(tmp_path)[0]["prediction"] == "가\n\x1b\udc80"
    file.append(2, "eval", [{"prediction": "again"}])  # an evaluation that is made once more
    assert file.path.read_bytes() == b"".join(lines[:2])
    file.append(2, "train", [{"prediction": "other"}])
    assert len(read_lines(tmp_path)) == 3
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_row_has_no_say_in_its_step(tmp_path):
    SampleFile(tmp_path).append(5, "eval", [{"step": "mine", "source": 3, "prediction": 1}])
    assert read_lines(tmp_path) == [{"step": 5, "source": "eval", "prediction": 1}]


def test_a_full_disk_costs_samples_and_nothing_else(tmp_path, caplog):
    file = SampleFile(tmp_path)
    file.path.symlink_to("/dev/full")
    file.append(1, "eval", [{"prediction": 1}])
    file.append(2, "eval", [{"prediction": 1}])
    assert caplog.text.count("could not be written") == 1
    assert "No space left" in caplog.text


def test_a_file_that_cannot_be_one_does_not_stop_training(tmp_path, caplog):
    (tmp_path / "samples.jsonl").mkdir()
    regression(tmp_path, SampleCallback(every=1, count=1), max_steps=3).train()
    assert caplog.text.count("samples.jsonl was not a file") == 1
    assert [line["step"] for line in read_lines(tmp_path)] == [1, 2, 3]


# ---- formatters of the user's own ----


def test_an_own_formatter_gets_one_row_and_its_columns_are_shown(tmp_path, capsys):
    def show(inputs: Any, labels: Any, predictions: Any) -> dict[str, Any]:
        assert inputs.keys() == {"x", "labels"}
        error = abs(predictions - labels)
        return {"x": inputs["x"], "error": error, "correct": bool(error < 1), "shape": list(labels.shape)}

    regression(tmp_path, SampleCallback(every=2, count=4, formatter=show), max_steps=2).train()
    lines = read_lines(tmp_path)
    assert [list(line) for line in lines] == [["step", "source", "row", "x", "error", "correct", "shape"]] * 4
    assert {line["shape"] for line in lines} == {"[]"}
    wrong = sum(line["error"] >= 1 for line in lines)
    printed = capsys.readouterr().out
    assert f"Samples (train) at step 2, {wrong} of 4 wrong" in printed
    assert sum(line.startswith("x  ") for line in printed.splitlines()) == wrong > 0


@pytest.mark.parametrize("fault", ["raises", "returns text"])
def test_an_own_formatter_that_fails_is_named_once_and_training_goes_on(tmp_path, caplog, fault):
    def show(inputs: Any, labels: Any, predictions: Any) -> Any:
        return inputs["text"] if fault == "raises" else "a string"

    trainer = regression(tmp_path, SampleCallback(every=1, count=2, formatter=show), max_steps=3)
    assert trainer.train().global_step == 3
    assert caplog.text.count("Your sample formatter failed") == 1
    if fault == "raises":
        assert "KeyError: 'text'" in caplog.text
        assert "test_callback.py, line" in caplog.text
        assert "['x', 'labels']" in caplog.text
    else:
        assert "returns a dict for each row, not 'a string'" in caplog.text
    assert [line["step"] for line in read_lines(tmp_path)] == [1, 1, 2, 2, 3, 3]
    assert all(isinstance(line["prediction"], float) for line in read_lines(tmp_path))


def test_a_tokenizer_that_fails_leaves_the_ids_out_and_training_on(tmp_path, caplog):
    class Broken:
        def decode(self, ids: Any) -> str:
            raise IndexError("no such word")

    trainer = Trainer(
        tiny.bert_classifier(),
        tiny.arguments(tmp_path, max_steps=2),
        train_dataset=Noisy(),
        processing_class=Broken(),
        callbacks=[SampleCallback(every=1, count=2)],
    )
    assert trainer.train().global_step == 2
    assert caplog.text.count("IndexError: no such word") == 1


def test_data_that_fails_to_be_read_is_said_once(tmp_path, caplog):
    class Torn(Dataset[Any]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            raise OSError(f"row {index} is gone")

    trainer = regression(tmp_path, SampleCallback(every=1, source=Torn()), max_steps=3)
    assert trainer.train().global_step == 3
    assert caplog.text.count("Samples could not be shown") == 1
    assert "is gone" in caplog.text


def test_a_loss_that_hides_its_outputs_is_told_so(tmp_path, caplog):
    class Hiding(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **kwargs: Any) -> Any:
            return model(**inputs)["loss"]

    data = tiny.regression_data(16)
    args = tiny.arguments(tmp_path, max_steps=3)
    Hiding(tiny.Regression(), args, train_dataset=data, callbacks=[SampleCallback(every=1)]).train()
    assert caplog.text.count("compute_loss gave no outputs") == 1


def test_hostile_text_reaches_the_file_whole_and_the_console_escaped(tmp_path, capsys):
    hostile = "\x1b[2Jline\nline"

    def show(inputs: Any, labels: Any, predictions: Any) -> dict[str, Any]:
        return {"prediction": hostile}

    regression(tmp_path, SampleCallback(every=1, count=1, formatter=show), max_steps=1).train()
    assert read_lines(tmp_path)[0]["prediction"] == hostile
    printed = capsys.readouterr().out
    assert "\\x1b[2Jline\\nline" in printed
    assert "\x1b[2J" not in printed


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (torch.tensor(2), 2),
        (torch.tensor([1.5, 2.0]), "[1.5, 2.0]"),
        (np.float64(0.5), 0.5),
        (float("nan"), "nan"),
        (torch.tensor(float("inf")), "inf"),
        (None, None),
        (True, True),
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_values_become_text_or_numbers(value, plain):
    assert plain_value(value) == plain
    json.dumps(plain_value(value), allow_nan=False)


# ---- settings ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every=0"),
        ({"count": 0}, "count=0"),
        ({"source": "test"}, "source='test'"),
        ({"every": None, "source": "train"}, "set `every`"),
    ],
)
def test_settings_that_show_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SampleCallback(**settings)


def test_an_evaluation_set_that_is_missing_is_named_before_the_first_step(tmp_path):
    callbacks = {"callbacks": [SampleCallback(every=1, source="eval")]}
    trainer = tiny.build_trainer(tmp_path, tiny.Regression(), tiny.regression_data(16), options=callbacks)
    with pytest.raises(ValueError, match="pass `eval_dataset` to Trainer"):
        trainer.train()


def test_a_set_without_rows_is_warned_of(tmp_path, caplog):
    regression(tmp_path, SampleCallback(every=1, source=[]), max_steps=2).train()
    assert caplog.text.count("it gave no rows") == 1


def test_a_formatter_must_be_callable():
    with pytest.raises(TypeError, match="formatter must be a function"):
        SampleCallback(formatter="text")  # type: ignore[arg-type]


def test_outputs_are_kept_only_where_batches_are_shown():
    assert SampleCallback(every=50).wants_step_data
    assert not SampleCallback(every=None).wants_step_data
    assert not SampleCallback(every=50, source="eval").wants_step_data


def test_samples_at_evaluations_that_never_come_are_warned_of(tmp_path, caplog):
    regression(tmp_path, SampleCallback(every=None), max_steps=1).train()
    assert 'eval_strategy="no"' in caplog.text


def test_the_argument_shows_rows_at_each_evaluation(tmp_path):
    listener = Listener()
    regression(tmp_path, listener, show_samples=3, **EVERY_TWO).train()
    assert [(step, source, len(rows)) for step, source, rows in listener.blocks] == [
        (2, "eval", 3),
        (4, "eval", 3),
        (6, "eval", 3),
    ]
    assert len(read_lines(tmp_path)) == 9
