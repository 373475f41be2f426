"""Rows of docs/differences.md: what the original does, and what footplate does."""

from __future__ import annotations

import gc
import logging
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers.trainer_utils import rotate_checkpoints as original_rotation

import footplate
import tiny
from footplate.checkpoint.rotation import rotate_checkpoints

BOTH = (transformers, footplate)
DOCUMENT = Path(__file__).parents[1] / "docs" / "differences.md"


@pytest.fixture(scope="module", autouse=True)
def _quick_garbage_collection() -> Iterator[None]:
    """The original collects garbage at every start: 0.2 s each, unless what is imported stands aside."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def rows_of_the_document() -> list[list[str]]:
    """The cells of every row, without headings."""
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "what" and not row[0].startswith("---")]


def test_every_row_of_the_document_names_a_test_file() -> None:
    rows = rows_of_the_document()
    assert len(rows) > 50
    for what, here, there, held_by in rows:
        assert what
        assert here
        assert there, f"{what}: what does the original do?"
        files = re.findall(r"`([^`]+)`", held_by)
        assert files, f"{what}: no test"
        assert all((Path(__file__).parent / file).is_file() for file in files), f"{what}: {files}"


class Stream(torch.utils.data.IterableDataset[Any]):
    """Rows in their order, and no length."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


def trainer_of(library: Any, folder: Path, model: Any = None, **case: Any) -> Any:
    """A regression with either library, one epoch, eight updates."""
    case = {"data": tiny.regression_data(), "num_train_epochs": 1, "learning_rate": 1e-2, **case}
    model = tiny.Regression() if model is None else model
    return tiny.build_trainer(folder / library.__name__, model, library=library, **case)


def losses_of(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


# ---- numbers ----


def pad(samples: list[Any]) -> dict[str, torch.Tensor]:
    width = max(len(sample["input_ids"]) for sample in samples)
    ids = [sample["input_ids"] + [0] * (width - len(sample["input_ids"])) for sample in samples]
    return {"input_ids": torch.tensor(ids), "labels": torch.tensor([sample["labels"] for sample in samples])}


def test_grouping_by_length_leaves_the_order_of_an_evaluation_alone(tmp_path: Path) -> None:
    rows = [{"input_ids": [2] * (1 + 7 * i % 20), "labels": i % 3} for i in range(16)]
    theirs, ours = (
        trainer_of(
            library,
            tmp_path,
            tiny.bert_classifier(),
            options={"data_collator": pad},
            train_sampling_strategy="group_by_length",
        )
        .predict(rows)
        .label_ids.tolist()
        for library in BOTH
    )
    assert ours == [row["labels"] for row in rows]
    assert sorted(theirs) == sorted(ours) != theirs


class SpoiledOnce(tiny.Regression):
    """Its fourth training loss is not a number."""

    num_calls = 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        outputs = super().forward(x, labels)
        self.num_calls += 1
        return {**outputs, "loss": outputs["loss"] * math.nan} if self.num_calls == 4 else outputs


@pytest.mark.parametrize("is_filtered", [True, False])
def test_a_loss_that_is_not_a_number_is_counted_whatever_the_filter_says(
    is_filtered: bool, tmp_path: Path
) -> None:
    case = {"logging_steps": 2, "logging_nan_inf_filter": is_filtered}
    theirs, ours = (trainer_of(library, tmp_path, SpoiledOnce(), **case) for library in BOTH)
    theirs.train()
    ours.train()
    assert np.isnan(losses_of(theirs)[1]) == (not is_filtered)
    assert np.isnan(losses_of(ours)).tolist() == [False, not is_filtered, True, True]  # from then on no other
    assert [entry.get("nonfinite") for entry in ours.state.log_history[:4]] == [None, 2, 4, 4]


def test_the_first_log_after_a_resume_covers_the_updates_before_it(tmp_path: Path) -> None:
    case = {"save_strategy": "steps", "save_steps": 4, "logging_steps": 3}
    whole: dict[str, list[float]] = {}
    resumed: dict[str, list[float]] = {}
    for library in BOTH:
        name = library.__name__
        first = trainer_of(library, tmp_path, **case)
        first.train()
        whole[name] = losses_of(first)
        second = trainer_of(library, tmp_path, **case)
        second.train(resume_from_checkpoint=str(tmp_path / name / "checkpoint-4"))
        resumed[name] = losses_of(second)
    assert whole["footplate"] == whole["transformers"] == resumed["footplate"]
    assert resumed["transformers"][1] != whole["transformers"][1]


class Dropping(nn.Module):
    """Remembers at each call whether its dropout was on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.dropout, self.seen = nn.Parameter(torch.ones(())), nn.Dropout(0.5), []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.append(self.dropout.training)
        return {"loss": ((self.dropout(self.weight * x) - labels) ** 2).mean()}


def test_a_part_that_a_callback_put_to_rest_rests_until_the_next_evaluation(tmp_path: Path) -> None:
    seen = []
    for library in BOTH:

        class Rest(library.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_train_begin(self, args: Any, state: Any, control: Any, model: Any, **kwargs: Any) -> None:
                model.dropout.eval()

        model = Dropping()
        trainer_of(
            library,
            tmp_path,
            model,
            eval_data=tiny.regression_data(8),
            eval_strategy="steps",
            eval_steps=4,
            options={"callbacks": [Rest]},
        ).train()
        seen.append(model.seen)
    after_the_first_evaluation = [False, True, True, True, True, False]
    assert seen[0] == [True] * 4 + after_the_first_evaluation
    assert seen[1] == [False] * 4 + after_the_first_evaluation


def test_the_order_of_samples_does_not_depend_on_who_seeded_torch_last(tmp_path: Path) -> None:
    changed = []
    for library in BOTH:
        runs = []
        for reseeds in (False, True):
            trainer = trainer_of(library, tmp_path, logging_steps=1)
            if reseeds:
                torch.manual_seed(7)
            trainer.train()
            runs.append(losses_of(trainer))
        changed.append(runs[0] != runs[1])
    assert changed == [True, False]


def test_a_loss_of_old_is_a_mean_and_is_divided_by_the_micro_batches(tmp_path: Path) -> None:
    def train(library: Any, **case: Any) -> Any:
        class Old(library.Trainer):  # type: ignore[misc, name-defined]
            def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
                outputs = model(**inputs)
                return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

        args = tiny.arguments(tmp_path, library, max_steps=1, logging_steps=1, **case)
        trainer = Old(model=tiny.Regression(), args=args, train_dataset=tiny.regression_data())
        trainer.train()
        return trainer.state.log_history[0]

    with pytest.raises(TypeError, match="num_items_in_batch"):
        train(transformers)
    whole = train(footplate, per_device_train_batch_size=8)
    split = train(footplate, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    assert split["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert split["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-6)


class NamesNoLabels(nn.Module):
    """A line whose forward takes no labels."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.line = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return {"logits": self.line(x[:, None])[:, 0]}


def squares(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    """Mean square, or the sum over what the update counts."""
    logits = outputs if isinstance(outputs, torch.Tensor) else outputs["logits"]
    total = ((logits - labels) ** 2).sum()
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def mean_squares(outputs: Any, labels: Any) -> torch.Tensor:
    return squares(outputs, labels)


def test_a_loss_function_that_is_not_told_the_items_is_a_mean(tmp_path: Path) -> None:
    class Line(NamesNoLabels):
        def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
            return super().forward(x)

    case = {"max_steps": 1, "logging_steps": 1, "gradient_accumulation_steps": 4}
    with pytest.raises(TypeError, match="num_items_in_batch"):
        trainer_of(
            transformers, tmp_path, Line(), options={"compute_loss_func": mean_squares}, **case
        ).train()
    logs = []
    for function in (squares, mean_squares):
        trainer = trainer_of(footplate, tmp_path, Line(), options={"compute_loss_func": function}, **case)
        trainer.train()
        logs.append(trainer.state.log_history[0])
    for key in ("loss", "grad_norm"):
        assert logs[0][key] == pytest.approx(logs[1][key], rel=1e-6)


def test_max_steps_of_zero_leaves_the_length_to_the_epochs(tmp_path: Path) -> None:
    steps = [trainer_of(library, tmp_path, max_steps=0).train().global_step for library in BOTH]
    assert steps == [1, 8]


def test_no_limit_for_the_norm_measures_without_clipping(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="NoneType"):
        trainer_of(transformers, tmp_path, max_grad_norm=None).train()
    histories = []
    for limit in (None, 0.0):
        trainer = trainer_of(footplate, tmp_path, max_grad_norm=limit, logging_steps=1)
        trainer.train()
        histories.append([entry.get("grad_norm") for entry in trainer.state.log_history])
    assert histories[0] == histories[1]
    assert histories[0][0] > 1


def test_labels_of_a_model_without_a_configuration_are_smoothed(tmp_path: Path) -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 3)

        def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
            return {"logits": self.layer(x[:, None])}

    rows = [{"x": torch.tensor(float(k)), "labels": k % 3} for k in range(16)]
    with pytest.raises(AttributeError, match="config"):
        trainer_of(transformers, tmp_path, Classifier(), data=rows, label_smoothing_factor=0.1)
    assert trainer_of(footplate, tmp_path, Classifier(), data=rows, label_smoothing_factor=0.1).train()


# ---- callbacks, state, evaluation ----


def test_the_state_of_a_callback_comes_back_without_being_asked_for(tmp_path: Path) -> None:
    counts = []
    for library in BOTH:
        state_class = footplate.ExportableState
        if library is transformers:
            state_class = transformers.trainer_callback.ExportableState

        class Counter(library.TrainerCallback, state_class):  # type: ignore[misc, name-defined, valid-type]
            count = 0

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                self.count += 1

            def state(self) -> dict[str, Any]:
                return {"args": {}, "attributes": {"count": self.count}}

        case = {"save_strategy": "steps", "save_steps": 4}
        trainer_of(library, tmp_path, options={"callbacks": [Counter()]}, **case).train()
        counter = Counter()
        resumed = trainer_of(library, tmp_path, options={"callbacks": [counter]}, **case)
        resumed.train(resume_from_checkpoint=str(tmp_path / library.__name__ / "checkpoint-4"))
        counts.append(counter.count)
    assert counts == [4, 8]


def test_a_metric_that_no_evaluation_gives_costs_no_update(tmp_path: Path) -> None:
    steps = []
    for library, error in zip(BOTH, (KeyError, ValueError), strict=True):
        trainer = trainer_of(
            library,
            tmp_path,
            eval_data=tiny.regression_data(8),
            eval_strategy="steps",
            eval_steps=4,
            save_strategy="steps",
            save_steps=4,
            metric_for_best_model="f1",
        )
        with pytest.raises(error, match="f1"):
            trainer.train()
        steps.append(trainer.state.global_step)
    assert steps == [4, 0]


OWN_PARTS: dict[str, Callable[..., Any]] = {
    "data_collator": footplate.default_data_collator,
    "compute_loss_func": lambda outputs, labels: outputs["loss"],
}


@pytest.mark.parametrize("own_part", OWN_PARTS)
def test_a_dropped_column_is_a_warning_where_a_part_of_the_users_own_may_want_it(
    own_part: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    column = f"wanted_by_{own_part}"
    rows = [{**row, column: 1} for row in tiny.regression_data(8)]
    with caplog.at_level(logging.INFO):
        for options in ({}, {own_part: OWN_PARTS[own_part]}):
            next(iter(trainer_of(footplate, tmp_path, data=rows, options=options).get_train_dataloader()))
    levels = [record.levelno for record in caplog.records if column in record.getMessage()]
    assert levels == [logging.INFO, logging.WARNING]


def test_columns_are_dropped_from_what_a_transform_returns(tmp_path: Path) -> None:
    def transform(rows: Any) -> dict[str, Any]:
        raw = torch.tensor(rows["raw"])
        return {"x": raw, "labels": 2 * raw, "comment": ["none"] * len(raw)}

    table = datasets.Dataset.from_dict({"raw": [1.0, 2.0, 3.0]}).with_transform(transform)
    with pytest.raises(ValueError, match="No columns in the dataset match"):
        trainer_of(transformers, tmp_path, data=table).train()
    assert trainer_of(footplate, tmp_path, data=table).train().global_step == 1


class AnswersOneTensor(NamesNoLabels):
    def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
        return self.line(x[:, None])[:, 0]


class AnswersLogitsTwice(NamesNoLabels):
    def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
        logits = self.line(x[:, None])[:, 0]
        return logits, 2 * logits


def loss_of_first(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return squares(outputs[0] if isinstance(outputs, tuple) else outputs, labels, num_items_in_batch)


@pytest.mark.parametrize(
    ("model_class", "cut", "whole"), [(AnswersOneTensor, (5,), (6,)), (AnswersLogitsTwice, (6,), (2, 6))]
)
def test_answers_without_a_loss_are_not_cut(model_class: Any, cut: Any, whole: Any, tmp_path: Path) -> None:
    shapes = []
    for library in BOTH:
        trainer = trainer_of(library, tmp_path, model_class(), options={"compute_loss_func": loss_of_first})
        shapes.append(np.array(trainer.predict(tiny.regression_data(6)).predictions).shape)
    assert shapes == [cut, whole]


class TakesPairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return ((self.slope * x - y) ** 2).mean(), self.slope * x


def test_batches_that_are_tuples_train_and_evaluate(tmp_path: Path) -> None:
    pairs = [(row["x"], row["labels"]) for row in tiny.regression_data(16)]
    case = {"data": pairs, "eval_data": pairs, "remove_unused_columns": False}
    collate = {"data_collator": torch.utils.data.default_collate}
    with pytest.raises(TypeError, match="must be a mapping"):
        trainer_of(transformers, tmp_path, TakesPairs(), options=collate, **case).train()
    trainer = trainer_of(footplate, tmp_path, TakesPairs(), options=collate, **case)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] > 0


def test_labels_are_kept_for_a_loss_function_where_forward_does_not_name_them(tmp_path: Path) -> None:
    options = {"compute_loss_func": squares}
    with pytest.raises(TypeError, match="NoneType"):
        trainer_of(transformers, tmp_path, NamesNoLabels(), options=options).train()
    assert trainer_of(footplate, tmp_path, NamesNoLabels(), options=options).train().training_loss > 0


# ---- checkpoints ----


def test_a_limit_of_one_keeps_the_best_and_the_latest(tmp_path: Path) -> None:
    remaining = []
    for library in BOTH:
        trainer_of(
            library,
            tmp_path,
            eval_data=tiny.regression_data(8),
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="steps",
            save_steps=2,
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="loss",
            greater_is_better=True,  # so that the first one is the best
        ).train()
        remaining.append(sorted(path.name for path in (tmp_path / library.__name__).glob("checkpoint-*")))
    assert remaining == [["checkpoint-2"], ["checkpoint-2", "checkpoint-8"]]


def test_checkpoints_leave_in_the_order_of_their_steps_whatever_their_times(tmp_path: Path) -> None:
    for library in BOTH:
        trainer_of(library, tmp_path, save_strategy="steps", save_steps=2).train()
        for step in (2, 4, 6, 8):  # copied the wrong way round: the last step is the oldest
            os.utime(tmp_path / library.__name__ / f"checkpoint-{step}", (1000 - step, 1000 - step))
    rotate_checkpoints(str(tmp_path / "footplate"), 1)
    original_rotation(str(tmp_path / "transformers"), 1, use_mtime=True)  # as its Trainer calls it
    remaining = [[path.name for path in tmp_path.glob(f"{library.__name__}/check*")] for library in BOTH]
    assert remaining == [["checkpoint-2"], ["checkpoint-8"]]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight


def test_a_plain_module_with_shared_tensors_is_saved(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="share memory"):
        trainer_of(transformers, tmp_path, Tied(), data=None).save_model()
    trainer = trainer_of(footplate, tmp_path, Tied(), data=None)
    trainer.save_model()
    weight = trainer.model.first.weight.detach().clone()
    nn.init.zeros_(trainer.model.first.weight)
    trainer._load_from_checkpoint(str(tmp_path / "footplate"))
    assert torch.equal(trainer.model.second.weight, weight)


# ---- arguments ----


@pytest.mark.parametrize(
    "old",
    [{"evaluation_strategy": "no"}, {"no_cuda": True}, {"warmup_ratio": 0.1}, {"group_by_length": True}],
)
def test_names_of_4x_are_accepted(old: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        transformers.TrainingArguments(str(tmp_path), **old)
    assert footplate.TrainingArguments(str(tmp_path), **old)


def test_reporting_to_nobody_may_be_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="None is not supported"):
        trainer_of(transformers, tmp_path, report_to=None)
    assert trainer_of(footplate, tmp_path, report_to=None).args.report_to == []


def test_saving_the_best_goes_by_the_loss(tmp_path: Path) -> None:
    case = {"eval_data": tiny.regression_data(8), "eval_strategy": "epoch", "save_strategy": "best"}
    with pytest.raises(ValueError, match="metric_for_best_model"):
        trainer_of(transformers, tmp_path, **case)
    trainer = trainer_of(footplate, tmp_path, **case)
    trainer.train()
    assert Path(trainer.state.best_model_checkpoint).name == "checkpoint-8"


def test_the_best_model_without_evaluations_is_refused(tmp_path: Path) -> None:
    case = {"load_best_model_at_end": True, "eval_strategy": "no", "save_strategy": "no"}
    original = trainer_of(transformers, tmp_path, **case)
    original.train()
    assert original.state.best_model_checkpoint is None
    with pytest.raises(ValueError, match="needs evaluations"):
        trainer_of(footplate, tmp_path, **case)


def test_bf16_needs_no_use_cpu(tmp_path: Path) -> None:
    if not torch.accelerator.is_available():  # what the original asks for then
        with pytest.raises(ValueError, match="use_cpu"):
            transformers.TrainingArguments(str(tmp_path), bf16=True)
    assert trainer_of(footplate, tmp_path, bf16=True, use_cpu=False).train().global_step == 8


@pytest.mark.parametrize(
    "settings", [{"learning_rate": -1.0}, {"per_device_train_batch_size": 0}, {"seed": -1}], ids=str
)
def test_values_that_cannot_work_are_refused_with_the_arguments(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    assert tiny.arguments(tmp_path, transformers, **settings)
    with pytest.raises(ValueError, match=f"{next(iter(settings))}=.* is not possible"):
        tiny.arguments(tmp_path, **settings)


def test_settings_of_workers_without_workers_are_refused_with_the_arguments(tmp_path: Path) -> None:
    case = {"dataloader_persistent_workers": True}
    original = trainer_of(transformers, tmp_path, **case)
    with pytest.raises(ValueError, match="persistent_workers option needs"):
        original.get_train_dataloader()
    with pytest.raises(ValueError, match="dataloader_num_workers"):
        tiny.arguments(tmp_path, **case)


def test_a_short_last_batch_of_a_stream_is_dropped_where_asked(tmp_path: Path) -> None:
    stream = Stream(tiny.regression_data(21))
    case = {"data": stream, "max_steps": 3, "dataloader_drop_last": True}
    assert [len(list(trainer_of(library, tmp_path, **case).get_train_dataloader())) for library in BOTH] == [
        3,
        2,
    ]
