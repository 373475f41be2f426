"""Evaluation: the numbers of transformers, and what metrics may look at beyond them."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset
from torch import nn
from torch.utils.data import IterableDataset, SubsetRandomSampler
from torchmetrics import MeanAbsoluteError

import footplate
import tiny

SPEED = ("_runtime", "_per_second", "_preparation_time")


def without_speed(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if not key.endswith(SPEED)}


def arguments(library: Any, folder: Any, **settings: Any) -> Any:
    defaults = {"per_device_eval_batch_size": 4, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    return library.TrainingArguments(str(folder), **(defaults | settings))


# ---- the same metrics as transformers ----


def rows_of(num_rows: int, **make: Any) -> list[dict[str, Any]]:
    """Rows of ragged length; `make` has a function of length and generator for each further column."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(num_rows):
        length = int(torch.randint(4, 12, (), generator=generator))
        ids = torch.randint(1, 50, (length,), generator=generator)
        rows.append({"input_ids": ids, **{name: fill(length, generator) for name, fill in make.items()}})
    return rows


def pad_batch(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch padded to its own longest row, so that batches differ in length."""
    batch: dict[str, Any] = {}
    for name in rows[0]:
        values = [torch.as_tensor(row[name]) for row in rows]
        fill = -100 if "label" in name else 0
        is_ragged = values[0].dim() == 1
        pad = nn.utils.rnn.pad_sequence
        batch[name] = pad(values, True, fill) if is_ragged else torch.stack(values)
    return batch


def bert(head: str, **config: Any) -> nn.Module:
    model_config = tiny.bert_classifier(**config).config
    torch.manual_seed(1)
    return getattr(transformers, f"BertFor{head}")(model_config)


class TwoHeads(nn.Module):
    """Answers and labels are dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embed, self.a, self.b = nn.Embedding(50, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, labels: dict[str, torch.Tensor] | None = None) -> Any:
        pooled = self.embed(input_ids).mean(1)
        logits = {"a": self.a(pooled), "b": self.b(pooled)}
        if labels is None:
            return {"logits": logits}
        losses = [nn.functional.cross_entropy(logits[name], labels[name]) for name in logits]
        return {"loss": sum(losses), "logits": logits}


def pad_two_heads(rows: list[dict[str, Any]]) -> dict[str, Any]:
    batch = pad_batch(rows)
    return {
        "input_ids": batch["input_ids"],
        "labels": {"a": batch.pop("a_labels"), "b": batch.pop("b_labels")},
    }


def one_of(count: int) -> Any:
    return lambda length, generator: torch.randint(0, count, (), generator=generator)


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": (prediction.predictions.argmax(-1) == prediction.label_ids).mean()}


def tag_accuracy(prediction: Any) -> dict[str, float]:
    counted = prediction.label_ids != -100
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {
        "accuracy": right[counted].mean(),
        "tags": counted.sum(),
        "width": prediction.predictions.shape[1],
    }


def span_accuracy(prediction: Any) -> dict[str, float]:
    starts, ends = prediction.predictions
    return {
        "start": (starts.argmax(-1) == prediction.label_ids[0]).mean(),
        "end": (ends.argmax(-1) == prediction.label_ids[1]).mean(),
        "filling": float((starts == -100).sum()),
    }


def both_accuracies(prediction: Any) -> dict[str, float]:
    return {
        name: (prediction.predictions[name].argmax(-1) == prediction.label_ids[name]).mean() for name in "ab"
    }


TASKS: dict[str, dict[str, Any]] = {
    "classification": {
        "model": lambda: bert("SequenceClassification"),
        "rows": rows_of(22, labels=one_of(3)),
        "metrics": accuracy,
    },
    "regression": {
        "model": lambda: bert("SequenceClassification", num_labels=1, problem_type="regression"),
        "rows": rows_of(22, labels=lambda length, generator: torch.randn((), generator=generator)),
        "metrics": lambda p: {"mse": ((p.predictions[:, 0] - p.label_ids) ** 2).mean()},
    },
    "multi-label": {
        "model": lambda: bert("SequenceClassification", problem_type="multi_label_classification"),
        "rows": rows_of(22, labels=lambda length, generator: torch.rand(3, generator=generator).round()),
        "metrics": lambda p: {"hamming": ((p.predictions > 0) == p.label_ids.astype(bool)).mean()},
    },
    "token classification": {
        "model": lambda: bert("TokenClassification"),
        "rows": rows_of(22, labels=lambda n, generator: torch.randint(0, 3, (n,), generator=generator)),
        "metrics": tag_accuracy,
    },
    "question answering": {
        "model": lambda: bert("QuestionAnswering", num_labels=2),
        "rows": rows_of(22, start_positions=one_of(4), end_positions=one_of(4)),
        "metrics": span_accuracy,
    },
    "dictionaries": {
        "model": TwoHeads,
        "rows": rows_of(22, a_labels=one_of(2), b_labels=one_of(3)),
        "metrics": both_accuracies,
        "collate": pad_two_heads,
        "settings": {"remove_unused_columns": False, "label_names": ["labels"]},
    },
}


def build(library: Any, folder: Any, task: str, **options: Any) -> Any:
    setup = TASKS[task]
    return library.Trainer(
        setup["model"](),
        arguments(library, folder, **setup.get("settings", {})),
        data_collator=setup.get("collate", pad_batch),
        compute_metrics=setup["metrics"],
        **{"eval_dataset": setup["rows"], **options},
    )


@pytest.mark.parametrize("task", TASKS)
def test_metrics_and_predictions_are_those_of_transformers(task, tmp_path):
    ours, theirs = build(footplate, tmp_path / "a", task), build(transformers, tmp_path / "b", task)
    assert without_speed(ours.evaluate()) == without_speed(theirs.evaluate())
    rows = TASKS[task]["rows"]
    mine, original = ours.predict(rows), theirs.predict(rows)
    assert without_speed(mine.metrics) == without_speed(original.metrics)
    torch.testing.assert_close(mine.predictions, original.predictions, rtol=0, atol=0)
    torch.testing.assert_close(mine.label_ids, original.label_ids, rtol=0, atol=0)


@pytest.mark.parametrize("task", ["classification", "token classification"])
def test_several_sets_are_measured_as_transformers_measures_them(task, tmp_path):
    rows = TASKS[task]["rows"]
    sets = {"long": rows, "short": rows[:5]}
    ours = build(footplate, tmp_path / "a", task, eval_dataset=sets).evaluate()
    theirs = build(transformers, tmp_path / "b", task, eval_dataset=sets).evaluate()
    joint = ours.pop("eval_loss")
    assert without_speed(ours) == without_speed(theirs)
    assert joint == pytest.approx((22 * ours["eval_long_loss"] + 5 * ours["eval_short_loss"]) / 27)


@pytest.mark.parametrize("limit", ["1KB", 1000, 1e-9])
@pytest.mark.parametrize("task", ["token classification", "question answering", "dictionaries"])
def test_a_memory_limit_changes_no_number(task, limit, tmp_path):
    free = build(footplate, tmp_path / "a", task)
    tight = build(footplate, tmp_path / "b", task)
    tight.args.eval_memory_limit = limit
    assert without_speed(tight.evaluate()) == without_speed(free.evaluate())
    torch.testing.assert_close(
        tight.predict(TASKS[task]["rows"]).predictions, free.predict(TASKS[task]["rows"]).predictions
    )
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 0]
    assert [path.name for path in left if path.suffix not in (".jsonl", ".html", ".csv", ".json")] == []


@pytest.mark.parametrize("limit", ["lots", 0, -1, "5XB"])
def test_a_memory_limit_that_is_none_is_refused_at_once(limit, tmp_path):
    with pytest.raises(ValueError, match="eval_memory_limit"):
        regression_trainer(tmp_path, settings={"eval_memory_limit": limit})


# ---- what metrics may look at ----


class Keep:
    """A `compute_metrics` that shows what it was given."""

    def __init__(self) -> None:
        self.seen: list[footplate.EvalPrediction] = []

    def __call__(self, prediction: footplate.EvalPrediction) -> dict[str, float]:
        self.seen.append(prediction)
        return {"rows": len(prediction.predictions)}


def named_rows(num_rows: int = 30) -> list[dict[str, Any]]:
    return [{**row, "id": f"row {index}"} for index, row in enumerate(tiny.regression_data(num_rows))]


def regression_trainer(folder: Any, **options: Any) -> footplate.Trainer:
    settings = options.pop("settings", {})
    return footplate.Trainer(tiny.Regression(), arguments(footplate, folder, **settings), **options)


@pytest.mark.parametrize("make", [list, Dataset.from_list], ids=["list", "table"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_any_column_lines_up_with_the_predictions(make, num_workers, tmp_path):
    class Shuffled(footplate.Trainer):
        def _get_eval_sampler(self, dataset):
            return SubsetRandomSampler(range(len(dataset)), torch.Generator().manual_seed(3))

    rows, keep = named_rows(), Keep()
    plain = [{key: float(value) if key != "id" else value for key, value in row.items()} for row in rows]
    args = arguments(footplate, tmp_path, dataloader_num_workers=num_workers)
    trainer = Shuffled(tiny.Regression(), args, eval_dataset=make(plain), compute_metrics=keep)
    trainer.evaluate()
    (seen,) = keep.seen
    assert sorted(seen.indices) == list(range(30))
    assert list(seen.indices) != list(range(30))
    assert list(seen.columns["id"]) == [f"row {index}" for index in seen.indices]
    np.testing.assert_allclose(seen.columns["labels"], seen.label_ids, rtol=1e-6)
    np.testing.assert_allclose(np.array(seen.columns["x"]) * 0.5 - 1, seen.predictions, rtol=1e-5)


def test_losses_are_there_unasked_but_unpack_only_when_asked_for(tmp_path):
    for named, length in (([], 2), (["loss"], 3), (["inputs", "loss"], 3)):
        keep = Keep()
        regression_trainer(
            tmp_path, eval_dataset=named_rows(), compute_metrics=keep, settings={"include_for_metrics": named}
        ).evaluate()
        assert len(keep.seen[0].losses) == 30
        assert len(list(keep.seen[0])) == length


def test_metrics_know_which_set_they_are_about(tmp_path):
    keep = Keep()
    sets = {"first": named_rows(6), "second": named_rows(9)}
    regression_trainer(tmp_path, eval_dataset=sets, compute_metrics=keep).evaluate()
    assert [seen.dataset_name for seen in keep.seen] == ["first", "second"]
    assert [len(seen.columns["id"]) for seen in keep.seen] == [6, 9]


def test_a_loop_that_is_called_by_itself_sees_no_rows_of_another_set(tmp_path):
    keep = Keep()
    trainer = regression_trainer(tmp_path, eval_dataset=named_rows(30), compute_metrics=keep)
    trainer.evaluate()
    trainer.evaluation_loop(trainer.get_eval_dataloader(named_rows(5)), "Evaluation")
    assert len(keep.seen[0].columns["id"]) == 30
    assert keep.seen[1].indices.tolist() == [0, 1, 2, 3, 4]
    assert dict(keep.seen[1].columns) == {}


def test_a_metric_that_looks_at_columns_is_tried_on_the_first_rows(tmp_path):
    def by_kind(prediction: footplate.EvalPrediction) -> dict[str, float]:
        assert list(prediction.columns["id"]) == [f"row {index}" for index in prediction.indices]
        assert prediction.dataset_name == "near"
        return {"kind": float(len(prediction.columns["id"]) == len(prediction.predictions))}

    rows = [{"id": f"row {index}", "x": 1.0, "labels": 2.0} for index in range(30)]
    trainer = regression_trainer(
        tmp_path,
        settings={"max_steps": 1, "eval_strategy": "steps", "metric_for_best_model": "near_sort"},
        train_dataset=rows,
        eval_dataset={"near": Dataset.from_list(rows)},
        compute_metrics=by_kind,
    )
    with pytest.raises(ValueError, match=r"metric_for_best_model='near_sort'.*near_kind"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("is_tried", [True, False])
def test_dropout_is_on_after_metrics_were_tried(is_tried, tmp_path):
    def unready(prediction: footplate.EvalPrediction) -> dict[str, float]:
        if not is_tried and len(prediction.predictions) < 8:
            raise ValueError("not defined on so few rows")
        return {"rows": 1.0}

    class Watch(footplate.TrainerCallback):
        modes: ClassVar[list[bool]] = []

        def on_train_begin(self, args, state, control, model, **kwargs):
            self.modes.append(model.training)

    settings = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 5, "metric_for_best_model": "rows"}
    data = named_rows(8)
    options = {"train_dataset": data, "eval_dataset": data, "compute_metrics": unready}
    regression_trainer(tmp_path, settings=settings, callbacks=[Watch], **options).train()
    assert Watch.modes[-1]


def test_a_prediction_without_side_effects_leaves_modes_records_and_generators_as_they_were(tmp_path):
    class Noisy(nn.Sequential):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            assert not any(module.training for module in self.modules())
            logits = super().forward(x[:, None] + torch.rand(len(x), 1))
            return {"loss": logits.mean(), "logits": logits}

    class Recording(footplate.Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            self.record("aside", 1.0)
            return super().compute_loss(*args, **kwargs)

    model = Noisy(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Linear(1, 1)))
    trainer = Recording(model, arguments(footplate, tmp_path))
    model.train()
    model[1][0].eval()  # frozen by its owner
    modes = [module.training for module in model.modules()]
    before = torch.get_rng_state()
    batch = {"x": torch.ones(3), "labels": torch.ones(3)}
    answers, labels = trainer._predict_without_side_effects(batch)
    assert answers.shape == (3, 1)
    assert torch.equal(labels, torch.ones(3))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer._current_evaluation is None
    assert trainer._current_run.meter._records.totals() == {}


def test_a_stream_has_no_indices_and_no_columns(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            yield from tiny.regression_data(10)

    keep = Keep()
    regression_trainer(tmp_path, eval_dataset=Stream(), compute_metrics=keep).evaluate()
    assert keep.seen[0].indices is None
    assert dict(keep.seen[0].columns) == {}


# ---- a part of the rows ----


@pytest.mark.parametrize("make", [list, Dataset.from_list], ids=["list", "table"])
def test_max_eval_samples_takes_the_same_rows_every_time(make, tmp_path):
    rows = [{key: float(v) if key != "id" else v for key, v in row.items()} for row in named_rows(40)]
    keep = Keep()
    for seed in (1, 1, 2):
        settings = {"max_eval_samples": 7, "seed": seed}
        trainer = regression_trainer(
            tmp_path, eval_dataset=make(rows), compute_metrics=keep, settings=settings
        )
        metrics = trainer.evaluate()
        assert metrics["eval_rows"] == 7
    first, again, other = (list(seen.indices) for seen in keep.seen)
    assert first == again != other
    assert list(keep.seen[0].columns["id"]) == [f"row {index}" for index in first]


def test_max_eval_samples_leaves_prediction_alone(tmp_path):
    trainer = regression_trainer(tmp_path, settings={"max_eval_samples": 7})
    assert len(trainer.predict(named_rows(40)).predictions) == 40


@pytest.mark.parametrize("given", [0, -3])
def test_max_eval_samples_of_nothing_is_refused(given, tmp_path):
    with pytest.raises(ValueError, match="max_eval_samples"):
        footplate.TrainingArguments(str(tmp_path), max_eval_samples=given)


# ---- a collator of its own ----


def test_evaluation_and_prediction_use_their_own_collator(tmp_path):
    calls: list[str] = []

    def collate_as(name: str) -> Any:
        def collate(rows: list[Any]) -> Any:
            calls.append(name)
            return footplate.default_data_collator(rows)

        return collate

    data = tiny.regression_data(8)
    trainer = regression_trainer(
        tmp_path,
        settings={"max_steps": 1, "eval_strategy": "no", "report": False},
        train_dataset=data,
        eval_dataset=data,
        data_collator=collate_as("train"),
        eval_data_collator=collate_as("eval"),
    )
    trainer.train()
    assert set(calls) == {"train"}
    calls.clear()
    trainer.evaluate()
    trainer.predict(data)
    assert set(calls) == {"eval"}


# ---- metric objects ----


def test_a_metric_object_gives_what_a_function_gives_and_keeps_no_predictions(tmp_path):
    data = tiny.regression_data(30)

    def mean_error(prediction: Any) -> dict[str, float]:
        return {"error": np.abs(prediction.predictions - prediction.label_ids).mean()}

    by_function = regression_trainer(tmp_path, eval_dataset=data, compute_metrics=mean_error).evaluate()
    metrics = {"error": MeanAbsoluteError()}
    trainer = regression_trainer(tmp_path, eval_dataset=data, compute_metrics=metrics)
    for _ in range(2):  # the second evaluation starts anew
        by_object = trainer.evaluate()
        assert by_object["eval_error"] == pytest.approx(by_function["eval_error"], rel=1e-6)
        assert by_object["eval_loss"] == by_function["eval_loss"]
    output = trainer.evaluation_loop(trainer.get_eval_dataloader(), "Evaluation")
    assert output.predictions is None
    assert len(trainer.predict(data).predictions) == 30


def test_a_metric_object_can_choose_the_best_model(tmp_path):
    data = tiny.regression_data(16)
    settings = {
        "max_steps": 4,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "learning_rate": 0.1,
        "metric_for_best_model": "mean_absolute_error",
        "greater_is_better": False,
        "load_best_model_at_end": True,
    }
    trainer = regression_trainer(
        tmp_path,
        settings=settings,
        train_dataset=data,
        eval_dataset=data,
        compute_metrics=MeanAbsoluteError(),
    )
    trainer.train()
    assert trainer.state.best_global_step == 4
    with pytest.raises(ValueError, match=r"metric_for_best_model='mean_error'.*mean_absolute_error"):
        regression_trainer(
            tmp_path,
            settings={**settings, "metric_for_best_model": "mean_error"},
            train_dataset=data,
            eval_dataset=data,
            compute_metrics=MeanAbsoluteError(),
        ).train()


def test_a_metric_object_needs_no_batch_eval_metrics_and_minds_it_not(tmp_path):
    data = tiny.regression_data(10)
    metrics = [
        regression_trainer(
            tmp_path,
            eval_dataset=data,
            compute_metrics=MeanAbsoluteError(),
            settings={"batch_eval_metrics": by_batch},
        ).evaluate()["eval_mean_absolute_error"]
        for by_batch in (False, True)
    ]
    assert metrics[0] == metrics[1]


def test_training_batches_are_not_for_metric_objects(tmp_path):
    with pytest.raises(ValueError, match="train_metrics_batches=2"):
        regression_trainer(
            tmp_path, settings={"train_metrics_batches": 2}, compute_metrics=MeanAbsoluteError()
        )


# ---- labels: named, in the signature, or known by their names ----


class PassesOn(nn.Module):
    """A wrapper whose forward names nothing."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, **inputs: Any) -> Any:
        inputs.pop("num_items_in_batch", None)
        return self.inner(**inputs)


class Renamed(nn.Module):
    """Takes its labels under another name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.line = name, tiny.Regression()

    def forward(self, x: torch.Tensor, **others: Any) -> Any:
        return self.line(x, others.get(self.name))


def adapter() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(bert("SequenceClassification"), LoraConfig(target_modules=["query"], r=2))


@pytest.mark.parametrize(
    ("model", "name", "settings"),
    [
        (tiny.Regression, "labels", {}),
        (lambda: PassesOn(tiny.Regression()), "labels", {"remove_unused_columns": False}),
        (lambda: Renamed("y_labels"), "y_labels", {"remove_unused_columns": False}),
        (lambda: Renamed("goal"), "goal", {"remove_unused_columns": False, "label_names": ["goal"]}),
    ],
    ids=["signature", "wrapper", "known name", "label_names"],
)
def test_labels_are_found_and_give_loss_and_metrics(model, name, settings, tmp_path):
    rows = [{"x": row["x"], name: row["labels"]} for row in tiny.regression_data(10)]
    trainer = footplate.Trainer(
        model(), arguments(footplate, tmp_path, **settings), eval_dataset=rows, compute_metrics=Keep()
    )
    metrics = trainer.evaluate()
    expected = regression_trainer(tmp_path, eval_dataset=tiny.regression_data(10)).evaluate()["eval_loss"]
    assert metrics["eval_loss"] == expected
    assert metrics["eval_rows"] == 10


def test_labels_are_found_through_an_adapter(tmp_path):
    trainer = footplate.Trainer(
        adapter(),
        arguments(footplate, tmp_path),
        data_collator=pad_batch,
        eval_dataset=TASKS["classification"]["rows"],
        compute_metrics=accuracy,
    )
    assert {"eval_loss", "eval_accuracy"} <= set(trainer.evaluate())


@pytest.mark.parametrize(
    ("rows", "is_said"),
    [
        ([{"x": row["x"]} for row in tiny.regression_data(8)], True),
        ([{"x": row["x"], "target": row["labels"]} for row in tiny.regression_data(8)], True),
        (tiny.regression_data(8), False),
    ],
    ids=["no labels", "another name", "labels"],
)
def test_an_evaluation_that_will_give_nothing_is_announced_before_the_first_update(
    rows, is_said, tmp_path, caplog
):
    class Quit(footplate.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    trainer = regression_trainer(
        tmp_path,
        settings={"max_steps": 2, "eval_strategy": "steps"},
        train_dataset=tiny.regression_data(8),
        eval_dataset=rows,
        callbacks=[Quit],
    )
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert ("neither eval_loss nor metrics" in caplog.text) is is_said
    assert ("label_names" in caplog.text) is is_said
    assert not is_said or str(sorted(rows[0])) in caplog.text  # with those that the model does not take


def test_metrics_by_batch_do_not_hide_that_there_are_no_labels(tmp_path, caplog):
    trainer = regression_trainer(
        tmp_path,
        settings={"max_steps": 1, "eval_strategy": "steps", "batch_eval_metrics": True},
        train_dataset=tiny.regression_data(8),
        eval_dataset=[{"x": row["x"]} for row in tiny.regression_data(8)],
        compute_metrics=lambda prediction, compute_result: {},
    )
    trainer.train()
    assert "neither eval_loss nor metrics" in caplog.text


def test_labels_that_the_collator_makes_are_seen(tmp_path, caplog):
    def label_it(rows: list[Any]) -> Any:
        return {"x": torch.stack([row["x"] for row in rows]), "labels": torch.zeros(len(rows))}

    rows = [{"x": row["x"]} for row in tiny.regression_data(8)]
    trainer = regression_trainer(
        tmp_path,
        settings={"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1},
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=label_it,
    )
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert "neither eval_loss" not in caplog.text
    assert "eval_loss" in trainer.state.log_history[0]


# ---- outputs that are no predictions ----


class KeyValueCache:
    """What a model keeps for its next token."""


class WithCache(tiny.Regression):
    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        return {**super().forward(x, labels), "past": KeyValueCache(), "hidden": None}


def test_caches_and_nothing_are_left_out_of_the_predictions(tmp_path):
    trainer = footplate.Trainer(WithCache(), arguments(footplate, tmp_path))
    predictions = trainer.predict(tiny.regression_data(10)).predictions
    assert isinstance(predictions, np.ndarray)
    assert predictions.shape == (10,)


# ---- losses that are not finite, and metrics that fail ----


class Spoiled(tiny.Regression):
    """The loss of a batch with a negative label is not a number."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        outputs = super().forward(x, labels)
        if labels is not None and bool((labels < 0).any()):
            outputs["loss"] = outputs["loss"] * float("nan")
        return outputs


@pytest.mark.parametrize("is_filtered", [True, False])
@pytest.mark.parametrize("num_spoiled", [0, 1, 3])
def test_a_batch_whose_loss_is_not_a_number_counts_as_in_the_original(num_spoiled, is_filtered, tmp_path):
    labels = [-1.0 if row < 4 * num_spoiled else 2.0 + row for row in range(12)]
    rows = [{"x": torch.tensor(0.1 * row), "labels": torch.tensor(label)} for row, label in enumerate(labels)]
    settings = {"per_device_eval_batch_size": 4, "logging_nan_inf_filter": is_filtered}
    theirs, ours = (
        library.Trainer(Spoiled(), arguments(library, tmp_path, **settings)).evaluate(rows)["eval_loss"]
        for library in (transformers, footplate)
    )
    assert np.array_equal(theirs, ours, equal_nan=True)


def fails_later(prediction: Any) -> dict[str, float]:
    if len(prediction.predictions) > 8:  # not when it is tried on the first batch
        raise ZeroDivisionError("no such thing")
    return {"score": 1.0}


def failing_trainer(folder: Any, **settings: Any) -> footplate.Trainer:
    data = tiny.regression_data(20)
    return footplate.Trainer(
        tiny.Regression(),
        tiny.arguments(
            folder,
            **{"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps"},
            **settings,
        ),
        train_dataset=data,
        eval_dataset={"near": data[:8], "far": data},
        compute_metrics=fails_later,
    )


def test_predictions_of_an_evaluation_whose_metrics_fail_are_kept(tmp_path, caplog):
    trainer = failing_trainer(tmp_path)
    with pytest.raises(ZeroDivisionError, match="no such thing"):
        trainer.train()
    path = tmp_path / "failed_evaluation" / "eval_far.npz"
    assert f"What it was given is in {path}" in caplog.text
    data = np.load(path)
    expected = trainer.predict(tiny.regression_data(20)[:8])  # the weights are those of that evaluation
    assert np.array_equal(data["predictions"][:8], expected.predictions)
    assert np.array_equal(data["label_ids"][:8], expected.label_ids)
    assert data["indices"].tolist() == list(range(20))
    with pytest.raises(ZeroDivisionError):
        fails_later(footplate.EvalPrediction(data["predictions"], data["label_ids"]))


def test_no_predictions_are_kept_where_nobody_wants_it_or_nobody_scheduled_it(tmp_path):
    with pytest.raises(ZeroDivisionError):
        failing_trainer(tmp_path, save_on_error=False).train()
    with pytest.raises(ZeroDivisionError):
        failing_trainer(tmp_path).evaluate()
    assert not (tmp_path / "failed_evaluation").exists()
