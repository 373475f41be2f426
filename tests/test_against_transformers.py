"""The same run with footplate and with the installed transformers: every number equal to the last bit."""

from __future__ import annotations

import functools
import gc
import json
import random
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import footplate
import tiny

EVAL_ROWS = 21
SPEED = ("_runtime", "_per_second", "_preparation_time")

LIBRARIES = (transformers, footplate)

Settings = dict[str, Any]


def token_classifier() -> nn.Module:
    from transformers import BertForTokenClassification

    return BertForTokenClassification(tiny.bert_classifier().config)


def span_model() -> nn.Module:
    from transformers import BertForQuestionAnswering

    return BertForQuestionAnswering(tiny.bert_classifier(num_labels=2).config)


def masked_model() -> nn.Module:
    from transformers import BertForMaskedLM

    return BertForMaskedLM(tiny.bert_classifier().config)


def translator() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=50, decoder_start_token_id=0, **sizes))


def with_adapter(model: nn.Module, task_type: str, target_modules: list[str]) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(task_type=task_type, target_modules=target_modules, r=2, lora_dropout=0.1)
    return get_peft_model(model, settings)


class TupleRegression(tiny.Regression):
    """Answers with a tuple, as models of old do."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        return tuple(super().forward(x, labels).values())


TASKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[Any]]]] = {
    "regression": (tiny.Regression, tiny.regression_data),
    "regression in tuples": (TupleRegression, tiny.regression_data),
    "bert": (tiny.bert_classifier, tiny.classification_data),
    "gpt": (tiny.gpt, tiny.causal_data),
    "multi-label": (
        functools.partial(tiny.bert_classifier, problem_type="multi_label_classification"),
        tiny.multi_label_data,
    ),
    "tokens": (token_classifier, tiny.token_data),
    "spans": (span_model, tiny.span_data),
    "translation": (translator, tiny.causal_data),
    "bert with LoRA": (
        lambda: with_adapter(tiny.bert_classifier(), "SEQ_CLS", ["query", "value"]),
        tiny.classification_data,
    ),
    "gpt with LoRA": (lambda: with_adapter(tiny.gpt(), "CAUSAL_LM", ["c_attn"]), tiny.causal_data),
}


@pytest.fixture(scope="module", autouse=True)
def _quick_garbage_collection() -> Iterator[None]:
    """The original collects garbage at every start: 0.2 s each, unless what is imported stands aside."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def run(
    library: Any, folder: Path, model: Any, data: Any, eval_data: Any, options: Settings, **settings: Any
) -> tuple[Any, Any]:
    """A whole run of one library: the trainer and what `train()` returned."""
    settings = {"logging_steps": 1, "num_train_epochs": 1, "learning_rate": 1e-2, **settings}
    folder = folder / library.__name__
    trainer = tiny.build_trainer(folder, model, data, eval_data, library, options, **settings)
    trainer.remove_callback(library.PrinterCallback)  # the original's takes total_flos out of the result
    return trainer, trainer.train()


def train(
    library: Any,
    folder: Path,
    task: str,
    *,
    wrap: Callable[[list[Any]], Any] = list,
    options: Settings | None = None,
    **settings: Any,
) -> tuple[Any, Any]:
    """A whole run of one library on one of the tasks; each option is made for the library."""
    build_model, build_data = TASKS[task]
    rows = build_data()
    made = {name: make(library) for name, make in (options or {}).items()}
    model = None if "model_init" in made else build_model()
    return run(library, folder, model, wrap(rows), rows[:EVAL_ROWS], made, **settings)


def without_speed(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics in which a speed is only known to be a number."""
    return {
        key: type(value).__name__ if key.endswith(SPEED) else repr(value) for key, value in metrics.items()
    }


def assert_same_run(theirs: tuple[Any, Any], ours: tuple[Any, Any]) -> None:
    """Losses, rates, norms, metrics, weights and results are equal, and there are some."""
    (original, expected), (trainer, result) = theirs, ours
    history = [without_speed(entry) for entry in trainer.state.log_history]
    assert history == [without_speed(entry) for entry in original.state.log_history]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(set(losses)) > 1
    assert_same_weights(original.model, trainer.model)
    assert (result.global_step, result.training_loss) == (expected.global_step, expected.training_loss)
    assert without_speed(result.metrics) == without_speed(expected.metrics)
    for name in ("global_step", "max_steps", "epoch", "total_flos", "best_metric", "num_input_tokens_seen"):
        assert getattr(trainer.state, name) == getattr(original.state, name), name


def assert_same_weights(original: nn.Module, model: nn.Module) -> None:
    expected, weights = original.state_dict(), model.state_dict()
    assert list(weights) == list(expected)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def assert_equal_training(folder: Path, task: str, **case: Any) -> None:
    """Train with both libraries and compare."""
    assert_same_run(train(transformers, folder, task, **case), train(footplate, folder, task, **case))


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_alike(task: str, tmp_path: Path) -> None:
    assert_equal_training(tmp_path, task, num_train_epochs=2, eval_strategy="epoch")


@pytest.mark.parametrize("task", TASKS)
def test_accumulation_with_a_ragged_last_window_is_alike(task: str, tmp_path: Path) -> None:
    # 53 rows in batches of 3: 18 micro-batches, so the last window holds 2 of them and the last batch 2 rows
    assert_equal_training(
        tmp_path, task, num_train_epochs=2, gradient_accumulation_steps=4, per_device_train_batch_size=3
    )


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("task", ["bert", "gpt", "tokens", "gpt with LoRA", "multi-label"])
def test_label_smoothing_is_alike(task: str, accumulation: int, tmp_path: Path) -> None:
    assert_equal_training(
        tmp_path,
        task,
        label_smoothing_factor=0.1,
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=5,
        eval_strategy="epoch",
    )


SCHEDULES: dict[str, list[Settings]] = {
    "linear": [{}],
    "cosine": [{}, {"num_cycles": 1.5}],
    "cosine_with_restarts": [{"num_cycles": 2}],
    "polynomial": [{}, {"power": 2.0, "lr_end": 1e-3}],
    "constant": [{}],
    "constant_with_warmup": [{}],
    "inverse_sqrt": [{}, {"timescale": 5}],
    "reduce_lr_on_plateau": [{"patience": 0, "factor": 0.5, "threshold": 0.5}],
    "cosine_with_min_lr": [{"min_lr": 1e-3}, {"min_lr_rate": 0.3}],
    "cosine_warmup_with_min_lr": [{"min_lr": 1e-3}, {"min_lr_rate": 0.3, "warmup_lr_rate": 0.2}],
    "warmup_stable_decay": [
        {"num_decay_steps": 5},
        {"num_decay_steps": 4, "num_stable_steps": 6, "decay_type": "cosine", "min_lr_ratio": 0.2},
        {"num_decay_steps": 4, "warmup_type": "cosine", "decay_type": "1-sqrt"},
    ],
    "greedy": [
        {"patience": 0, "factor": 0.5},
        {"patience": 1, "factor": 0.7, "min_lr": 1e-4, "max_lr": 0.5, "smooth": True, "window_size": 3},
    ],
}


def test_every_schedule_of_the_original_is_compared() -> None:
    names = {schedule.value for schedule in transformers.SchedulerType}
    assert set(SCHEDULES) == names == {schedule.value for schedule in footplate.SchedulerType}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(name, choice, id=f"{name} {json.dumps(choice) if choice else ''}".strip())
        for name, choices in SCHEDULES.items()
        for choice in choices
    ],
)
def test_schedules_are_alike(name: str, options: Settings, tmp_path: Path) -> None:
    follows_metric = name in ("reduce_lr_on_plateau", "greedy")
    assert_equal_training(
        tmp_path,
        "regression",
        num_train_epochs=2,
        learning_rate=0.3,
        warmup_steps=3,
        lr_scheduler_type=name,
        lr_scheduler_kwargs=options,
        eval_strategy="steps" if follows_metric else "no",
        eval_steps=2,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"warmup_steps": 4},
        {"warmup_steps": 0.3},
        {"warmup_steps": 0.3, "max_steps": 5},
        {"warmup_steps": 40},
        {"lr_scheduler_type": "cosine", "warmup_steps": 0.5, "gradient_accumulation_steps": 3},
    ],
    ids=str,
)
def test_warm_up_is_alike(settings: Settings, tmp_path: Path) -> None:
    assert_equal_training(tmp_path, "regression", **settings)


def test_the_old_warmup_ratio_is_a_share_of_the_steps(tmp_path: Path) -> None:
    theirs = train(transformers, tmp_path, "regression", warmup_steps=0.3)
    assert_same_run(theirs, train(footplate, tmp_path, "regression", warmup_ratio=0.3))


OPTIMIZERS: list[Settings] = [
    {"optim": "adamw_torch"},
    {"optim": "adamw_torch", "adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 1e-4},
    {"optim": "adamw_torch_fused"},
    {"optim": "adafactor"},
    {"optim": "sgd"},
    {"optim": "sgd", "optim_args": "momentum=0.9, nesterov=true"},
    {"optim": "adagrad"},
    {"optim": "adagrad", "optim_args": "lr_decay=0.1,eps=1e-6"},
    {"optim": "rmsprop"},
    {"optim": "rmsprop", "optim_args": "momentum=0.5,alpha=0.9,centered=true"},
]


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=str)
def test_optimizers_are_alike(settings: Settings, tmp_path: Path) -> None:
    assert_equal_training(tmp_path, "bert", weight_decay=0.1, **settings)


def test_a_given_optimizer_and_schedule_are_alike(tmp_path: Path) -> None:
    def train_with_own(library: Any) -> tuple[Any, Any]:
        model, data = tiny.bert_classifier(), tiny.classification_data()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        return run(library, tmp_path, model, data, None, {"optimizers": (optimizer, schedule)})

    assert_same_run(train_with_own(transformers), train_with_own(footplate))


def test_a_given_optimizer_class_is_alike(tmp_path: Path) -> None:
    choice = (torch.optim.Adamax, {"lr": 1e-2})
    assert_equal_training(tmp_path, "bert", options={"optimizer_cls_and_kwargs": lambda library: choice})


DURATIONS: list[Settings] = [
    {"max_steps": 5},
    {"max_steps": 10},
    {"max_steps": 3, "gradient_accumulation_steps": 4},
    {"num_train_epochs": 1.5},
    {"num_train_epochs": 0.3},
    {"num_train_epochs": 2.25, "gradient_accumulation_steps": 2},
    {"num_train_epochs": 3},
    {"dataloader_drop_last": True, "num_train_epochs": 2},
    {"per_device_train_batch_size": 60, "num_train_epochs": 3},
    {"per_device_train_batch_size": 1, "max_steps": 4},
]


@pytest.mark.parametrize("settings", DURATIONS, ids=str)
def test_durations_are_alike(settings: Settings, tmp_path: Path) -> None:
    assert_equal_training(tmp_path, "bert", eval_strategy="epoch", **settings)


LOADING: list[Settings] = [
    {"dataloader_num_workers": 0, "num_train_epochs": 2},
    {"dataloader_num_workers": 2, "num_train_epochs": 2},
    {"dataloader_num_workers": 2, "max_steps": 4, "dataloader_persistent_workers": True},
    {"seed": 7},
    {"data_seed": 9},
    {"seed": 7, "data_seed": 9, "num_train_epochs": 2},
    {"train_sampling_strategy": "sequential"},
]


@pytest.mark.parametrize("settings", LOADING, ids=str)
def test_order_and_workers_are_alike(settings: Settings, tmp_path: Path) -> None:
    assert_equal_training(tmp_path, "bert", eval_strategy="epoch", **settings)


NUMERICS: list[Settings] = [
    {"bf16": True},
    {"bf16": True, "gradient_accumulation_steps": 3, "label_smoothing_factor": 0.1},
    {"gradient_checkpointing": True},
    {"activation_checkpointing": True},
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
    {"neftune_noise_alpha": 5},
    {"weight_decay": 0.5},
    {"max_grad_norm": 0},
    {"max_grad_norm": 0.05},
    {"max_grad_norm": 1e6, "gradient_accumulation_steps": 2},
    {"auto_find_batch_size": True},
]


@pytest.mark.parametrize("task", ["bert", "gpt"])
@pytest.mark.parametrize("settings", NUMERICS, ids=str)
def test_numerics_are_alike(settings: Settings, task: str, tmp_path: Path) -> None:
    assert_equal_training(tmp_path, task, eval_strategy="epoch", **settings)


def test_neftune_with_an_adapter_is_alike(tmp_path: Path) -> None:
    assert_equal_training(tmp_path, "gpt with LoRA", neftune_noise_alpha=5)


REPORTING: list[Settings] = [
    {"logging_steps": 2},
    {"logging_steps": 3, "logging_first_step": True},
    {"logging_steps": 0.3, "num_train_epochs": 2},
    {"logging_strategy": "epoch", "num_train_epochs": 3},
    {"logging_strategy": "epoch", "logging_first_step": True, "num_train_epochs": 3},
    {"eval_strategy": "steps", "eval_steps": 3},
    {"eval_strategy": "steps", "eval_steps": 0.4, "num_train_epochs": 2},
    {"eval_strategy": "steps", "logging_steps": 2},
    {"eval_strategy": "epoch", "num_train_epochs": 2},
    {"eval_strategy": "steps", "eval_steps": 2, "eval_delay": 4},
    {"eval_strategy": "epoch", "eval_delay": 2, "num_train_epochs": 3},
    {"eval_strategy": "epoch", "eval_on_start": True, "num_train_epochs": 2},
    {"eval_strategy": "no", "eval_on_start": True},
    {"eval_strategy": "epoch", "per_device_eval_batch_size": 5},
    {"eval_strategy": "epoch", "per_device_eval_batch_size": 5, "dataloader_drop_last": True},
    {"eval_strategy": "epoch", "per_device_eval_batch_size": 2, "eval_accumulation_steps": 2},
    {"eval_strategy": "epoch", "prediction_loss_only": True},
    {"eval_strategy": "epoch", "bf16_full_eval": True},
    {"include_num_input_tokens_seen": True, "logging_steps": 2},
    {"include_num_input_tokens_seen": "all", "eval_strategy": "epoch"},
    {"include_num_input_tokens_seen": "non_padding"},
    {"eval_strategy": "steps", "eval_steps": 3, "metric_for_best_model": "accuracy", "num_train_epochs": 2},
]


@pytest.mark.parametrize("settings", REPORTING, ids=str)
def test_reports_are_alike(settings: Settings, tmp_path: Path) -> None:
    options = {"compute_metrics": lambda library: tiny.accuracy}
    assert_equal_training(tmp_path, "bert", options=options, **settings)


def test_non_padding_tokens_are_counted_alike(tmp_path: Path) -> None:
    def with_padding(rows: list[Any]) -> list[Any]:
        return [
            {**row, "attention_mask": [1] * (6 + i % 6) + [0] * (6 - i % 6)} for i, row in enumerate(rows)
        ]

    settings = {"include_num_input_tokens_seen": "non_padding", "gradient_accumulation_steps": 2}
    assert_equal_training(tmp_path, "bert", wrap=with_padding, **settings)


def test_a_model_without_its_main_input_counts_no_tokens_alike(tmp_path: Path) -> None:
    assert_equal_training(tmp_path, "regression", include_num_input_tokens_seen=True)


def test_the_best_model_is_loaded_alike(tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    theirs, ours = (
        train(library, tmp_path, "bert", load_best_model_at_end=True, learning_rate=0.1, **settings)
        for library in (transformers, footplate)
    )
    assert_same_run(theirs, ours)
    assert ours[0].state.best_global_step == theirs[0].state.best_global_step
    assert ours[0].state.best_global_step < ours[0].state.global_step
    best = [Path(trainer.state.best_model_checkpoint).name for trainer, _ in (theirs, ours)]
    assert best[0] == best[1]


@pytest.mark.parametrize("strategy", ["steps", "epoch", "best"])
def test_checkpoints_fall_on_the_same_steps(strategy: str, tmp_path: Path) -> None:
    for library in (transformers, footplate):
        settings: Settings = {"save_steps": 5, "eval_strategy": "epoch", "metric_for_best_model": "loss"}
        train(library, tmp_path, "regression", num_train_epochs=2, save_strategy=strategy, **settings)
    expected, found = (
        sorted(path.name for path in (tmp_path / name).iterdir() if path.is_dir())
        for name in ("transformers", "footplate")
    )
    assert found == expected != []


class Stream(torch.utils.data.IterableDataset[Any]):
    """Rows one after the other, without a length."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


class SizedStream(Stream):
    """A stream that knows its length."""

    def __len__(self) -> int:
        return len(self.rows)


def as_table(rows: list[Any]) -> Any:
    """A `datasets.Dataset` with a column that forward does not take."""
    import datasets

    return datasets.Dataset.from_list([{**row, "text": "unused"} for row in rows])


def as_stream_table(rows: list[Any]) -> Any:
    return as_table(rows).to_iterable_dataset()


def with_unused_entries(rows: list[Any]) -> list[Any]:
    return [{**row, "text": "unused", "weight": 3.0} for row in rows]


class Indexed(torch.utils.data.Dataset[Any]):
    """Rows by number; not a list."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@pytest.mark.parametrize(
    ("wrap", "settings"),
    [
        (Indexed, {"num_train_epochs": 2}),
        (as_table, {"num_train_epochs": 2}),
        (as_table, {"dataloader_num_workers": 2}),
        (with_unused_entries, {}),
        (Stream, {"max_steps": 5}),
        (Stream, {"max_steps": 16}),
        (Stream, {"max_steps": 4, "gradient_accumulation_steps": 7}),  # a whole pass; see below for less
        (SizedStream, {"num_train_epochs": 2}),
        (SizedStream, {"max_steps": 9, "gradient_accumulation_steps": 2}),
        (as_stream_table, {"max_steps": 9}),
        (as_stream_table, {"max_steps": 2, "gradient_accumulation_steps": 3}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_kinds_of_data_are_alike(
    wrap: Callable[[list[Any]], Any], settings: Settings, tmp_path: Path
) -> None:
    assert_equal_training(tmp_path, "bert", wrap=wrap, **settings)


@pytest.mark.parametrize("wrap", [Stream, SizedStream, as_table, as_stream_table])
def test_kinds_of_data_are_evaluated_alike(wrap: Callable[[list[Any]], Any], tmp_path: Path) -> None:
    data = wrap(tiny.classification_data(21))
    theirs, ours = (
        tiny.build_trainer(tmp_path, tiny.bert_classifier(), None, data, library).evaluate()
        for library in (transformers, footplate)
    )
    assert without_speed(ours) == without_speed(theirs)


def summed_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    logits = outputs["logits"].flatten(0, -2)
    total = nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum")
    return total / (num_items_in_batch if num_items_in_batch is not None else labels.ne(-100).sum())


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("task", ["bert", "tokens", "gpt"])
def test_a_loss_function_of_the_users_is_alike(task: str, accumulation: int, tmp_path: Path) -> None:
    assert_equal_training(
        tmp_path,
        task,
        options={"compute_loss_func": lambda library: summed_loss},
        gradient_accumulation_steps=accumulation,
        per_device_train_batch_size=3,
        eval_strategy="epoch",
    )


@pytest.mark.parametrize("settings", [{}, {"seed": 3}, {"num_train_epochs": 2}], ids=str)
def test_model_init_draws_the_same_weights(settings: Settings, tmp_path: Path) -> None:
    from transformers import BertForSequenceClassification

    config = tiny.bert_classifier().config
    options = {"model_init": lambda library: lambda: BertForSequenceClassification(config)}
    assert_equal_training(tmp_path, "bert", options=options, **settings)


def build_tokenizer() -> Any:
    from tokenizers import Tokenizer, models

    vocabulary = {"[PAD]": 0, "[MASK]": 1, "[CLS]": 2, "[SEP]": 3, **{f"w{k}": k for k in range(4, 50)}}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **special)


def test_padding_by_the_tokenizer_is_alike(tmp_path: Path) -> None:
    def shorten(rows: list[Any]) -> list[Any]:
        return [{**row, "input_ids": row["input_ids"][: 4 + i % 8]} for i, row in enumerate(rows)]

    options = {"processing_class": lambda library: build_tokenizer()}
    settings: Settings = {"include_num_input_tokens_seen": "non_padding"}
    assert_equal_training(tmp_path, "bert", wrap=shorten, options=options, **settings)


EVALUATIONS: dict[str, Settings] = {
    "loss only": {},
    "metrics": {"options": {"compute_metrics": tiny.accuracy}},
    "inputs and losses for metrics": {
        "options": {
            "compute_metrics": lambda seen: {"sum": float(seen.inputs.sum()), "losses": seen.losses.tolist()}
        },
        "include_for_metrics": ["inputs", "loss"],
    },
    "preprocessed logits": {
        "options": {
            "compute_metrics": lambda seen: {"mean": seen.predictions.mean()},
            "preprocess_logits_for_metrics": lambda logits, labels: logits.argmax(-1),
        }
    },
    "batches kept apart": {
        "options": {"compute_metrics": lambda seen: {"batches": len(seen.predictions)}},
        "eval_do_concat_batches": False,
    },
}


@pytest.mark.parametrize("name", EVALUATIONS)
@pytest.mark.parametrize("task", ["bert", "tokens", "gpt"])
def test_evaluations_without_training_are_alike(name: str, task: str, tmp_path: Path) -> None:
    build_model, build_data = TASKS[task]
    theirs, ours = (
        tiny.build_trainer(
            tmp_path,
            build_model(),
            None,
            build_data()[:13],
            library,
            per_device_eval_batch_size=4,
            **EVALUATIONS[name],
        )
        for library in (transformers, footplate)
    )
    assert without_speed(ours.evaluate()) == without_speed(theirs.evaluate())
    assert without_speed(ours.state.log_history[0]) == without_speed(theirs.state.log_history[0])


def test_metrics_batch_by_batch_are_alike(tmp_path: Path) -> None:
    def build_counter() -> Callable[..., dict[str, float]]:
        hits: list[float] = []

        def count(prediction: Any, compute_result: bool) -> dict[str, float]:
            hits.extend((prediction.predictions.argmax(-1) == prediction.label_ids).tolist())
            return {"accuracy": sum(hits) / len(hits), "rows": len(hits)} if compute_result else {}

        return count

    options = {"compute_metrics": lambda library: build_counter()}
    assert_equal_training(tmp_path, "bert", options=options, batch_eval_metrics=True, eval_strategy="epoch")


def test_evaluation_under_another_prefix_is_alike(tmp_path: Path) -> None:
    theirs, ours = (
        train(library, tmp_path, "bert", options={"compute_metrics": lambda library: tiny.accuracy})[0]
        for library in (transformers, footplate)
    )
    rows = tiny.classification_data()[30:]
    metrics = ours.evaluate(rows, metric_key_prefix="held_out")
    assert without_speed(metrics) == without_speed(theirs.evaluate(rows, metric_key_prefix="held_out"))
    assert {"held_out_loss", "held_out_accuracy"} <= set(metrics)


def train_with_several_sets(library: Any, folder: Path, **settings: Any) -> Any:
    rows = tiny.classification_data()
    sets = {"near": rows[:9], "far": rows[20:41]}
    settings = {"num_train_epochs": 2, "eval_strategy": "epoch", **settings}
    options = {"compute_metrics": tiny.accuracy}
    return run(library, folder, tiny.bert_classifier(), rows, sets, options, **settings)[0]


def test_several_eval_sets_give_the_same_numbers_under_the_same_keys(tmp_path: Path) -> None:
    original, trainer = (train_with_several_sets(library, tmp_path) for library in (transformers, footplate))
    expected = [without_speed(entry) for entry in original.state.log_history]
    history = [without_speed(entry) for entry in trainer.state.log_history]
    assert history == expected
    assert_same_weights(original.model, trainer.model)


def test_several_eval_sets_choose_the_same_best_model(tmp_path: Path) -> None:
    settings: Settings = {"metric_for_best_model": "eval_far_accuracy", "save_strategy": "epoch"}
    original, trainer = (
        train_with_several_sets(library, tmp_path, load_best_model_at_end=True, **settings)
        for library in (transformers, footplate)
    )
    for name in ("best_metric", "best_global_step"):
        assert getattr(trainer.state, name) == getattr(original.state, name)
    assert_same_weights(original.model, trainer.model)


def assert_same_prediction(theirs: Any, ours: Any) -> None:
    for expected, found in zip(theirs[:2], ours[:2], strict=True):
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = found if isinstance(found, tuple) else (found,)
        assert len(found) == len(expected)
        for left, right in zip(expected, found, strict=True):
            assert (left is None) == (right is None)
            np.testing.assert_array_equal(right, left, strict=True)
    assert without_speed(ours.metrics) == without_speed(theirs.metrics)


@pytest.mark.parametrize(
    "task", ["regression", "bert", "multi-label", "tokens", "spans", "gpt", "translation"]
)
def test_predictions_are_alike(task: str, tmp_path: Path) -> None:
    rows = TASKS[task][1]()[30:47]
    theirs, ours = (
        train(library, tmp_path, task, max_steps=3, per_device_eval_batch_size=4)[0].predict(rows)
        for library in (transformers, footplate)
    )
    assert_same_prediction(theirs, ours)
    assert len(ours.predictions[0] if isinstance(ours.predictions, tuple) else ours.predictions) == 17


@pytest.mark.parametrize("task", ["regression", "bert", "gpt"])
def test_predictions_without_labels_are_alike(task: str, tmp_path: Path) -> None:
    rows = [{key: row[key] for key in row if key != "labels"} for row in TASKS[task][1]()[:11]]
    theirs, ours = (
        train(library, tmp_path, task, max_steps=3, per_device_eval_batch_size=4)[0].predict(rows)
        for library in (transformers, footplate)
    )
    assert_same_prediction(theirs, ours)
    assert ours.label_ids is None
    assert "test_loss" not in ours.metrics


def test_predictions_of_different_lengths_are_padded_alike(tmp_path: Path) -> None:
    rows = [
        {key: value[: 4 + i // 4] for key, value in row.items()} for i, row in enumerate(tiny.token_data(19))
    ]
    options = {
        "compute_metrics": tiny.accuracy,
        "data_collator": transformers.DataCollatorForTokenClassification(build_tokenizer()),
    }
    theirs, ours = (
        tiny.build_trainer(
            tmp_path, token_classifier(), None, None, library, options, per_device_eval_batch_size=4
        ).predict(rows)
        for library in (transformers, footplate)
    )
    assert_same_prediction(theirs, ours)
    assert (ours.predictions == -100).any()


def test_hidden_outputs_are_left_out_alike(tmp_path: Path) -> None:
    rows = tiny.classification_data(9)
    theirs, ours = (
        tiny.build_trainer(
            tmp_path, tiny.bert_classifier(output_hidden_states=True), None, None, library
        ).predict(rows, ignore_keys=["hidden_states"])
        for library in (transformers, footplate)
    )
    assert_same_prediction(theirs, ours)
    assert isinstance(ours.predictions, np.ndarray)


def test_a_second_run_goes_on_alike(tmp_path: Path) -> None:
    def train_twice(library: Any) -> tuple[Any, Any]:
        trainer, _ = train(library, tmp_path, "bert")
        return trainer, trainer.train()

    assert_same_run(train_twice(transformers), train_twice(footplate))


def train_and_resume(library: Any, folder: Path, step: int) -> tuple[Any, Any]:
    settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": step, "eval_strategy": "epoch"}
    train(library, folder, "bert", **settings)
    rows = tiny.classification_data()
    settings.update(logging_steps=1, learning_rate=1e-2)
    output_dir = folder / library.__name__
    trainer = tiny.build_trainer(
        output_dir, tiny.bert_classifier(), rows, rows[:EVAL_ROWS], library, **settings
    )
    trainer.remove_callback(library.PrinterCallback)
    return trainer, trainer.train(resume_from_checkpoint=str(output_dir / f"checkpoint-{step}"))


def is_alive_without_its_name(library: Any, folder: Path) -> bool:
    """Whether a trainer outlives its last name, without the garbage collector's help."""
    rows = tiny.regression_data(16)
    trainer = tiny.build_trainer(folder, tiny.Regression(), rows, rows, library, eval_strategy="epoch")
    trainer.train()
    reference = weakref.ref(trainer)
    gc.disable()
    try:
        del trainer
        return reference() is not None
    finally:
        gc.enable()


@pytest.mark.parametrize("library", [transformers, footplate], ids=["transformers", "footplate"])
def test_a_trainer_is_freed_with_its_last_name(library: Any, tmp_path: Path) -> None:
    assert not is_alive_without_its_name(library, tmp_path)


def train_on_random_data(library: Any, folder: Path, **settings: Any) -> tuple[Any, Any]:
    """A model with dropout on masks that the collator draws."""
    rows = [{"input_ids": row[: 5 + i % 7]} for i, row in enumerate(tiny.token_rows(53))]
    collator = library.DataCollatorForLanguageModeling(build_tokenizer(), mlm_probability=0.4)
    settings = {"num_train_epochs": 2, "eval_strategy": "epoch", "gradient_accumulation_steps": 2, **settings}
    return run(library, folder, masked_model(), rows, rows[:13], {"data_collator": collator}, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_accumulation_steps": 1},
        {"gradient_accumulation_steps": 3},
        {"eval_strategy": "steps", "eval_steps": 3, "eval_on_start": True},
        {"dataloader_drop_last": True, "seed": 7},
    ],
    ids=str,
)
def test_masked_language_models_train_and_evaluate_alike(settings: Settings, tmp_path: Path) -> None:
    theirs, ours = (train_on_random_data(library, tmp_path, **settings) for library in LIBRARIES)
    assert_same_run(theirs, ours)


def augment(row: Any) -> Any:
    """A row with noise from each generator that data may draw from: another token, or another value."""
    chance = random.random() + float(np.random.rand()) + float(torch.rand(()))
    if "x" in row:
        return {**row, "x": row["x"] + chance}
    tokens = torch.as_tensor(row["input_ids"]).clone()
    tokens[int(torch.randint(0, len(tokens), ()))] = 5 + int(10 * chance)
    return {**row, "input_ids": tokens}


class Augmented(Indexed):
    """Rows that are drawn anew each time they are read."""

    def __getitem__(self, index: int) -> Any:
        return augment(self.rows[index])


class AugmentedStream(SizedStream):
    """The same, one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return map(augment, self.rows)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("wrap", [Augmented, AugmentedStream])
@pytest.mark.parametrize("task", ["regression", "bert"])
def test_random_augmentation_is_alike(task: str, wrap: Any, accumulation: int, tmp_path: Path) -> None:
    settings = {"num_train_epochs": 2, "gradient_accumulation_steps": accumulation}
    assert_equal_training(tmp_path, task, wrap=wrap, **settings)


# Differences on purpose: what differs, and that nothing else does.


def test_difference_random_masks_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    one, two = (
        train_on_random_data(footplate, tmp_path / str(count), dataloader_num_workers=count)
        for count in (1, 2)
    )
    assert_same_run(one, two)
    theirs = [
        train_on_random_data(transformers, tmp_path / str(count), dataloader_num_workers=count)[0]
        for count in (1, 2)
    ]
    losses = [[entry.get("loss") for entry in trainer.state.log_history] for trainer in theirs]
    assert losses[0] != losses[1]  # there, each worker has a seed of its own


@pytest.mark.parametrize("num_workers", [0, 2])
def test_difference_random_masks_are_the_same_after_a_resume(num_workers: int, tmp_path: Path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 3, "dataloader_num_workers": num_workers}
    straight, _ = train_on_random_data(footplate, tmp_path, **settings)
    rows = [{"input_ids": row[: 5 + i % 7]} for i, row in enumerate(tiny.token_rows(53))]
    collator = footplate.DataCollatorForLanguageModeling(build_tokenizer(), mlm_probability=0.4)
    settings.update(num_train_epochs=2, eval_strategy="epoch", gradient_accumulation_steps=2)
    settings.update(logging_steps=1, learning_rate=1e-2)
    folder = tmp_path / "footplate"
    resumed = tiny.build_trainer(
        folder, masked_model(), rows, rows[:13], options={"data_collator": collator}, **settings
    )
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
    history = [without_speed(entry) for entry in resumed.state.log_history]
    assert history == [without_speed(entry) for entry in straight.state.log_history]
    assert_same_weights(straight.model, resumed.model)


def test_difference_total_flos_stay_in_the_result_when_logs_are_printed(tmp_path: Path) -> None:
    theirs, ours = (
        tiny.build_trainer(tmp_path, tiny.Regression(), tiny.regression_data(), library=library)
        .train()
        .metrics
        for library in (transformers, footplate)
    )
    assert set(ours) - set(theirs) == {"total_flos"}


def test_difference_plain_modules_can_have_smoothed_labels(tmp_path: Path) -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(1, 3)

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            return {"logits": self.head(x[:, None])}

    rows = [{"x": torch.tensor(float(i % 3)), "labels": i % 3} for i in range(24)]
    settings: Settings = {"label_smoothing_factor": 0.1, "num_train_epochs": 3}
    with pytest.raises(AttributeError, match="config"):  # the original asks every model for its configuration
        run(transformers, tmp_path, Classifier(), rows, None, {}, **settings)
    trainer, _ = run(footplate, tmp_path, Classifier(), rows, None, {}, **settings)
    first = footplate.default_data_collator(
        [rows[i] for i in torch.randperm(24, generator=torch.Generator().manual_seed(42))[:8]]
    )
    logits, labels = Classifier()(first["x"])["logits"], first["labels"]
    expected = nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_difference_the_best_step_is_noted_where_nothing_is_saved(tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"}
    (original, _), (trainer, _) = (
        train(library, tmp_path, "regression", **settings) for library in (transformers, footplate)
    )
    assert trainer.state.best_metric == original.state.best_metric
    assert (original.state.best_global_step, trainer.state.best_global_step) == (None, 8)


def test_difference_evaluations_and_saves_may_fall_on_different_steps(tmp_path: Path) -> None:
    settings = {
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
    }
    with pytest.raises(ValueError, match="save and eval strategy to match"):
        train(transformers, tmp_path, "regression", **settings)
    trainer, _ = train(footplate, tmp_path, "regression", **settings)
    assert Path(trainer.state.best_model_checkpoint).name == f"checkpoint-{trainer.state.best_global_step}"
    assert trainer.evaluate()["eval_loss"] == trainer.state.best_metric


def test_difference_several_sets_have_a_joint_loss(tmp_path: Path) -> None:
    rows = tiny.classification_data()
    sets = {"near": rows[:9], "far": rows[20:41]}
    theirs, ours = (
        tiny.build_trainer(tmp_path, tiny.bert_classifier(), None, sets, library).evaluate()
        for library in (transformers, footplate)
    )
    assert set(ours) - set(theirs) == {"eval_loss"}
    assert ours["eval_loss"] == (ours["eval_near_loss"] * 9 + ours["eval_far_loss"] * 21) / 30


def count_micro_batches(library: Any, folder: Path, **settings: Any) -> list[int]:
    """How many micro-batches each update of a run is made of."""
    counts: Counter[int] = Counter()

    class Counting(library.Trainer):  # type: ignore[misc, name-defined]
        def training_step(self, *args: Any) -> Any:
            counts[self.state.global_step] += 1
            return super().training_step(*args)

    args = tiny.arguments(folder, library, **settings)
    Counting(model=tiny.Regression(), args=args, train_dataset=Stream(tiny.regression_data(53))).train()
    return [counts[step] for step in sorted(counts)]


def test_difference_a_window_that_a_stream_ends_in_is_an_update_of_its_own(tmp_path: Path) -> None:
    settings = {"max_steps": 4, "gradient_accumulation_steps": 4}
    # the original keeps the gradients of the 3 batches that are left and adds them to the next update
    assert count_micro_batches(transformers, tmp_path, **settings) == [4, 7, 7, 7]
    assert count_micro_batches(footplate, tmp_path, **settings) == [4, 3, 4, 3]


class SpoiledOnce(tiny.Regression):
    """Its fourth training loss is not a number."""

    num_calls = 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        outputs = super().forward(x, labels)
        self.num_calls += 1
        return {**outputs, "loss": outputs["loss"] * float("nan")} if self.num_calls == 4 else outputs


def test_difference_a_loss_that_is_not_a_number_is_not_hidden(tmp_path: Path) -> None:
    theirs, ours = (
        run(library, tmp_path, SpoiledOnce(), tiny.regression_data(), None, {}, max_steps=6, logging_steps=2)
        for library in (transformers, footplate)
    )
    expected, found = ([entry["loss"] for entry in run[0].state.log_history[:-1]] for run in (theirs, ours))
    assert np.isfinite(expected).all()
    assert found[0] == expected[0]
    assert np.isnan(found[1:]).tolist() == [False, True]  # the mean of the finite ones, if there are any
    assert [entry.get("nonfinite") for entry in ours[0].state.log_history] == [None, 2, 4, None]


def test_difference_the_mean_loss_of_a_resumed_run_is_over_all_of_it(tmp_path: Path) -> None:
    (original, _), (trainer, result) = (
        train_and_resume(library, tmp_path, 4) for library in (transformers, footplate)
    )
    *history, last = (without_speed(entry) for entry in trainer.state.log_history)
    *expected, expected_last = (without_speed(entry) for entry in original.state.log_history)
    assert history == expected
    assert {key for key in last if last[key] != expected_last[key]} == {"train_loss"}
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert result.training_loss == pytest.approx(sum(losses) / 14, rel=1e-12)
    assert_same_weights(original.model, trainer.model)


def test_difference_a_run_resumed_between_two_epochs_is_the_straight_one(tmp_path: Path) -> None:
    settings = {"num_train_epochs": 2, "eval_strategy": "epoch"}
    straight, expected = train(transformers, tmp_path / "straight", "bert", **settings)
    (original, _), resumed = (train_and_resume(library, tmp_path, 7) for library in (transformers, footplate))
    assert_same_run((straight, expected), resumed)
    # the checkpoint comes before the epoch's end: the original never evaluates that epoch, and goes on with
    # other random numbers
    assert len(original.state.log_history) == len(straight.state.log_history) - 1
