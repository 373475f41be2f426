"""What footplate does beyond the original API, and the switches of a run that are easy to get wrong."""

from __future__ import annotations

import logging
import math
import os
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import footplate
import tiny
from footplate import EvalPrediction, Trainer, TrainerCallback


def learning(tmp_path: Path, **settings: Any) -> Any:
    chosen = {"learning_rate": 0.1, "max_steps": 6, "logging_steps": 1, **settings}
    return tiny.arguments(tmp_path, **chosen)


def logged(trainer: Trainer, key: str) -> list[Any]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def same_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# ---- record ----


class TwoParts(Trainer):
    """A loss of two parts, each of them recorded."""

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(**inputs)
        penalty = 0.5 * model.slope**2 * inputs["x"].abs().mean()
        self.record("fit", outputs["loss"])
        self.record("penalty", penalty)
        loss = outputs["loss"] + penalty
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("weighting", ["batches", "items"])
@pytest.mark.parametrize("logging_steps", [1, 3])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_recorded_parts_add_up_to_the_loss_at_every_log(tmp_path, accumulation, logging_steps, weighting):
    arguments = learning(
        tmp_path,
        max_steps=9,
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=3,
        logging_steps=logging_steps,
        loss_weighting=weighting,
    )
    trainer = TwoParts(
        tiny.Regression(), arguments, train_dataset=tiny.regression_data(32)
    )  # a ragged last window
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(entries) == 9 // logging_steps
    for entry in entries:
        assert entry["fit"] + entry["penalty"] == pytest.approx(entry["loss"], rel=1e-6)
        assert entry["penalty"] > 0


def test_recorded_parts_add_up_where_the_model_divides_by_the_items_of_the_update(tmp_path):
    class Halves(Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            loss = super().compute_loss(model, inputs, False, num_items_in_batch)
            self.record("half", loss / 2)
            return loss

    arguments = learning(tmp_path, learning_rate=1e-3, gradient_accumulation_steps=4, logging_steps=2)
    trainer = Halves(tiny.gpt(), arguments, train_dataset=tiny.causal_data(53))
    trainer.train()
    assert logged(trainer, "half") == pytest.approx([loss / 2 for loss in logged(trainer, "loss")], rel=1e-6)


def test_a_record_of_some_updates_is_their_mean_and_then_gone(tmp_path):
    class Sometimes(Trainer):
        def training_step(
            self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
        ) -> torch.Tensor:
            if self.state.global_step in (0, 2):
                self.record("seen", float(self.state.global_step))
            return super().training_step(model, inputs, num_items_in_batch)

    trainer = Sometimes(
        tiny.Regression(), learning(tmp_path, logging_steps=3), train_dataset=tiny.regression_data()
    )
    trainer.train()
    assert logged(trainer, "seen") == [1.0]
    assert len(logged(trainer, "loss")) == 2


def test_records_of_an_evaluation_stand_among_its_metrics_and_add_up_to_its_loss(tmp_path):
    arguments = learning(tmp_path, per_device_eval_batch_size=8)
    trainer = TwoParts(
        tiny.Regression(), arguments, eval_dataset=tiny.regression_data(19)
    )  # a ragged last batch
    metrics = trainer.evaluate()
    assert metrics["eval_fit"] + metrics["eval_penalty"] == pytest.approx(metrics["eval_loss"], rel=1e-6)
    test = trainer.predict(tiny.regression_data(19)).metrics
    assert test["test_fit"] == pytest.approx(metrics["eval_fit"])
    assert "fit" not in metrics


def test_records_of_an_evaluation_do_not_enter_the_log_of_training(tmp_path):
    data = tiny.regression_data(32)
    settings = {"logging_steps": 3}
    plain = TwoParts(tiny.Regression(), learning(tmp_path, **settings), train_dataset=data)
    evaluated = TwoParts(
        tiny.Regression(),
        learning(tmp_path, eval_strategy="steps", eval_steps=2, **settings),
        train_dataset=data,
        eval_dataset=data[:5],
    )
    plain.train()
    evaluated.train()
    assert logged(plain, "fit") == logged(evaluated, "fit")
    assert len(logged(evaluated, "eval_fit")) == 3


# ---- what callbacks see ----


class Watcher(TrainerCallback):
    """Keeps what it is handed, event by event."""

    wants_step_data = True

    def __init__(self) -> None:
        self.seen: dict[str, list[dict[str, Any]]] = {}

    def note(self, event: str, kwargs: dict[str, Any]) -> None:
        names = ("trainer", "inputs", "outputs", "loss", "metrics", "logs")
        self.seen.setdefault(event, []).append({name: kwargs.get(name) for name in names})

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_step_begin", kwargs)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_substep_end", kwargs)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_pre_optimizer_step", kwargs)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_optimizer_step", kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_step_end", kwargs)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_log", kwargs)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_evaluate", kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("on_train_end", kwargs)


def test_callbacks_receive_trainer_inputs_outputs_and_loss_of_the_step(tmp_path):
    watcher = Watcher()
    data = tiny.regression_data()
    arguments = learning(
        tmp_path, max_steps=2, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=2
    )
    trainer = Trainer(
        tiny.Regression(), arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[watcher]
    )
    trainer.train()
    for event in ("on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"):
        assert len(watcher.seen[event]) == 2
        for seen in watcher.seen[event]:
            assert seen["trainer"] is trainer
            assert set(seen["inputs"]) == {"x", "labels"}
            expected = ((seen["outputs"]["logits"] - seen["inputs"]["labels"]) ** 2).mean()
            torch.testing.assert_close(seen["loss"], expected.detach())
            assert not seen["loss"].requires_grad
    for event in ("on_step_begin", "on_log", "on_evaluate", "on_train_end"):
        assert all(seen["outputs"] is None and seen["inputs"] is None for seen in watcher.seen[event])
    assert watcher.seen["on_evaluate"][0]["metrics"]["eval_loss"] > 0
    assert watcher.seen["on_log"][0]["logs"]["loss"] > 0


def test_the_inputs_of_a_callback_still_have_the_labels_that_the_loss_took(tmp_path):
    class Popping(Trainer):
        def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False) -> Any:
            labels = inputs.pop("labels")
            outputs = model(**inputs)
            loss = ((outputs["logits"] - labels) ** 2).mean()
            return (loss, outputs) if return_outputs else loss

    watcher = Watcher()
    Popping(
        tiny.Regression(),
        learning(tmp_path, max_steps=1),
        train_dataset=tiny.regression_data(),
        callbacks=[watcher],
    ).train()
    assert set(watcher.seen["on_step_end"][0]["inputs"]) == {"x", "labels"}


class Remembering(tiny.Regression):
    """Knows its last logits, as long as somebody else keeps them."""

    last: Any = None

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        outputs = super().forward(x, labels)
        self.last = weakref.ref(outputs["logits"])
        return outputs


class Alive(TrainerCallback):
    """Notes at each event whether the logits of the last forward are still in memory."""

    def __init__(self, wants: bool) -> None:
        self.wants_step_data = wants
        self.at: dict[str, set[bool]] = {}

    def note(self, event: str, model: Any) -> None:
        self.at.setdefault(event, set()).add(model.last is not None and model.last() is not None)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.note("begin", model)

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        self.note("step", model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.note("end", model)

    def on_log(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.note("log", model)


@pytest.mark.parametrize("wants", [True, False])
def test_outputs_live_until_the_step_is_over_and_only_if_a_callback_wants_them(tmp_path, wants):
    alive = Alive(wants)
    Trainer(
        Remembering(),
        learning(tmp_path, max_steps=3),
        train_dataset=tiny.regression_data(),
        callbacks=[alive],
    ).train()
    assert alive.at == {"begin": {False}, "step": {wants}, "end": {wants}, "log": {False}}


def test_outputs_are_not_asked_of_the_loss_where_nobody_wants_them(tmp_path):
    asked: list[bool] = []

    class Spying(Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any
        ) -> Any:
            asked.append(return_outputs)
            return super().compute_loss(model, inputs, return_outputs, **kwargs)

    data = tiny.regression_data()
    Spying(
        Remembering(), learning(tmp_path, max_steps=2), train_dataset=data, callbacks=[Alive(False)]
    ).train()
    assert asked == [False, False]


def test_outputs_are_not_asked_of_the_loss_because_a_callback_hears_steps(tmp_path):
    """Trainers of libraries raise when outputs are asked for."""

    class WithoutOutputs(Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any
        ) -> Any:
            if return_outputs:
                raise NotImplementedError("there are no outputs")
            return super().compute_loss(model, inputs, **kwargs)

    class Hears(TrainerCallback):
        heard = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.heard += 1

    hears = Hears()
    args = learning(tmp_path, max_steps=2)
    WithoutOutputs(tiny.Regression(), args, train_dataset=tiny.regression_data(), callbacks=[hears]).train()
    assert hears.heard == 2


def test_a_callback_added_later_sees_the_steps_from_then_on(tmp_path):
    late = Watcher()

    class AddsAnother(TrainerCallback):
        wants_step_data = False

        def on_step_end(
            self, args: Any, state: Any, control: Any, trainer: Any = None, **kwargs: Any
        ) -> None:
            if state.global_step == 2:
                trainer.add_callback(late)

    data = tiny.regression_data()
    Trainer(
        tiny.Regression(), learning(tmp_path, max_steps=4), train_dataset=data, callbacks=[AddsAnother()]
    ).train()
    assert len(late.seen["on_step_end"]) == 2
    assert all(seen["outputs"] is not None for seen in late.seen["on_step_end"])


# ---- train_metrics_batches ----


class Counting(tiny.Regression):
    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[np.ndarray, np.ndarray]] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        outputs = super().forward(x, labels)
        self.batches.append((outputs["logits"].detach().numpy().copy(), labels.numpy().copy()))
        return outputs


def error(prediction: EvalPrediction) -> dict[str, float]:
    difference = np.abs(prediction.predictions - prediction.label_ids)
    return {"error": float(difference.mean()), "rows": len(difference)}


@pytest.mark.parametrize(("accumulation", "logging_steps"), [(1, 1), (1, 3), (2, 2)])
def test_train_metrics_are_those_of_the_last_batches_without_another_forward(
    tmp_path, accumulation, logging_steps
):
    arguments = learning(
        tmp_path,
        max_steps=6,
        train_metrics_batches=3,
        gradient_accumulation_steps=accumulation,
        logging_steps=logging_steps,
        per_device_train_batch_size=5,
    )
    model = Counting()
    trainer = Trainer(model, arguments, train_dataset=tiny.regression_data(64), compute_metrics=error)
    trainer.train()
    assert len(model.batches) == 6 * accumulation
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(entries) == 6 // logging_steps
    for entry in entries:
        window = model.batches[: entry["step"] * accumulation][-3:]
        logits, labels = (np.concatenate(parts) for parts in zip(*window, strict=True))
        assert entry["train_error"] == error(EvalPrediction(logits, labels))["error"]
        assert entry["train_rows"] == len(labels)


def test_train_metrics_leave_the_run_as_it_was(tmp_path):
    runs = []
    for num_batches in (0, 2):
        trainer = Trainer(
            tiny.bert_classifier(),
            learning(tmp_path, learning_rate=1e-3, train_metrics_batches=num_batches),
            train_dataset=tiny.classification_data(),
            compute_metrics=lambda p: {"accuracy": (p.predictions.argmax(-1) == p.label_ids).mean()},
        )
        trainer.train()
        runs.append(trainer)
    plain, measured = runs
    assert logged(plain, "loss") == logged(measured, "loss")
    assert same_weights(weights_of(plain), weights_of(measured))
    assert all(type(value) is float for value in logged(measured, "train_accuracy"))
    assert len(logged(measured, "train_accuracy")) == 6
    assert not logged(plain, "train_accuracy")


def test_train_metrics_see_preprocessed_logits_and_ragged_batches(tmp_path):
    def pad(rows: list[Any]) -> dict[str, torch.Tensor]:
        longest = max(len(row["input_ids"]) for row in rows)
        return {
            name: torch.tensor([row[name] + [fill] * (longest - len(row[name])) for row in rows])
            for name, fill in (("input_ids", 0), ("labels", -100))
        }

    rows = [
        {"input_ids": row[: 4 + i % 9], "labels": row[: 4 + i % 9]}
        for i, row in enumerate(tiny.token_rows(30))
    ]
    trainer = Trainer(
        tiny.gpt(),
        learning(tmp_path, learning_rate=1e-3, train_metrics_batches=4, per_device_train_batch_size=2),
        data_collator=pad,
        train_dataset=rows,
        compute_metrics=lambda p: {"width": p.predictions.shape[1], "ndim": p.predictions.ndim},
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
    )
    trainer.train()
    assert set(logged(trainer, "train_ndim")) == {2}
    assert max(logged(trainer, "train_width")) <= 12


# ---- on_nonfinite ----


def spoiled(num_samples: int, *bad: int) -> list[dict[str, torch.Tensor]]:
    """Regression data in which some rows are not a number."""
    rows = tiny.regression_data(num_samples)
    for index in bad:
        rows[index] = {**rows[index], "x": torch.tensor(math.nan)}
    return rows


class Snapshots(TrainerCallback):
    """The weights after each update."""

    def __init__(self) -> None:
        self.weights: list[list[float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights.append([parameter.item() for parameter in model.parameters()])


def in_order(tmp_path: Path, **settings: Any) -> Any:
    return learning(tmp_path, train_sampling_strategy="sequential", per_device_train_batch_size=2, **settings)


def test_warn_shows_the_nan_counts_it_and_says_it_once(tmp_path, caplog):
    trainer = Trainer(tiny.Regression(), in_order(tmp_path, max_steps=3), train_dataset=spoiled(12, 2))
    with caplog.at_level(logging.WARNING, "footplate"):
        trainer.train()
    losses = logged(trainer, "loss")
    assert math.isfinite(losses[0])
    assert math.isnan(losses[1])
    assert "nonfinite" not in trainer.state.log_history[0]
    assert all(entry["nonfinite"] >= 2 for entry in trainer.state.log_history[1:3])  # the loss and the norm
    said = [record for record in caplog.records if "not finite" in record.getMessage()]
    assert len(said) == 1
    assert "on_nonfinite" in said[0].getMessage()


@pytest.mark.parametrize("accumulation", [1, 3])
def test_skip_leaves_the_weights_as_they_were_and_goes_on(tmp_path, accumulation):
    snapshots = Snapshots()
    arguments = in_order(tmp_path, max_steps=4, on_nonfinite="skip", gradient_accumulation_steps=accumulation)
    bad_row = 2 * accumulation  # the first of the second update
    trainer = Trainer(
        tiny.Regression(), arguments, train_dataset=spoiled(8 * accumulation, bad_row), callbacks=[snapshots]
    )
    result = trainer.train()
    assert result.global_step == 4
    first, second, third, fourth = snapshots.weights
    assert first == second
    assert second != third != fourth
    assert all(map(math.isfinite, fourth))
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert "nonfinite" not in entries[0]
    assert entries[1]["nonfinite"] >= 2
    assert "nonfinite" not in entries[2]
    assert math.isfinite(result.training_loss)


def test_a_skipped_update_is_as_if_its_samples_had_not_been_there(tmp_path):
    """Optimizer state and schedule do not see a refused update; the run is one update shorter."""
    rows = tiny.regression_data(8)
    clean = Trainer(
        tiny.Regression(),
        in_order(tmp_path, max_steps=3, lr_scheduler_type="constant"),
        train_dataset=rows[:2] + rows[4:],
    )
    skipping = Trainer(
        tiny.Regression(),
        in_order(tmp_path, max_steps=4, lr_scheduler_type="constant", on_nonfinite="skip"),
        train_dataset=spoiled(8, 3),
    )
    clean_loss, loss = clean.train().training_loss, skipping.train().training_loss
    assert same_weights(weights_of(clean), weights_of(skipping))
    assert loss == pytest.approx(clean_loss, rel=1e-6)


def test_a_skipped_update_does_not_enter_the_mean_of_the_log_nor_the_records(tmp_path):
    clean = TwoParts(
        tiny.Regression(),
        in_order(tmp_path, max_steps=3, lr_scheduler_type="constant", logging_steps=3),
        train_dataset=spoiled(8)[:2] + spoiled(8)[4:],
    )
    skipping = TwoParts(
        tiny.Regression(),
        in_order(tmp_path, max_steps=4, lr_scheduler_type="constant", logging_steps=4, on_nonfinite="skip"),
        train_dataset=spoiled(8, 3),
    )
    clean.train()
    skipping.train()
    for key in ("loss", "fit", "penalty"):
        assert logged(skipping, key) == pytest.approx(logged(clean, key), rel=1e-6)


def test_raise_stops_at_the_update_and_leaves_the_weights_as_they_were(tmp_path):
    snapshots = Snapshots()
    trainer = Trainer(
        tiny.Regression(),
        in_order(tmp_path, max_steps=4, on_nonfinite="raise"),
        train_dataset=spoiled(8, 3),
        callbacks=[snapshots],
    )
    with pytest.raises(FloatingPointError, match=r"Update 2 has loss nan.*on_nonfinite='skip'"):
        trainer.train()
    assert [parameter.item() for parameter in trainer.model.parameters()] == snapshots.weights[-1]
    assert len(snapshots.weights) == 1


class BadGradient(tiny.Regression):
    """A finite loss whose gradient is none."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        outputs = super().forward(x, labels)
        return {**outputs, "loss": outputs["loss"] + torch.sqrt(self.slope * 0.0)}


def test_a_gradient_that_is_not_finite_is_refused_too(tmp_path):
    trainer = Trainer(
        BadGradient(),
        in_order(tmp_path, max_steps=2, on_nonfinite="skip"),
        train_dataset=tiny.regression_data(8),
    )
    before = weights_of(trainer)
    trainer.train()
    assert same_weights(before, weights_of(trainer))
    assert logged(trainer, "nonfinite") == [1, 1]


# ---- keep_columns ----


class Tagging(Trainer):
    """Has seen the tags of every batch its loss was asked for."""

    tags: list[str]

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        self.tags += inputs["tag"]
        return super().compute_loss(model, inputs, return_outputs, **kwargs)


def tag_collator(rows: list[dict[str, Any]]) -> dict[str, Any]:
    batch: dict[str, Any] = {
        name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in ("x", "labels")
    }
    return {**batch, "tag": [row["tag"] for row in rows]}


def tagged(kind: str) -> Any:
    rows = [{**row, "tag": f"row-{i}", "other": i} for i, row in enumerate(tiny.regression_data(12))]
    if kind == "list":
        return rows
    from datasets import Dataset as Table

    return Table.from_list([{**row, "x": float(row["x"]), "labels": float(row["labels"])} for row in rows])


@pytest.mark.parametrize("kind", ["list", "table"])
def test_kept_columns_reach_collator_loss_and_callbacks_but_not_forward(tmp_path, kind):
    watcher = Watcher()
    collated: list[set[str]] = []

    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        collated.extend(set(row) for row in rows)
        return tag_collator(rows)

    arguments = learning(tmp_path, max_steps=3, per_device_train_batch_size=4, keep_columns=["tag"])
    trainer = Tagging(
        tiny.Regression(),
        arguments,
        data_collator=collate,
        train_dataset=tagged(kind),
        eval_dataset=tagged(kind),
        callbacks=[watcher],
    )
    trainer.tags = []
    trainer.train()
    expected = {f"row-{i}" for i in range(12)}
    assert set(trainer.tags) == expected
    assert {tag for seen in watcher.seen["on_step_end"] for tag in seen["inputs"]["tag"]} == expected
    assert all(keys == {"x", "labels", "tag"} for keys in collated)  # "other" was not asked for
    trainer.tags = []
    trainer.evaluate()
    assert trainer.tags == [f"row-{i}" for i in range(12)]


def test_kept_columns_reach_metrics_among_the_inputs(tmp_path):
    seen: list[Any] = []

    def look(prediction: EvalPrediction) -> dict[str, float]:
        seen.append(prediction.inputs)
        return {}

    rows = [{**row, "row_id": i} for i, row in enumerate(tiny.regression_data(11))]
    arguments = learning(
        tmp_path, keep_columns=["row_id"], include_for_metrics=["inputs"], per_device_eval_batch_size=4
    )
    Trainer(tiny.Regression(), arguments, eval_dataset=rows, compute_metrics=look).evaluate()
    np.testing.assert_array_equal(seen[0]["row_id"], np.arange(11))


def test_kept_columns_do_not_change_the_numbers(tmp_path):
    rows = [{**row, "row_id": i} for i, row in enumerate(tiny.regression_data(32))]
    plain = Trainer(tiny.Regression(), learning(tmp_path), train_dataset=rows)
    keeping = Trainer(tiny.Regression(), learning(tmp_path, keep_columns=["row_id"]), train_dataset=rows)
    plain.train()
    keeping.train()
    assert logged(plain, "loss") == logged(keeping, "loss")
    np.testing.assert_array_equal(plain.predict(rows).predictions, keeping.predict(rows).predictions)


def test_a_kept_column_that_forward_names_is_passed_to_it(tmp_path):
    class Weighted(tiny.Regression):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None, weight: Any = None) -> Any:
            assert weight is not None
            return super().forward(x, labels)

    rows = [{**row, "weight": 1.0} for row in tiny.regression_data(16)]
    Trainer(Weighted(), learning(tmp_path, max_steps=1, keep_columns=["weight"]), train_dataset=rows).train()


# ---- parameter groups ----


def test_every_parameter_group_logs_its_rate(tmp_path):
    groups = [
        {"match": r"^classifier", "lr": 0.5, "name": "head"},
        {"match": "embeddings", "lr": 0.25, "weight_decay": 0.1},
    ]
    arguments = learning(
        tmp_path, max_steps=4, learning_rate=0.125, param_groups=groups, lr_scheduler_type="linear"
    )
    trainer = Trainer(tiny.bert_classifier(), arguments, train_dataset=tiny.classification_data(40))
    trainer.train()
    assert logged(trainer, "learning_rate") == logged(trainer, "learning_rate/rest")
    assert logged(trainer, "learning_rate/head")[0] == 0.5
    assert logged(trainer, "learning_rate/embeddings")[0] == 0.25
    names = {group["name"] for group in trainer.optimizer.param_groups}
    entry = trainer.state.log_history[-2]
    assert {f"learning_rate/{name}" for name in names} <= entry.keys()
    for name in names:  # all at the same point of the schedule: the rate an update used
        rates = logged(trainer, f"learning_rate/{name}")
        assert [rate / rates[0] for rate in rates] == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert logged(trainer, "learning_rate") == pytest.approx(
        [0.125 * share for share in (1.0, 0.75, 0.5, 0.25)]
    )


def test_layer_decay_gives_deeper_layers_a_smaller_rate(tmp_path):
    arguments = learning(tmp_path, max_steps=1, learning_rate=0.1, param_groups=[{"layer_decay": 0.5}])
    trainer = Trainer(tiny.bert_classifier(), arguments, train_dataset=tiny.classification_data(8))
    trainer.train()
    model = trainer.model
    top, bottom, words = (
        trainer.get_optimizer_group(parameter)["initial_lr"]
        for parameter in (
            model.bert.encoder.layer[1].output.dense.weight,
            model.bert.encoder.layer[0].output.dense.weight,
            model.bert.embeddings.word_embeddings.weight,
        )
    )
    assert bottom == pytest.approx(top / 2)
    assert words == pytest.approx(bottom / 2)


def test_a_pattern_that_matches_nothing_is_refused_before_the_first_step(tmp_path):
    arguments = learning(tmp_path, param_groups=[{"match": "clasifier", "lr": 0.1}])
    trainer = Trainer(tiny.bert_classifier(), arguments, train_dataset=tiny.classification_data(8))
    with pytest.raises(ValueError, match=r"'clasifier' matches no trainable parameter.*bert"):
        trainer.train()


# ---- orders ----


def seen_rows(tmp_path: Path, rows: Any, **settings: Any) -> list[list[int]]:
    """The row ids of each batch of a run."""
    watcher = Watcher()
    arguments = learning(tmp_path, keep_columns=["row_id"], per_device_train_batch_size=4, **settings)
    Trainer(tiny.Regression(), arguments, train_dataset=rows, callbacks=[watcher]).train()
    return [seen["inputs"]["row_id"].tolist() for seen in watcher.seen["on_step_end"]]


@pytest.mark.parametrize("source", ["list", "column"])
def test_weighted_sampling_draws_by_the_weights(tmp_path, source):
    weights = [0.0] * 10 + [1.0] * 9 + [9.0]
    rows = [{**row, "row_id": i, "weight": weights[i]} for i, row in enumerate(tiny.regression_data(20))]
    batches = seen_rows(
        tmp_path,
        rows,
        max_steps=100,
        train_sampling_strategy="weighted",
        sample_weights=weights if source == "list" else "weight",
    )
    drawn = Counter(row for batch in batches for row in batch)
    assert min(drawn) >= 10  # no weight, never drawn
    assert sum(drawn.values()) == 400
    assert 0.4 < drawn[19] / 400 < 0.6
    expected = torch.multinomial(
        torch.tensor(weights, dtype=torch.float64), 20, True, generator=torch.Generator().manual_seed(42)
    )
    assert [
        row for batch in batches[:5] for row in batch
    ] == expected.tolist()  # epoch 0 draws from the seed alone


def test_weights_that_do_not_fit_the_dataset_are_refused(tmp_path):
    rows = tiny.regression_data(20)
    arguments = learning(tmp_path, train_sampling_strategy="weighted", sample_weights=[1.0] * 19)
    with pytest.raises(ValueError, match="sample_weights") as caught:
        Trainer(tiny.Regression(), arguments, train_dataset=rows).train()
    assert "20" in str(caught.value)
    assert "19" in str(caught.value)


def test_length_grouping_sees_every_sample_once_and_pads_less(tmp_path):
    lengths = [1 + (7 * i) % 40 for i in range(48)]
    rows = [{"input_ids": [2] * length, "labels": i % 3, "row_id": i} for i, length in enumerate(lengths)]

    def run(strategy: str) -> list[dict[str, Any]]:
        watcher = Watcher()

        def pad(batch: list[Any]) -> dict[str, torch.Tensor]:
            width = max(len(row["input_ids"]) for row in batch)
            ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in batch])
            return {
                "input_ids": ids,
                "labels": torch.tensor([row["labels"] for row in batch]),
                "row_id": torch.tensor([row["row_id"] for row in batch]),
            }

        arguments = tiny.arguments(
            tmp_path,
            num_train_epochs=1,
            per_device_train_batch_size=4,
            train_sampling_strategy=strategy,
            keep_columns=["row_id"],
        )
        model = tiny.bert_classifier()
        model.bert.embeddings.position_embeddings = nn.Embedding(64, 16)
        model.bert.embeddings.register_buffer("position_ids", torch.arange(64)[None])
        model.bert.embeddings.register_buffer("token_type_ids", torch.zeros(1, 64, dtype=torch.long))
        Trainer(model, arguments, data_collator=pad, train_dataset=rows, callbacks=[watcher]).train()
        return [seen["inputs"] for seen in watcher.seen["on_step_end"]]

    def padding(batches: list[dict[str, Any]]) -> int:
        return sum(int((batch["input_ids"] == 0).sum()) for batch in batches)

    grouped, random = run("group_by_length"), run("random")
    assert sorted(row for batch in grouped for row in batch["row_id"].tolist()) == list(range(48))
    assert padding(grouped) < 0.3 * padding(random)


# ---- auto_find_batch_size ----


class OutOfMemoryInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


class Hungry(nn.Module):
    """Has dropout, and runs out of memory above some number of rows."""

    main_input_name = "x"

    def __init__(self, limit: int = 1000, place: str = "forward", tolerated: int = 0) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 1))
        self.limit, self.place, self.tolerated = limit, place, tolerated
        self.sizes: list[int] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.body(x).squeeze(-1)
        loss = ((logits - labels) ** 2).mean()
        if len(x) > self.limit and self.training:
            if self.tolerated == 0:
                if self.place == "forward":
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
                if self.place == "runtime":
                    raise RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)")
                return {"loss": OutOfMemoryInBackward.apply(loss), "logits": logits}
            self.tolerated -= 1
        self.sizes.append(len(x))
        return {"loss": loss, "logits": logits}


def points(num_samples: int) -> list[dict[str, torch.Tensor]]:
    x = torch.randn(num_samples, 3, generator=torch.Generator().manual_seed(0))
    return [{"x": row, "labels": row.sum()} for row in x]


def hungry_run(
    tmp_path: Path, model: nn.Module, rows: int, kind: type[Trainer] = Trainer, **settings: Any
) -> Trainer:
    arguments = tiny.arguments(tmp_path, learning_rate=0.01, logging_steps=1, num_train_epochs=2, **settings)
    trainer = kind(model, arguments, train_dataset=points(rows))
    trainer.train()
    return trainer


def assert_same_run(found: Trainer, configured: Trainer) -> None:
    for key in ("loss", "grad_norm", "learning_rate"):
        assert logged(found, key) == logged(configured, key), key
    assert same_weights(weights_of(found), weights_of(configured))
    assert found.state.global_step == configured.state.global_step


@pytest.mark.parametrize("rows", [48, 53], ids=["even", "ragged"])
@pytest.mark.parametrize("tolerated", [0, 1])
@pytest.mark.parametrize("place", ["forward", "runtime", "backward"])
def test_a_smaller_micro_batch_is_found_and_the_run_is_as_if_configured(tmp_path, place, tolerated, rows):
    found = hungry_run(
        tmp_path,
        Hungry(limit=2, place=place, tolerated=tolerated),
        rows,
        auto_find_batch_size=True,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
    )
    configured = hungry_run(
        tmp_path, Hungry(), rows, per_device_train_batch_size=2, gradient_accumulation_steps=8
    )
    assert_same_run(found, configured)
    assert max(found.model.sizes[-10:]) == 2
    assert found.state.log_history[-1]["train_loss"] == pytest.approx(
        configured.state.log_history[-1]["train_loss"]
    )


def test_with_items_that_weigh_the_same_the_smaller_micro_batch_does_not_show_in_the_numbers(tmp_path):
    def run(limit: int) -> Trainer:
        model = Hungry(limit)
        model.body[2] = nn.Identity()  # dropout draws by the batch
        settings = {"per_device_train_batch_size": 8, "loss_weighting": "items", "on_nonfinite": "skip"}
        return hungry_run(tmp_path, model, 53, auto_find_batch_size=True, **settings)

    whole, cut = run(1000), run(3)
    assert max(cut.model.sizes) <= 3
    assert logged(cut, "loss") == pytest.approx(logged(whole, "loss"), rel=1e-4)
    for name, value in weights_of(cut).items():
        torch.testing.assert_close(value, weights_of(whole)[name], rtol=1e-3, atol=1e-5)


def test_memory_may_run_out_late_in_a_run(tmp_path):
    """Updates before it are those of the whole batch, updates after it those of the smaller one."""

    class LaterHungry(Hungry):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            self.limit = 2 if len(self.sizes) >= 3 else 1000
            return super().forward(x, labels)

    settings = {"per_device_train_batch_size": 8}
    whole = hungry_run(tmp_path, Hungry(), 48, **settings)
    late = hungry_run(tmp_path, LaterHungry(), 48, auto_find_batch_size=True, **settings)
    assert logged(late, "loss")[:3] == logged(whole, "loss")[:3]
    assert late.model.sizes[:3] == [8, 8, 8]
    assert set(late.model.sizes[3:]) == {2}
    assert late.state.global_step == whole.state.global_step == 12


def test_memory_that_suffices_changes_nothing(tmp_path):
    settings = {"per_device_train_batch_size": 8}
    assert_same_run(
        hungry_run(tmp_path, Hungry(), 53, auto_find_batch_size=True, **settings),
        hungry_run(tmp_path, Hungry(), 53, **settings),
    )


def test_a_retried_update_counts_its_records_tokens_and_operations_once(tmp_path):
    class Recording(Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any
        ) -> Any:
            loss = super().compute_loss(model, inputs, **kwargs)
            self.record("copy", loss)
            return (loss, None) if return_outputs else loss

        def floating_point_ops(self, inputs: Any) -> float:
            return float(len(inputs["x"]))

    found = hungry_run(
        tmp_path,
        Hungry(limit=2, tolerated=1),
        48,
        Recording,
        auto_find_batch_size=True,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        include_num_input_tokens_seen=True,
    )
    assert logged(found, "copy") == pytest.approx(logged(found, "loss"), rel=1e-6)
    assert found.state.total_flos == 2 * 48
    assert found.state.num_input_tokens_seen == 2 * 48 * 3


def test_a_batch_of_one_that_does_not_fit_raises_what_the_device_said(tmp_path):
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        hungry_run(tmp_path, Hungry(limit=0), 8, auto_find_batch_size=True)


def test_without_the_switch_memory_errors_pass_through(tmp_path):
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        hungry_run(tmp_path, Hungry(limit=2), 16)


def test_other_errors_are_not_taken_for_a_lack_of_memory(tmp_path):
    class Broken(Hungry):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            self.sizes.append(len(x))
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    model = Broken()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        hungry_run(tmp_path, model, 16, auto_find_batch_size=True)
    assert model.sizes == [8]


# ---- switches of a run ----


@pytest.fixture
def determinism_restored() -> Iterator[None]:
    names = ("CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG", "FLASH_ATTENTION_DETERMINISTIC")
    before = {name: os.environ.get(name) for name in names}
    flags = (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.mark.usefixtures("determinism_restored")
def test_full_determinism_chooses_deterministic_kernels_and_repeats_itself(tmp_path):
    runs = []
    for _ in range(2):
        trainer = Trainer(
            tiny.bert_classifier(),
            learning(tmp_path, learning_rate=1e-3, full_determinism=True),
            train_dataset=tiny.classification_data(),
        )
        trainer.train()
        runs.append((logged(trainer, "loss"), weights_of(trainer)))
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert runs[0][0] == runs[1][0]
    assert same_weights(runs[0][1], runs[1][1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_trains_saves_plain_names_and_resumes(tmp_path, backend):
    def run(resume: str | None = None, **settings: Any) -> Trainer:
        torch.manual_seed(0)
        model = Hungry()
        model.body[2] = nn.Identity()  # dropout inside a compiled graph draws in another order
        arguments = learning(tmp_path, learning_rate=0.01, save_strategy="steps", save_steps=3, **settings)
        trainer = Trainer(model, arguments, train_dataset=points(32), eval_dataset=points(9))
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    plain = run()
    compiled = run(torch_compile_backend=backend)
    assert compiled.args.torch_compile
    assert type(compiled.model_wrapped).__name__ == "OptimizedModule"
    assert type(compiled.model) is Hungry
    assert logged(compiled, "loss") == pytest.approx(logged(plain, "loss"), rel=1e-5)
    saved = load_file(tmp_path / "checkpoint-6" / "model.safetensors")
    assert saved.keys() == plain.model.state_dict().keys()
    assert same_weights(saved, weights_of(compiled))
    resumed = run(str(tmp_path / "checkpoint-3"), torch_compile_backend=backend)
    assert same_weights(weights_of(resumed), weights_of(compiled))
    assert compiled.evaluate()["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"], rel=1e-5)


def test_memory_metrics_are_added_where_asked_for(tmp_path):
    data = tiny.regression_data(16)
    trainer = Trainer(
        tiny.Regression(),
        learning(tmp_path, max_steps=2, skip_memory_metrics=False),
        train_dataset=data,
        eval_dataset=data,
    )
    trained = trainer.train().metrics
    assert {
        "before_init_mem_cpu",
        "init_mem_cpu_alloc_delta",
        "train_mem_cpu_alloc_delta",
        "train_mem_cpu_peaked_delta",
    } <= trained.keys()
    assert {"eval_mem_cpu_alloc_delta", "eval_mem_cpu_peaked_delta"} <= trainer.evaluate().keys()
    assert "test_mem_cpu_alloc_delta" in trainer.predict(data).metrics
    assert trained["before_init_mem_cpu"] > 2**20


def test_memory_metrics_survive_an_evaluation_inside_training(tmp_path):
    data = tiny.regression_data(16)
    arguments = learning(
        tmp_path, max_steps=2, skip_memory_metrics=False, eval_strategy="steps", eval_steps=1
    )
    trained = Trainer(tiny.Regression(), arguments, train_dataset=data, eval_dataset=data).train().metrics
    assert "train_mem_cpu_alloc_delta" in trained


def compare_with_transformers(tmp_path: Path, model: Any, data: Any, **settings: Any) -> tuple[Trainer, Any]:
    """The same run in both libraries."""
    import transformers

    trainers: list[Any] = []
    chosen = {"learning_rate": 1e-3, "max_steps": 5, "logging_steps": 1, **settings}
    for library in (transformers, footplate):
        trainer = library.Trainer(
            model(), tiny.arguments(tmp_path, library, **chosen), train_dataset=data, eval_dataset=data[:9]
        )
        trainer.train()
        trainers.append(trainer)
    theirs, ours = trainers
    assert logged(ours, "loss") == logged(theirs, "loss")
    assert logged(ours, "grad_norm") == logged(theirs, "grad_norm")
    return ours, theirs


def test_embedding_noise_is_that_of_the_original_and_ends_with_the_run(tmp_path):
    ours, _ = compare_with_transformers(tmp_path, tiny.gpt, tiny.causal_data(40), neftune_noise_alpha=5.0)
    silent = Trainer(
        tiny.gpt(), learning(tmp_path, learning_rate=1e-3, max_steps=5), train_dataset=tiny.causal_data(40)
    )
    silent.train()
    assert logged(ours, "loss") != logged(silent, "loss")
    assert not ours.model.get_input_embeddings()._forward_hooks


def test_embedding_noise_does_not_touch_an_evaluation(tmp_path):
    trainer = Trainer(
        tiny.gpt(), learning(tmp_path, neftune_noise_alpha=50.0), eval_dataset=tiny.causal_data(9)
    )
    plain = Trainer(tiny.gpt(), learning(tmp_path), eval_dataset=tiny.causal_data(9))
    assert trainer.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]


def test_embedding_noise_needs_a_model_with_embeddings(tmp_path):
    trainer = Trainer(
        tiny.Regression(), learning(tmp_path, neftune_noise_alpha=5.0), train_dataset=tiny.regression_data()
    )
    with pytest.raises(ValueError, match=r"neftune_noise_alpha=5.0 needs .* Regression has none"):
        trainer.train()


def test_gradient_checkpointing_gives_the_same_weights(tmp_path):
    runs = []
    for switch in (False, True):
        trainer = Trainer(
            tiny.gpt(),
            learning(tmp_path, learning_rate=1e-3, max_steps=3, gradient_checkpointing=switch),
            train_dataset=tiny.causal_data(40),
        )
        trainer.train()
        runs.append(trainer)
    assert runs[1].model.is_gradient_checkpointing
    assert logged(runs[0], "loss") == pytest.approx(logged(runs[1], "loss"), rel=1e-6)


def test_gradient_checkpointing_is_refused_by_a_module_that_has_none(tmp_path):
    trainer = Trainer(
        tiny.Regression(),
        learning(tmp_path, gradient_checkpointing=True),
        train_dataset=tiny.regression_data(),
    )
    with pytest.raises(
        ValueError, match=r"activation_checkpointing=True needs .* Regression has neither.*=False"
    ):
        trainer.train()
    assert trainer.state.global_step == 0


def test_bf16_on_the_cpu_is_that_of_the_original(tmp_path):
    ours, _ = compare_with_transformers(
        tmp_path, tiny.bert_classifier, tiny.classification_data(40), bf16=True
    )
    full = Trainer(
        tiny.bert_classifier(),
        learning(tmp_path, learning_rate=1e-3, max_steps=5),
        train_dataset=tiny.classification_data(40),
    )
    full.train()
    assert logged(ours, "loss") != logged(full, "loss")
    assert logged(ours, "loss") == pytest.approx(logged(full, "loss"), rel=2e-2)
    assert {parameter.dtype for parameter in ours.model.parameters()} == {torch.float32}
    assert ours.predict(tiny.classification_data(5)).predictions.dtype == np.float32


def test_bf16_trains_a_plain_module_twice_and_evaluates(tmp_path):
    data = points(16)
    trainer = Trainer(
        Hungry(), learning(tmp_path, bf16=True, max_steps=2), train_dataset=data, eval_dataset=data
    )
    trainer.train()
    trainer.train()
    assert math.isfinite(trainer.evaluate()["eval_loss"])


def test_full_bf16_evaluation_leaves_training_in_full_precision(tmp_path):
    data = tiny.classification_data(16)
    arguments = learning(tmp_path, max_steps=2, bf16_full_eval=True, eval_strategy="steps", eval_steps=1)
    trainer = Trainer(tiny.bert_classifier(), arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("model", "data"), [(tiny.bert_classifier, tiny.classification_data), (tiny.gpt, tiny.causal_data)]
)
def test_label_smoothing_is_that_of_the_original_in_training_and_evaluation(tmp_path, model, data):
    ours, theirs = compare_with_transformers(tmp_path, model, data(40), label_smoothing_factor=0.2)
    assert ours.evaluate()["eval_loss"] == pytest.approx(theirs.evaluate()["eval_loss"], rel=1e-6)


def test_label_smoothing_of_a_plain_classifier_is_torchs(tmp_path):
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(3, 4)

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            return {"logits": self.linear(x)}

    rows = [{"x": row["x"], "labels": i % 4} for i, row in enumerate(points(8))]
    model = Classifier()
    x, labels = torch.stack([row["x"] for row in rows]), torch.tensor([row["labels"] for row in rows])
    expected = nn.functional.cross_entropy(model(x)["logits"], labels, label_smoothing=0.3)
    trainer = Trainer(model, learning(tmp_path, max_steps=1, label_smoothing_factor=0.3), train_dataset=rows)
    trainer.train()
    assert logged(trainer, "loss")[0] == pytest.approx(expected.item(), rel=1e-6)
