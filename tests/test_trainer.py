"""The Trainer on real small runs: whatever model, whatever data, and what it leaves on the disk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import tiny
from footplate import DefaultFlowCallback, EvalPrediction, Trainer, TrainerCallback, TrainerState, set_seed


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def assert_same_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different


def losses_of(trainer: Trainer, key: str = "loss") -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A log history without what depends on the clock."""
    clocks = ("_runtime", "_per_second", "_preparation_time")
    return [{key: value for key, value in entry.items() if not key.endswith(clocks)} for entry in history]


def assert_learns(trainer: Trainer) -> None:
    before = weights_of(trainer)
    result = trainer.train()
    losses = losses_of(trainer)
    assert result.global_step == trainer.state.global_step > 1
    assert losses[-1] < losses[0]
    assert any(not torch.equal(before[name], value) for name, value in weights_of(trainer).items())


def learning(tmp_path: Path, **settings: Any) -> Any:
    """Arguments of a run in which even two parameters visibly learn."""
    chosen = {"learning_rate": 0.1, "max_steps": 20, "logging_steps": 1, **settings}
    return tiny.arguments(tmp_path, **chosen)


# ---- models ----


@dataclass
class Answer:
    """What a model may return: an ordinary dataclass."""

    loss: torch.Tensor
    logits: torch.Tensor


class ReturnsTuple(tiny.Regression):
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        outputs = super().forward(x, labels)
        return outputs["loss"], outputs["logits"]


class ReturnsDataclass(tiny.Regression):
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        return Answer(**super().forward(x, labels))


class ReturnsLossTensor(tiny.Regression):
    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        return super().forward(x, labels)["loss"]


class ReturnsLogits(tiny.Regression):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x)["logits"]


def squared_error(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return ((outputs - labels) ** 2).sum() / (
        len(labels) if num_items_in_batch is None else num_items_in_batch
    )


@pytest.mark.parametrize("model_class", [tiny.Regression, ReturnsTuple, ReturnsDataclass, ReturnsLossTensor])
def test_a_module_may_return_dict_tuple_dataclass_or_loss(tmp_path, model_class):
    data = tiny.regression_data()
    trainer = Trainer(model_class(), learning(tmp_path), train_dataset=data, eval_dataset=data)
    assert_learns(trainer)
    # the same arithmetic, whatever it is wrapped in
    reference = Trainer(tiny.Regression(), learning(tmp_path), train_dataset=data)
    reference.train()
    assert losses_of(trainer) == losses_of(reference)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(tiny_loss(trainer.model, data)), rel=1e-5)


def tiny_loss(model: Any, data: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    x, y = (torch.stack([row[name] for row in data]) for name in ("x", "labels"))
    with torch.no_grad():
        return ((model.slope * x + model.offset - y) ** 2).mean()


def test_a_module_that_returns_a_bare_tensor_learns_by_compute_loss_func(tmp_path):
    data = tiny.regression_data()
    trainer = Trainer(
        ReturnsLogits(),
        learning(tmp_path, label_names=["labels"]),
        train_dataset=data,
        eval_dataset=data,
        compute_loss_func=squared_error,
    )
    assert_learns(trainer)
    reference = Trainer(tiny.Regression(), learning(tmp_path), train_dataset=data)
    reference.train()
    assert losses_of(trainer) == pytest.approx(losses_of(reference), rel=1e-6)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(tiny_loss(trainer.model, data)), rel=1e-5)


@pytest.mark.parametrize("model_class", [tiny.Regression, ReturnsTuple, ReturnsDataclass])
def test_predictions_hold_the_logits_and_not_the_loss(tmp_path, model_class):
    data = tiny.regression_data(19)
    trainer = Trainer(model_class(), learning(tmp_path))
    output = trainer.predict(data)
    x = np.array([float(row["x"]) for row in data], dtype=np.float32)
    np.testing.assert_allclose(output.predictions, 0.5 * x - 1.0, rtol=1e-6)
    np.testing.assert_array_equal(
        output.label_ids, np.array([float(row["labels"]) for row in data], np.float32)
    )
    assert set(output.metrics) >= {
        "test_loss",
        "test_runtime",
        "test_samples_per_second",
        "test_steps_per_second",
    }


def test_predict_without_labels_gives_predictions_alone(tmp_path):
    data = [{"x": row["x"]} for row in tiny.regression_data(11)]
    output = Trainer(tiny.Regression(), learning(tmp_path)).predict(data)
    assert output.predictions.shape == (11,)
    assert output.label_ids is None
    assert "test_loss" not in output.metrics


@pytest.mark.parametrize(
    ("model", "data"), [(tiny.bert_classifier, tiny.classification_data), (tiny.gpt, tiny.causal_data)]
)
def test_a_transformers_model_learns(tmp_path, model, data):
    arguments = learning(tmp_path, learning_rate=5e-3, max_steps=14)
    assert_learns(Trainer(model(), arguments, train_dataset=data(40)))


def lora(model: nn.Module) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    return get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]))


def test_an_adapter_learns_and_the_model_under_it_stays(tmp_path):
    model = lora(tiny.bert_classifier())
    trainer = Trainer(
        model,
        learning(tmp_path, learning_rate=0.05),
        train_dataset=tiny.classification_data(40),
        eval_dataset=tiny.classification_data(17),
    )
    before = weights_of(trainer)
    trainer.train()
    changed = {name for name, value in weights_of(trainer).items() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora_" in name or "modules_to_save" in name for name in changed)
    assert trainer.get_num_trainable_parameters() == model.get_nb_trainable_parameters()[0]
    assert np.isfinite(trainer.evaluate()["eval_loss"])


def test_an_adapter_is_saved_as_one_and_resumes_to_the_same_weights(tmp_path):
    def build(**settings: Any) -> Trainer:
        arguments = learning(
            tmp_path, max_steps=6, learning_rate=0.05, save_strategy="steps", save_steps=3, **settings
        )
        return Trainer(lora(tiny.bert_classifier()), arguments, train_dataset=tiny.classification_data(40))

    straight = build()
    straight.train()
    assert (tmp_path / "checkpoint-3" / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "checkpoint-3" / "model.safetensors").exists()
    resumed = build()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert_same_weights(weights_of(straight), weights_of(resumed))


def test_model_init_makes_a_new_model_at_each_train(tmp_path):
    made: list[nn.Module] = []

    def make() -> nn.Module:
        made.append(nn.Linear(1, 1))
        return Wrapped(made[-1])

    trainer = Trainer(model_init=make, args=learning(tmp_path, max_steps=3), train_dataset=vectors(12))
    first_losses = (trainer.train(), losses_of(trainer))[1]
    first = trainer.model
    second_losses = (trainer.train(), losses_of(trainer))[1]
    assert trainer.model is not first
    assert trainer.model.inner is made[-1]
    assert first_losses == second_losses  # seeded anew, so the same weights are drawn
    assert len(first_losses) == 3
    assert trainer.callback_handler.model is trainer.model


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.inner(x)
        return (
            {"logits": logits}
            if labels is None
            else {"loss": ((logits - labels) ** 2).mean(), "logits": logits}
        )


def vectors(num_samples: int) -> list[dict[str, torch.Tensor]]:
    return [
        {"x": row["x"].view(1), "labels": row["labels"].view(1)} for row in tiny.regression_data(num_samples)
    ]


def test_model_init_may_take_the_trial(tmp_path):
    trials: list[Any] = []

    def make(trial: Any) -> nn.Module:
        trials.append(trial)
        return tiny.Regression()

    Trainer(model_init=make, args=learning(tmp_path))
    assert trials == [None]


def test_a_second_train_starts_its_steps_and_history_anew_and_keeps_the_weights(tmp_path):
    data = tiny.regression_data()
    trainer = Trainer(tiny.Regression(), learning(tmp_path, max_steps=4), train_dataset=data)
    trainer.train()
    first = losses_of(trainer)
    trainer.train()
    assert trainer.state.global_step == 4
    assert len(losses_of(trainer)) == 4
    assert losses_of(trainer)[0] < first[0]


# ---- data ----


class Lines(Dataset):
    """Map-style, of dicts."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Stream(IterableDataset):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


class StreamWithLength(Stream):
    def __len__(self) -> int:
        return len(self.rows)


def table(rows: list[dict[str, torch.Tensor]]) -> Any:
    from datasets import Dataset as Table

    return Table.from_dict({name: [float(row[name]) for row in rows] for name in rows[0]})


@pytest.mark.parametrize("kind", [list, Lines, table])
def test_every_kind_of_map_style_dataset_gives_the_same_run(tmp_path, kind):
    data = tiny.regression_data(37)
    trainer = Trainer(
        tiny.Regression(), learning(tmp_path, max_steps=9), train_dataset=kind(data), eval_dataset=kind(data)
    )
    trainer.train()
    reference = Trainer(
        tiny.Regression(), learning(tmp_path, max_steps=9), train_dataset=data, eval_dataset=data
    )
    reference.train()
    assert losses_of(trainer) == losses_of(reference)
    assert trainer.evaluate()["eval_loss"] == reference.evaluate()["eval_loss"]
    assert trainer.state.epoch == pytest.approx(9 / 5)


def test_a_stream_with_a_length_counts_its_epochs(tmp_path):
    arguments = learning(tmp_path, max_steps=-1, num_train_epochs=2)
    trainer = Trainer(tiny.Regression(), arguments, train_dataset=StreamWithLength(tiny.regression_data(20)))
    assert trainer.train().global_step == 6
    assert trainer.state.epoch == 2


def test_a_stream_without_length_goes_around_until_max_steps(tmp_path):
    rows = tiny.regression_data(20)
    trainer = Trainer(tiny.Regression(), learning(tmp_path, max_steps=7), train_dataset=Stream(rows))
    assert trainer.train().global_step == 7
    assert len(losses_of(trainer)) == 7


def test_a_datasets_stream_trains_and_drops_its_unused_columns(tmp_path):
    rows = tiny.regression_data(20)
    stream = table(rows).add_column("note", ["text"] * 20).to_iterable_dataset()
    trainer = Trainer(tiny.Regression(), learning(tmp_path, max_steps=5), train_dataset=stream)
    reference = Trainer(tiny.Regression(), learning(tmp_path, max_steps=5), train_dataset=Stream(rows))
    trainer.train()
    reference.train()
    assert losses_of(trainer) == losses_of(reference)


class Sum(nn.Module):
    """Takes its inputs by position: features, then target."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear = nn.Linear(2, 1)

    def forward(self, features: torch.Tensor, target: torch.Tensor | None = None) -> Any:
        answer = self.linear(features).squeeze(-1)
        return answer if target is None else (((answer - target) ** 2).mean(), answer)


def stack(rows: list[Any]) -> Any:
    return torch.utils.data.default_collate(rows)


def test_batches_of_tuples_reach_forward_by_position(tmp_path):
    features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(features, features.sum(dim=1))
    trainer = Trainer(Sum(), learning(tmp_path), data_collator=stack, train_dataset=data, eval_dataset=data)
    assert_learns(trainer)


def test_batches_of_tuples_evaluate_like_they_train(tmp_path):
    features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(features, features.sum(dim=1))
    arguments = learning(
        tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2, metric_for_best_model="loss"
    )
    trainer = Trainer(
        Sum(),
        arguments,
        train_dataset=data,
        eval_dataset=data,
        compute_metrics=lambda p: {"rows": len(p.label_ids)},
    )
    trainer.train()
    metrics = trainer.evaluate()
    with torch.no_grad():
        expected, answers = trainer.model(*data.tensors)
    assert metrics["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["eval_rows"] == 40
    output = trainer.predict(data)
    np.testing.assert_allclose(output.predictions, answers.numpy(), rtol=1e-5)
    np.testing.assert_array_equal(output.label_ids, data.tensors[1].numpy())


def test_the_last_of_a_tuple_is_the_labels_for_compute_loss_func(tmp_path):
    features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(features, features.sum(dim=1))
    trainer = Trainer(
        Sum(),
        learning(tmp_path, per_device_eval_batch_size=7),
        data_collator=stack,
        train_dataset=data,
        eval_dataset=data,
        compute_loss_func=squared_error,
        compute_metrics=lambda p: {"mse": float(((p.predictions - p.label_ids) ** 2).mean())},
    )
    assert_learns(trainer)
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_mse"], rel=1e-5)


def test_tuples_and_tensors_need_no_collator_of_the_users_own(tmp_path):
    features = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    trainer = Trainer(Sum(), learning(tmp_path), train_dataset=TensorDataset(features, features.sum(dim=1)))
    assert_learns(trainer)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear = nn.Linear(2, 2)

    def forward(self, features: torch.Tensor) -> Any:
        answer = self.linear(features)
        return ((answer - features) ** 2).mean(), answer


def test_batches_that_are_one_tensor_train(tmp_path):
    rows = list(torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
    trainer = Trainer(Autoencoder(), learning(tmp_path), data_collator=torch.stack, train_dataset=rows)
    assert_learns(trainer)


def test_a_tensor_batch_without_labels_predicts(tmp_path):
    rows = list(torch.randn(13, 2, generator=torch.Generator().manual_seed(0)))
    model = Sum()
    output = Trainer(model, learning(tmp_path), data_collator=torch.stack).predict(rows)
    np.testing.assert_allclose(output.predictions, model(torch.stack(rows)).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_deliver_the_same_run(tmp_path, workers):
    data = tiny.regression_data(30)
    trainer = Trainer(
        tiny.Regression(), learning(tmp_path, max_steps=6, dataloader_num_workers=workers), train_dataset=data
    )
    trainer.train()
    reference = Trainer(tiny.Regression(), learning(tmp_path, max_steps=6), train_dataset=data)
    reference.train()
    assert losses_of(trainer) == losses_of(reference)


# ---- evaluation ----


def mean_error(prediction: EvalPrediction) -> dict[str, float]:
    return {"error": float(np.abs(prediction.predictions - prediction.label_ids).mean())}


def test_several_eval_sets_report_under_their_names_with_one_joint_loss(tmp_path):
    sets = {"short": tiny.regression_data(5, seed=1), "long": tiny.regression_data(23, seed=2)}
    trainer = Trainer(tiny.Regression(), learning(tmp_path), eval_dataset=sets, compute_metrics=mean_error)
    metrics = trainer.evaluate()
    per_set = {f"eval_{name}_{key}" for name in sets for key in ("loss", "error", "runtime")}
    assert per_set <= metrics.keys()
    weighted = (5 * metrics["eval_short_loss"] + 23 * metrics["eval_long_loss"]) / 28
    assert metrics["eval_loss"] == pytest.approx(weighted, rel=1e-12)
    together = Trainer(
        tiny.Regression(), learning(tmp_path), eval_dataset=[*sets["short"], *sets["long"]]
    ).evaluate()
    assert metrics["eval_loss"] == pytest.approx(together["eval_loss"], rel=1e-6)


def test_several_eval_sets_may_be_given_to_evaluate(tmp_path):
    sets = {"a": tiny.regression_data(5, seed=1), "b": tiny.regression_data(9, seed=2)}
    metrics = Trainer(tiny.Regression(), learning(tmp_path)).evaluate(sets, metric_key_prefix="late")
    assert {"late_a_loss", "late_b_loss", "late_loss"} <= metrics.keys()


def test_the_best_of_several_eval_sets_may_be_chosen_by_one_of_them(tmp_path):
    sets = {"a": tiny.regression_data(5, seed=1), "b": tiny.regression_data(9, seed=2)}
    arguments = learning(
        tmp_path,
        max_steps=6,
        eval_strategy="steps",
        eval_steps=2,
        metric_for_best_model="b_error",
        greater_is_better=False,
    )
    trainer = Trainer(
        tiny.Regression(), arguments, train_dataset=sets["a"], eval_dataset=sets, compute_metrics=mean_error
    )
    trainer.train()
    assert trainer.state.best_metric == min(losses_of(trainer, "eval_b_error"))
    assert len(losses_of(trainer, "eval_b_error")) == 3
    assert losses_of(trainer, "eval_loss") == []  # the joint loss is no log of its own


def test_the_prefix_reaches_every_metric_key(tmp_path):
    data = tiny.regression_data(9)
    trainer = Trainer(tiny.Regression(), learning(tmp_path), compute_metrics=mean_error)
    for metrics in (
        trainer.evaluate(data, metric_key_prefix="held_out"),
        trainer.predict(data, metric_key_prefix="held_out").metrics,
    ):
        assert {key for key in metrics if not key.startswith("held_out_")} <= {"epoch"}
        assert {"held_out_loss", "held_out_error"} <= metrics.keys()


def test_eval_loss_weighs_batches_by_their_rows(tmp_path):
    data = tiny.regression_data(10)
    trainer = Trainer(tiny.Regression(), learning(tmp_path, per_device_eval_batch_size=8), eval_dataset=data)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(tiny_loss(trainer.model, data)), rel=1e-6)


def test_metrics_may_be_computed_batch_by_batch(tmp_path):
    seen: list[int] = []

    def count_rows(prediction: EvalPrediction, compute_result: bool) -> dict[str, int]:
        seen.append(len(prediction.label_ids))
        return {"rows": sum(seen)} if compute_result else {}

    arguments = learning(tmp_path, batch_eval_metrics=True, per_device_eval_batch_size=4)
    trainer = Trainer(
        tiny.Regression(), arguments, eval_dataset=tiny.regression_data(10), compute_metrics=count_rows
    )
    assert trainer.evaluate()["eval_rows"] == 10
    assert seen == [4, 4, 2]


def test_logits_may_be_preprocessed_before_they_are_kept(tmp_path):
    trainer = Trainer(
        tiny.bert_classifier(),
        learning(tmp_path),
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
    )
    output = trainer.predict(tiny.classification_data(11))
    assert output.predictions.shape == (11,)


def test_outputs_named_in_ignore_keys_are_left_out(tmp_path):
    class Talkative(tiny.Regression):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            return {**super().forward(x, labels), "noise": x}

    trainer = Trainer(Talkative(), learning(tmp_path))
    data = tiny.regression_data(5)
    assert len(trainer.predict(data).predictions) == 2
    assert trainer.predict(data, ignore_keys=["noise"]).predictions.shape == (5,)


def test_metrics_get_inputs_and_losses_when_asked(tmp_path):
    seen: dict[str, Any] = {}

    def look(prediction: EvalPrediction) -> dict[str, float]:
        seen.update(inputs=prediction.inputs, losses=prediction.losses)
        return {}

    arguments = learning(tmp_path, include_for_metrics=["inputs", "loss"], per_device_eval_batch_size=4)
    rows = tiny.classification_data(10)
    Trainer(tiny.bert_classifier(), arguments, eval_dataset=rows, compute_metrics=look).evaluate()
    np.testing.assert_array_equal(seen["inputs"], [row["input_ids"] for row in rows])
    assert seen["losses"].shape == (10,)


def test_evaluation_leaves_the_model_learning_with_dropout_afterwards(tmp_path):
    modes: list[bool] = []

    class Watched(tiny.Regression):
        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
            modes.append(self.training)
            return super().forward(x, labels)

    data = tiny.regression_data(8)
    arguments = learning(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2)
    Trainer(Watched(), arguments, train_dataset=data, eval_dataset=data).train()
    assert modes == [True, True, False, True, True, False]


# ---- small questions to the Trainer ----


class Bag:
    """Something that is saved with the model, as a tokenizer is."""

    def save_pretrained(self, folder: str) -> None:
        Path(folder, "bag.json").write_text("{}")


def test_the_tokenizer_of_old_scripts_is_the_processing_class(tmp_path):
    bag, other = Bag(), Bag()
    trainer = Trainer(tiny.Regression(), learning(tmp_path), tokenizer=bag)
    assert trainer.processing_class is trainer.tokenizer is bag
    trainer.tokenizer = other
    assert trainer.processing_class is other


def word_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "a", "b", "c"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]")


def test_a_tokenizer_pads_ragged_rows_and_is_saved_with_the_model(tmp_path):
    rows = [{"input_ids": [2] * (1 + i % 5), "labels": i % 3} for i in range(12)]
    trainer = Trainer(
        tiny.bert_classifier(),
        learning(tmp_path, max_steps=2),
        train_dataset=rows,
        processing_class=word_tokenizer(),
    )
    trainer.train()
    trainer.save_model()
    assert (tmp_path / "tokenizer.json").is_file()


def test_the_optimizer_can_be_asked_for_rates_and_groups(tmp_path):
    trainer = Trainer(tiny.bert_classifier(), learning(tmp_path, learning_rate=0.25, weight_decay=0.5))
    for question in (trainer.get_learning_rates, trainer.get_optimizer_group):
        with pytest.raises(ValueError, match="no optimizer yet"):
            question()
    trainer.create_optimizer()
    assert trainer.get_learning_rates() == [0.25, 0.25]
    classifier = trainer.model.classifier
    assert trainer.get_optimizer_group(classifier.weight)["weight_decay"] == 0.5
    assert trainer.get_optimizer_group(classifier.bias)["weight_decay"] == 0.0
    everything = [parameter for group in trainer.get_optimizer_group() for parameter in group]
    assert len(everything) == len(list(trainer.model.parameters()))
    assert trainer.get_optimizer_group(nn.Parameter(torch.zeros(1))) is None


def test_frozen_parameters_are_not_counted_as_trainable(tmp_path):
    model = tiny.Regression()
    trainer = Trainer(model, learning(tmp_path))
    assert trainer.get_num_trainable_parameters() == 2
    model.slope.requires_grad_(False)
    assert trainer.get_num_trainable_parameters() == 1


def test_num_examples_counts_the_dataset_behind_a_loader(tmp_path):
    trainer = Trainer(tiny.Regression(), learning(tmp_path), train_dataset=tiny.regression_data(21))
    assert trainer.num_examples(trainer.get_train_dataloader()) == 21

    class Bare:
        def __len__(self) -> int:
            return 3

    assert trainer.num_examples(Bare()) == 3 * trainer.args.per_device_train_batch_size


def test_biases_and_norms_do_not_decay(tmp_path):
    trainer = Trainer(tiny.bert_classifier(), learning(tmp_path))
    names = trainer.get_decay_parameter_names(trainer.model)
    assert "classifier.weight" in names
    assert not [name for name in names if "bias" in name or "LayerNorm" in name]


def test_an_optimizer_and_schedule_of_the_users_own_are_used(tmp_path):
    model = tiny.Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    trainer = Trainer(
        model,
        learning(tmp_path, max_steps=4, max_grad_norm=0),
        train_dataset=tiny.regression_data(),
        optimizers=(optimizer, schedule),
    )
    trainer.train()
    assert trainer.optimizer is optimizer
    assert losses_of(trainer, "learning_rate") == [0.05, 0.05, 0.1, 0.1]


def test_an_optimizer_class_may_be_given_with_its_arguments(tmp_path):
    trainer = Trainer(
        tiny.Regression(),
        learning(tmp_path, max_steps=2),
        train_dataset=tiny.regression_data(),
        optimizer_cls_and_kwargs=(torch.optim.SGD, {"lr": 0.125, "momentum": 0.5}),
    )
    trainer.train()
    assert isinstance(trainer.optimizer, torch.optim.SGD)
    assert trainer.optimizer.param_groups[0]["momentum"] == 0.5
    assert losses_of(trainer, "learning_rate")[0] == 0.125


class Counter(TrainerCallback):
    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps += 1


def test_callbacks_come_and_go_as_class_or_instance(tmp_path):
    mine = Counter()
    trainer = Trainer(
        tiny.Regression(),
        learning(tmp_path, max_steps=3),
        train_dataset=tiny.regression_data(),
        callbacks=[mine],
    )
    trainer.train()
    assert mine.steps == 3
    assert trainer.pop_callback(mine) is mine
    assert trainer.pop_callback(Counter) is None
    trainer.add_callback(Counter)
    added = trainer.pop_callback(Counter)
    assert type(added) is Counter
    assert added is not mine
    trainer.add_callback(mine)
    trainer.remove_callback(mine)
    trainer.add_callback(Counter)
    trainer.remove_callback(Counter)
    trainer.train()
    assert mine.steps == 3
    assert [type(callback) for callback in trainer.callback_handler.callbacks].count(DefaultFlowCallback) == 1


def test_one_process_is_the_first_of_its_machine_and_of_all(tmp_path):
    trainer = Trainer(tiny.Regression(), learning(tmp_path))
    assert trainer.is_local_process_zero()
    assert trainer.is_world_process_zero()


def test_tokens_flops_and_speed_are_reported(tmp_path):
    arguments = learning(tmp_path, max_steps=3, include_num_input_tokens_seen=True)
    trainer = Trainer(tiny.gpt(), arguments, train_dataset=tiny.causal_data(40))
    metrics = trainer.train().metrics
    assert trainer.state.num_input_tokens_seen == 3 * 8 * 12
    assert losses_of(trainer, "num_input_tokens_seen")[0] == 8 * 12
    expected = 6 * 3 * 8 * 12 * trainer.model.num_parameters(exclude_embeddings=True)
    assert metrics["total_flos"] == trainer.state.total_flos == expected
    assert {
        "train_runtime",
        "train_samples_per_second",
        "train_steps_per_second",
        "train_loss",
    } <= metrics.keys()


def test_train_loss_is_the_mean_of_all_updates(tmp_path):
    trainer = Trainer(
        tiny.Regression(),
        learning(tmp_path, max_steps=7, logging_steps=3),
        train_dataset=tiny.regression_data(),
    )
    every = Trainer(tiny.Regression(), learning(tmp_path, max_steps=7), train_dataset=tiny.regression_data())
    every.train()
    assert trainer.train().training_loss == pytest.approx(np.mean(losses_of(every)), rel=1e-6)


def test_the_time_of_a_run_begins_when_its_optimizer_is_made(tmp_path):
    """The first optimizer of a process imports for seconds."""
    made: list[float] = []
    left: list[float] = []

    class Importing(Trainer):
        def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(0.2)
            made.append(time.time())
            return super().create_optimizer(*args, **kwargs)

        def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
            if "train_runtime" in logs:
                left.append(time.time() - made[-1] - logs["train_runtime"])
            super().log(logs, *args, **kwargs)

    data = tiny.regression_data()
    Importing(tiny.Regression(), learning(tmp_path, max_steps=2), train_dataset=data).train()
    assert len(left) == 1
    assert left[0] > -0.001


# ---- files ----


def test_save_model_of_a_plain_module_writes_safetensors_and_arguments(tmp_path):
    trainer = Trainer(tiny.Regression(), learning(tmp_path), processing_class=Bag())
    trainer.save_model(str(tmp_path / "kept"))
    assert {file.name for file in (tmp_path / "kept").iterdir()} == {
        "model.safetensors",
        "training_args.bin",
        "bag.json",
    }
    assert_same_weights(load_file(tmp_path / "kept" / "model.safetensors"), weights_of(trainer))
    saved = torch.load(tmp_path / "kept" / "training_args.bin", weights_only=True)
    assert saved["learning_rate"] == 0.1


def test_save_model_of_a_transformers_model_is_read_by_from_pretrained(tmp_path):
    trainer = Trainer(
        tiny.bert_classifier(), learning(tmp_path, max_steps=1), train_dataset=tiny.classification_data(8)
    )
    trainer.train()
    trainer.save_model()
    again = type(trainer.model).from_pretrained(tmp_path)
    assert_same_weights(again.state_dict(), weights_of(trainer))


def test_save_takes_a_state_dict_in_place_of_the_models_own(tmp_path):
    trainer = Trainer(tiny.Regression(), learning(tmp_path))
    other = {"slope": torch.tensor(7.0), "offset": torch.tensor(8.0)}
    trainer._save(str(tmp_path / "other"), state_dict=other)
    assert_same_weights(load_file(tmp_path / "other" / "model.safetensors"), other)


def test_state_and_metrics_are_written_as_json(tmp_path):
    trainer = Trainer(
        tiny.Regression(), learning(tmp_path, max_steps=2), train_dataset=tiny.regression_data()
    )
    metrics = trainer.train().metrics
    trainer.save_state()
    trainer.save_metrics("train", metrics)
    trainer.save_metrics("eval", {"eval_loss": 0.5})
    trainer.save_metrics("test", {"test_loss": 0.25}, combined=False)
    state = TrainerState.load_from_json(str(tmp_path / "trainer_state.json"))
    assert state.global_step == 2
    assert state.log_history == trainer.state.log_history
    assert json.loads((tmp_path / "train_results.json").read_text()) == metrics
    assert json.loads((tmp_path / "test_results.json").read_text()) == {"test_loss": 0.25}
    assert json.loads((tmp_path / "all_results.json").read_text()) == {**metrics, "eval_loss": 0.5}


def test_log_metrics_prints_a_table(tmp_path, capsys):
    trainer = Trainer(tiny.Regression(), learning(tmp_path))
    trainer.log_metrics("eval", {"eval_loss": 0.123456, "eval_runtime": 61.5})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "***** eval metrics *****"
    assert "0.1235" in lines[1]
    assert "0:01:01.50" in lines[2]
    assert trainer.metrics_format({"eval_runtime": 61.5}) == {"eval_runtime": "0:01:01.50"}


def test_a_checkpoint_holds_what_resuming_needs(tmp_path):
    arguments = learning(tmp_path, max_steps=2, save_strategy="steps", save_steps=2)
    Trainer(tiny.Regression(), arguments, train_dataset=tiny.regression_data()).train()
    expected = {
        "loader.pt",
        "manifest.json",
        "model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "trainer_state.json",
        "training_args.bin",
    }
    assert {file.name for file in (tmp_path / "checkpoint-2").iterdir()} == expected


def test_save_only_model_leaves_the_optimizer_out(tmp_path):
    arguments = learning(tmp_path, max_steps=2, save_strategy="steps", save_steps=2, save_only_model=True)
    Trainer(tiny.Regression(), arguments, train_dataset=tiny.regression_data()).train()
    names = {file.name for file in (tmp_path / "checkpoint-2").iterdir()}
    assert names == {"manifest.json", "model.safetensors", "trainer_state.json", "training_args.bin"}


def checkpoints_in(folder: Path) -> list[str]:
    return sorted(
        (path.name for path in folder.glob("checkpoint-*")), key=lambda name: int(name.split("-")[1])
    )


def test_save_total_limit_keeps_the_latest(tmp_path):
    arguments = learning(tmp_path, max_steps=12, save_strategy="steps", save_steps=2, save_total_limit=2)
    Trainer(tiny.Regression(), arguments, train_dataset=tiny.regression_data()).train()
    assert checkpoints_in(tmp_path) == ["checkpoint-10", "checkpoint-12"]


def scripted(values: list[float]) -> Any:
    remaining = iter(values)
    return lambda prediction: {"score": next(remaining)}


def best_run(tmp_path: Path, scores: list[float], **settings: Any) -> Trainer:
    arguments = learning(
        tmp_path,
        max_steps=2 * len(scores),
        eval_strategy="steps",
        eval_steps=2,
        metric_for_best_model="score",
        **settings,
    )
    data = tiny.regression_data(16)
    trainer = Trainer(
        tiny.Regression(), arguments, train_dataset=data, eval_dataset=data, compute_metrics=scripted(scores)
    )
    trainer.train()
    return trainer


def test_the_best_model_is_loaded_at_the_end(tmp_path):
    trainer = best_run(
        tmp_path, [0.1, 0.9, 0.3], save_strategy="steps", save_steps=2, load_best_model_at_end=True
    )
    assert (trainer.state.best_metric, trainer.state.best_global_step) == (0.9, 4)
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-4")
    assert_same_weights(weights_of(trainer), load_file(tmp_path / "checkpoint-4" / "model.safetensors"))
    last = load_file(tmp_path / "checkpoint-6" / "model.safetensors")
    assert not torch.equal(last["slope"], trainer.model.slope)


def test_a_limit_removes_neither_the_best_nor_the_latest(tmp_path):
    best_run(
        tmp_path,
        [0.9, 0.1, 0.2, 0.3],
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        save_total_limit=1,
    )
    assert checkpoints_in(tmp_path) == ["checkpoint-2", "checkpoint-8"]


def test_the_best_is_saved_when_measured_whatever_the_schedule_of_saves(tmp_path):
    trainer = best_run(
        tmp_path, [0.1, 0.9, 0.3], save_strategy="steps", save_steps=5, load_best_model_at_end=True
    )
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-4")
    assert_same_weights(weights_of(trainer), load_file(tmp_path / "checkpoint-4" / "model.safetensors"))


def test_save_strategy_best_saves_each_new_best_and_no_other(tmp_path):
    best_run(tmp_path, [0.1, 0.05, 0.5, 0.5, 0.7], save_strategy="best")
    assert checkpoints_in(tmp_path) == ["checkpoint-2", "checkpoint-6", "checkpoint-10"]


# ---- resume ----

ACCUMULATION = {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 2}


def classifier_run(folder: Path, resume: str | bool | None = None, **settings: Any) -> Trainer:
    chosen = {
        "max_steps": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 3,
        "lr_scheduler_type": "cosine",
        **settings,
    }
    rows = tiny.classification_data(21)
    trainer = Trainer(
        tiny.bert_classifier(), tiny.arguments(folder, **chosen), train_dataset=rows, eval_dataset=rows[:9]
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


@pytest.mark.parametrize(
    "settings",
    [
        {},
        ACCUMULATION,
        {"eval_strategy": "steps", "eval_steps": 2},
        {
            "save_steps": 2,
            "max_steps": 8,
            "per_device_train_batch_size": 4,
        },  # stops inside the second epoch below
        {"train_sampling_strategy": "group_by_length"},
        {"dataloader_num_workers": 2},
        {"optim": "adafactor"},
        {"logging_steps": 2},
    ],
    ids=[
        "plain",
        "accumulation",
        "evaluating",
        "in an epoch",
        "length-grouped",
        "workers",
        "adafactor",
        "sparse log",
    ],
)
def test_a_resumed_run_ends_like_one_that_never_stopped(tmp_path, settings):
    straight = classifier_run(tmp_path, **settings)
    set_seed(999)  # whatever the process drew before must not matter
    step = settings.get("save_steps", 3)
    resumed = classifier_run(tmp_path, resume=str(tmp_path / f"checkpoint-{step}"), **settings)
    assert_same_weights(weights_of(straight), weights_of(resumed))
    assert timeless(resumed.state.log_history)[:-1] == timeless(straight.state.log_history)[:-1]
    first, second = (trainer.optimizer.state_dict()["state"] for trainer in (straight, resumed))
    for key, values in first.items():
        assert all(
            torch.equal(torch.as_tensor(value), torch.as_tensor(second[key][name]))
            for name, value in values.items()
            if value is not None
        )
    assert straight.state.total_flos == resumed.state.total_flos


def test_train_loss_after_a_resume_is_that_of_the_whole_run(tmp_path):
    straight = classifier_run(tmp_path)
    resumed = classifier_run(tmp_path, resume=str(tmp_path / "checkpoint-3"))
    assert resumed.state.log_history[-1]["train_loss"] == pytest.approx(
        straight.state.log_history[-1]["train_loss"], rel=1e-6
    )


def test_resume_true_takes_the_last_checkpoint(tmp_path):
    straight = classifier_run(tmp_path / "straight")
    stopped = Trainer(
        tiny.bert_classifier(),
        tiny.arguments(
            tmp_path / "cut",
            max_steps=6,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="steps",
            save_steps=1,
            lr_scheduler_type="cosine",
        ),
        train_dataset=tiny.classification_data(21),
        callbacks=[StopAt(4)],
    )
    stopped.train()
    assert checkpoints_in(tmp_path / "cut")[-1] == "checkpoint-4"
    resumed = classifier_run(tmp_path / "cut", resume=True)
    assert_same_weights(weights_of(straight), weights_of(resumed))


def test_a_run_that_was_over_resumes_without_another_step(tmp_path):
    done = classifier_run(tmp_path)
    again = classifier_run(tmp_path, resume=True)
    assert again.state.global_step == 6
    assert_same_weights(weights_of(done), weights_of(again))


def test_a_stream_resumes_where_it_was(tmp_path):
    def run(resume: str | None = None) -> Trainer:
        arguments = learning(tmp_path, max_steps=6, save_strategy="steps", save_steps=3)
        trainer = Trainer(
            tiny.Regression(), arguments, train_dataset=StreamWithLength(tiny.regression_data(64))
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    straight, resumed = run(), run(str(tmp_path / "checkpoint-3"))
    assert_same_weights(weights_of(straight), weights_of(resumed))
    assert losses_of(straight) == losses_of(resumed)


def test_transformers_resumes_from_a_checkpoint_of_ours(tmp_path):
    import transformers

    straight = classifier_run(tmp_path)
    arguments = tiny.arguments(
        tmp_path, transformers, max_steps=6, learning_rate=1e-3, logging_steps=1, lr_scheduler_type="cosine"
    )
    theirs = transformers.Trainer(
        tiny.bert_classifier(), arguments, train_dataset=tiny.classification_data(21)
    )
    theirs.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert [entry["loss"] for entry in theirs.state.log_history if "loss" in entry] == losses_of(straight)


# ---- the whole of the API ----

METHODS = [
    "create_accelerator_and_postprocess",
    "call_model_init",
    "_move_model_to_device",
    "_wrap_model",
    "add_callback",
    "pop_callback",
    "remove_callback",
    "get_train_dataloader",
    "get_eval_dataloader",
    "get_test_dataloader",
    "_get_train_sampler",
    "_get_eval_sampler",
    "_remove_unused_columns",
    "_get_collator_with_removed_columns",
    "_set_signature_columns_if_needed",
    "num_examples",
    "get_batch_samples",
    "_prepare_input",
    "_prepare_inputs",
    "create_optimizer_and_scheduler",
    "create_optimizer",
    "create_scheduler",
    "get_optimizer_cls_and_kwargs",
    "get_decay_parameter_names",
    "_get_learning_rate",
    "get_learning_rates",
    "get_optimizer_group",
    "get_num_trainable_parameters",
    "train",
    "_inner_training_loop",
    "training_step",
    "compute_loss",
    "compute_loss_context_manager",
    "autocast_smart_context_manager",
    "_maybe_log_save_evaluate",
    "store_flos",
    "floating_point_ops",
    "evaluate",
    "predict",
    "evaluation_loop",
    "prediction_loop",
    "prediction_step",
    "_nested_gather",
    "_gather_and_numpify",
    "torch_jit_model_eval",
    "ipex_optimize_model",
    "save_model",
    "_save",
    "_save_tpu",
    "_save_checkpoint",
    "save_state",
    "save_metrics",
    "_rotate_checkpoints",
    "_sorted_checkpoints",
    "_load_from_checkpoint",
    "_load_best_model",
    "_load_optimizer_and_scheduler",
    "_load_rng_state",
    "_issue_warnings_after_load",
    "_get_output_dir",
    "log",
    "log_metrics",
    "metrics_format",
    "create_model_card",
    "push_to_hub",
    "init_hf_repo",
    "init_git_repo",
    "_push_from_checkpoint",
    "_add_sm_patterns_to_gitignore",
    "hyperparameter_search",
    "_hp_search_setup",
    "_report_to_hp_search",
    "_tune_save_checkpoint",
    "is_local_process_zero",
    "is_world_process_zero",
]

NOT_IN_THIS_VERSION = ["ipex_optimize_model", "_save_tpu"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_api_exists_with_a_docstring(method):
    assert callable(getattr(Trainer, method))
    assert getattr(Trainer, method).__doc__


@pytest.mark.parametrize("method", NOT_IN_THIS_VERSION)
def test_what_this_version_does_not_do_says_so_by_name(tmp_path, method):
    trainer = Trainer(tiny.Regression(), learning(tmp_path))
    with pytest.raises(NotImplementedError, match=rf"Trainer\.{method}: .* not in this version of footplate"):
        getattr(trainer, method)("any", key="argument")


def test_a_trial_without_a_search_is_handed_on_and_sets_nothing(tmp_path):
    trainer = Trainer(tiny.Regression(), learning(tmp_path), train_dataset=tiny.regression_data())
    trainer._hp_search_setup(None)
    trainer._report_to_hp_search(None, 1, {})
    rate = trainer.args.learning_rate
    trainer.train(trial={"learning_rate": 1})
    assert trainer.args.learning_rate == rate
    assert trainer.state.is_hyper_param_search
    assert trainer.state.trial_params == {"learning_rate": 1}
    trainer.train()
    assert not trainer.state.is_hyper_param_search
    assert trainer.state.trial_params is None


def test_gathering_in_one_process_gives_back_what_was_given(tmp_path):
    trainer = Trainer(tiny.Regression(), learning(tmp_path))
    tensors = (torch.arange(3), {"a": torch.ones(2)})
    assert trainer._nested_gather(tensors)[1]["a"] is tensors[1]["a"]
    arrays = trainer._gather_and_numpify(tensors)
    np.testing.assert_array_equal(arrays[0], [0, 1, 2])
    assert trainer._nested_gather(None) is trainer._gather_and_numpify(None) is None


def test_prediction_loop_is_the_old_name_of_evaluation_loop(tmp_path):
    trainer = Trainer(tiny.Regression(), learning(tmp_path), eval_dataset=tiny.regression_data(9))
    loader = trainer.get_eval_dataloader()
    old, new = trainer.prediction_loop(loader, "Evaluation"), trainer.evaluation_loop(loader, "Evaluation")
    np.testing.assert_array_equal(old.predictions, new.predictions)
    assert old.num_samples == new.num_samples == 9
    assert old.metrics == new.metrics
