"""What cannot work is refused before the first update, says what to change, and leaves earlier work alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import tiny
from footplate import EvalPrediction, Trainer, TrainerCallback, TrainingArguments, default_data_collator

DATA = tiny.regression_data(16)


JOURNAL = ("events.jsonl", "report.html", "log_history.csv")  # they tell of every run, refused or not


def hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in JOURNAL)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """An output folder with the checkpoints of an earlier run."""
    arguments = tiny.arguments(tmp_path, max_steps=4, save_strategy="steps", save_steps=2)
    Trainer(tiny.Regression(), arguments, train_dataset=DATA).train()
    return tmp_path


class CountsUpdates(TrainerCallback):
    def __init__(self) -> None:
        self.count = 0

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.count += 1


def run(folder: Path, model: Any = None, *, resume: Any = None, trainer: Any = None, **settings: Any) -> None:
    """Build and train, with arguments for the Trainer in `trainer` and the rest as settings."""
    given = {"train_dataset": DATA, **(trainer or {})}
    saving = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "max_steps": 2}
    arguments = tiny.arguments(folder, **{**saving, **settings})
    if model is None and "model_init" not in given:
        model = tiny.Regression()
    Trainer(model, arguments, **given).train(resume_from_checkpoint=resume)


def assert_refused(
    folder: Path, error: type[Exception], *fragments: str, action: Callable[..., Any] = run, **call: Any
) -> str:
    """The call raises, says all the fragments, makes no update, and every earlier file is as it was."""
    before, updates = hashes(folder), CountsUpdates()
    if action is run:
        extras = call.setdefault("trainer", {})
        extras.setdefault("callbacks", [updates])
    with pytest.raises(error) as caught:
        action(folder, **call)
    text = str(caught.value)
    missing = [fragment for fragment in fragments if fragment not in text]
    assert not missing, f"{missing} not in: {text}"
    assert updates.count == 0
    assert hashes(folder) == before
    return text


# ---- settings ----

SETTINGS: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "unknown, near a known one": (
        {"learning_rat": 1e-3},
        TypeError,
        ("TrainingArguments", "'learning_rat'", "Did you mean 'learning_rate'?"),
    ),
    "unknown, near an old name": (
        {"evaluation_stratgy": "steps"},
        TypeError,
        ("'evaluation_stratgy'", "Did you mean"),
    ),
    "unknown, near nothing": ({"zzz_qqq": 1}, TypeError, ("'zzz_qqq'",)),
    "batch size 0": (
        {"per_device_train_batch_size": 0},
        ValueError,
        ("per_device_train_batch_size=0", "1 or more"),
    ),
    "eval batch size 0": (
        {"per_device_eval_batch_size": 0},
        ValueError,
        ("per_device_eval_batch_size=0", "1 or more"),
    ),
    "accumulation 0": (
        {"gradient_accumulation_steps": 0},
        ValueError,
        ("gradient_accumulation_steps=0", "1 or more"),
    ),
    "half an update": ({"max_steps": 2.5}, ValueError, ("max_steps=2.5", "whole number")),
    "best model without evaluation": (
        {"load_best_model_at_end": True},
        ValueError,
        ("load_best_model_at_end=True", "eval_strategy='no'", "'steps' or 'epoch'"),
    ),
    "saving the best without evaluation": (
        {"save_strategy": "best"},
        ValueError,
        ("save_strategy='best'", "eval_strategy='no'", "'steps' or 'epoch'"),
    ),
    "plateau without evaluation": (
        {"lr_scheduler_type": "reduce_lr_on_plateau"},
        ValueError,
        ("lr_scheduler_type='reduce_lr_on_plateau'", "eval_strategy"),
    ),
    "unknown strategy": (
        {"eval_strategy": "step"},
        ValueError,
        ("eval_strategy='step'", "Did you mean 'steps'?", "['no', 'steps', 'epoch']"),
    ),
    "no steps between logs": (
        {"logging_steps": 0},
        ValueError,
        ("logging_steps=0", "logging_strategy='steps'"),
    ),
    "two precisions": ({"fp16": True, "bf16": True}, ValueError, ("fp16=True", "bf16=True", "False")),
    "float16 on the CPU": ({"fp16": True}, ValueError, ("fp16=True", "CPU", "bf16=True")),
    "workers that are not there": (
        {"dataloader_prefetch_factor": 2},
        ValueError,
        ("dataloader_prefetch_factor=2", "dataloader_num_workers=0"),
    ),
    "weights that are not there": (
        {"train_sampling_strategy": "weighted"},
        ValueError,
        ("train_sampling_strategy='weighted'", "sample_weights"),
    ),
    "unknown policy": (
        {"on_nonfinite": "ignore"},
        ValueError,
        ("on_nonfinite='ignore'", "'warn'", "'skip'", "'raise'"),
    ),
    "unknown optimizer": ({"optim": "adamw_toch"}, ValueError, ("optim='adamw_toch'", "adamw_torch")),
    "smoothing beyond one": (
        {"label_smoothing_factor": 1.5},
        ValueError,
        ("label_smoothing_factor=1.5", "from 0 to 1"),
    ),
    "both names of one setting": (
        {"evaluation_strategy": "steps", "eval_strategy": "epoch"},
        ValueError,
        ("evaluation_strategy", "eval_strategy"),
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_setting_that_cannot_work_is_named_with_what_is_allowed(workplace, case):
    settings, error, fragments = SETTINGS[case]
    assert_refused(workplace, error, *fragments, **settings)


NOT_IN_THIS_VERSION: dict[str, dict[str, Any]] = {
    "deepspeed={'zero_optimization'": {"deepspeed": {"zero_optimization": {"stage": 2}}}
}


@pytest.mark.parametrize("named", NOT_IN_THIS_VERSION)
def test_what_this_version_does_not_do_is_refused_and_not_ignored(workplace, named):
    setting = named.partition("=")[0]
    assert_refused(
        workplace,
        NotImplementedError,
        named,
        "not in this version of footplate",
        f"Leave {setting} unset",
        **NOT_IN_THIS_VERSION[named],
    )


def test_shards_for_one_process_are_refused_and_not_ignored(workplace):
    assert_refused(workplace, ValueError, "this process is alone", "torchrun", "leave fsdp unset", fsdp=True)


# ---- what the Trainer is handed ----


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        while True:
            yield from DATA


def bare_encoder() -> nn.Module:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    return BertModel(BertConfig(vocab_size=50, **sizes))


def frozen() -> nn.Module:
    return tiny.Regression().requires_grad_(False)


def test_a_model_of_the_wrong_type_is_refused(workplace):
    assert_refused(workplace, TypeError, "`model`", "torch.nn.Module", "str", model="bert-base-uncased")
    assert_refused(workplace, TypeError, "`model`", "torch.nn.Module", "type", model=tiny.Regression)


def test_a_model_without_a_head_is_refused(workplace):
    given = {"train_dataset": tiny.classification_data(8)}
    assert_refused(
        workplace, ValueError, "BertModel", "no loss", "AutoModelFor", model=bare_encoder(), trainer=given
    )


def test_a_model_without_a_head_trains_on_a_loss_of_the_users_own(tmp_path):
    class Contrastive(Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any
        ) -> Any:
            outputs = model(**inputs)
            loss = outputs.pooler_output.var()
            return (loss, outputs) if return_outputs else loss

    rows = [{"input_ids": row["input_ids"]} for row in tiny.classification_data(8)]
    arguments = tiny.arguments(tmp_path, max_steps=1)
    assert Contrastive(bare_encoder(), arguments, train_dataset=rows).train().global_step == 1
    by_function = Trainer(
        bare_encoder(),
        arguments,
        train_dataset=rows,
        compute_loss_func=lambda outputs, labels: outputs[1].var(),
    )
    assert by_function.train().global_step == 1


def test_model_and_model_init_exclude_each_other(workplace):
    given = {"model_init": tiny.Regression}
    assert_refused(
        workplace, ValueError, "both", "`model`", "`model_init`", model=tiny.Regression(), trainer=given
    )


def test_one_of_model_and_model_init_is_needed(workplace):
    with pytest.raises(ValueError, match="neither of `model` and `model_init`"):
        Trainer(args=tiny.arguments(workplace), train_dataset=DATA)


def test_a_model_init_that_returns_nothing_is_refused(workplace):
    assert_refused(
        workplace, RuntimeError, "`model_init` returned None", trainer={"model_init": lambda: None}
    )


def test_a_frozen_model_is_refused(workplace):
    assert_refused(workplace, ValueError, "Regression", "requires_grad=True", "Unfreeze", model=frozen())


@pytest.mark.parametrize("arguments", [{"output_dir": "x"}, "output"], ids=["dict", "text"])
def test_arguments_of_the_wrong_type_are_refused(arguments):
    with pytest.raises(TypeError, match=r"`args`.*TrainingArguments"):
        Trainer(tiny.Regression(), arguments, train_dataset=DATA)


def test_a_collator_that_cannot_be_called_is_refused(workplace):
    assert_refused(
        workplace, TypeError, "`data_collator`", "callable", "dict", trainer={"data_collator": {"a": 1}}
    )


def test_two_sources_of_the_optimizer_are_refused(workplace):
    model = tiny.Regression()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"optimizers": (sgd, None), "optimizer_cls_and_kwargs": (torch.optim.SGD, {"lr": 0.1})}
    assert_refused(
        workplace, RuntimeError, "`optimizers`", "`optimizer_cls_and_kwargs`", model=model, trainer=given
    )


def test_an_optimizer_of_another_model_is_refused_with_model_init(workplace):
    sgd = torch.optim.SGD(tiny.Regression().parameters(), lr=0.1)
    given = {"model_init": tiny.Regression, "optimizers": (sgd, None)}
    assert_refused(workplace, RuntimeError, "`model_init`", "`optimizers`", trainer=given)


@pytest.mark.parametrize("settings", [{"eval_strategy": "epoch"}, {"eval_on_start": True}])
def test_evaluation_without_data_is_refused(workplace, settings):
    ((setting, value),) = settings.items()
    assert_refused(workplace, ValueError, f"{setting}={value!r}", "`eval_dataset`", **settings)


def test_training_and_evaluating_without_data_say_what_is_missing(tmp_path):
    trainer = Trainer(tiny.Regression(), tiny.arguments(tmp_path))
    with pytest.raises(ValueError, match="`train_dataset`"):
        trainer.train()
    with pytest.raises(ValueError, match="`eval_dataset`"):
        trainer.evaluate()


def test_an_empty_training_set_is_refused(workplace):
    assert_refused(workplace, ValueError, "empty", "train_dataset", trainer={"train_dataset": []})


def test_an_empty_table_is_refused(workplace):
    from datasets import Dataset as Table

    empty = Table.from_dict({"x": [], "labels": []})
    assert_refused(workplace, ValueError, "empty", "train_dataset", trainer={"train_dataset": empty})


def test_a_training_set_smaller_than_a_batch_is_refused_where_short_batches_are_dropped(workplace):
    assert_refused(
        workplace,
        ValueError,
        "dataloader_drop_last=True",
        "per_device_train_batch_size",
        trainer={"train_dataset": DATA[:3]},
        dataloader_drop_last=True,
    )


def test_an_empty_stream_is_refused(workplace):
    class Empty(IterableDataset):
        def __iter__(self) -> Any:
            return iter(())

    assert_refused(workplace, ValueError, "train_dataset", trainer={"train_dataset": Empty()})


@pytest.mark.parametrize("sets", [[], {"good": DATA, "bad": []}], ids=["one", "one of several"])
def test_an_empty_evaluation_set_is_refused(workplace, sets):
    assert_refused(
        workplace, ValueError, "eval_dataset", "empty", trainer={"eval_dataset": sets}, eval_strategy="epoch"
    )


def test_a_stream_without_max_steps_is_refused(workplace):
    given = {"train_dataset": Endless()}
    assert_refused(workplace, ValueError, "Endless", "no length", "max_steps", trainer=given, max_steps=-1)


def test_a_forward_that_names_no_column_of_the_data_is_refused(workplace):
    rows = [{"features": row["x"], "target": row["labels"]} for row in DATA]
    fragments = (
        "Regression.forward",
        "'features'",
        "'target'",
        "'x'",
        "remove_unused_columns=False",
        "keep_columns",
    )
    assert_refused(workplace, ValueError, *fragments, trainer={"train_dataset": rows})


def test_a_forward_that_names_no_column_of_a_table_is_refused(workplace):
    from datasets import Dataset as Table

    rows = Table.from_dict({"features": [1.0, 2.0], "target": [1.0, 2.0]})
    fragments = ("Regression.forward", "'features'", "'target'", "'x'", "remove_unused_columns=False")
    assert_refused(workplace, ValueError, *fragments, trainer={"train_dataset": rows})


@pytest.mark.parametrize("setting", ["train_metrics_batches", "batch_eval_metrics"])
def test_metrics_that_cannot_be_computed_are_refused(workplace, setting):
    given = {} if setting == "train_metrics_batches" else {"compute_metrics": lambda prediction: {}}
    assert_refused(workplace, ValueError, f"{setting}=", "compute_metrics", trainer=given, **{setting: 1})


def test_train_takes_no_unknown_argument(tmp_path):
    trainer = Trainer(tiny.Regression(), tiny.arguments(tmp_path), train_dataset=DATA)
    with pytest.raises(TypeError, match="'resume'"):
        trainer.train(resume=True)


# ---- mistakes that used to end inside of something else ----


class TakesOne(nn.Module):
    """Without a loss: the samples' last entry has no place in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> Any:
        return self.weight * x


class TakesKeywords(TakesOne):
    def forward(self, labels: Any = None, **inputs: Any) -> Any:  # type: ignore[override]
        return {"loss": (self.weight * inputs["x"] - labels).square().mean()}


class OtherName(TakesOne):
    def forward(self, features: Any, labels: Any = None) -> Any:  # type: ignore[override]
        return {"loss": (self.weight * features - labels).square().mean()}


class LossPerRow(TakesOne):
    def forward(self, x: torch.Tensor, labels: Any = None) -> Any:  # type: ignore[override]
        return {"loss": (self.weight * x - labels).square()}


def keep_rows(rows: list[Any]) -> list[Any]:
    return rows


def forget(rows: list[Any]) -> None:
    pass


def no_loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> None:
    pass


def forget_labels_of(rows: list[Any]) -> Any:
    return {"x": torch.stack([row["x"] for row in rows])}


def loss_as_number(outputs: Any, labels: Any) -> float:
    return (outputs["logits"] - labels).square().mean().item()


PAIRS = [(row["x"], row["labels"]) for row in DATA]
TABLE_ROWS = {"x": [1.0, 2.0, 3.0, 4.0], "labels": [1.0, 2.0, 3.0, 4.0]}


def table() -> Any:
    from datasets import Dataset as Table

    return Table.from_dict(TABLE_ROWS)


MISTAKES: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "a sample is None": (
        tiny.Regression,
        {"train_dataset": [*DATA[:3], None]},
        ValueError,
        ("Sample 3 of the dataset is None", "__getitem__"),
    ),
    "all samples are None": (
        tiny.Regression,
        {"train_dataset": [None] * 8},
        ValueError,
        ("of the dataset is None", "__getitem__"),
    ),
    "a tuple is None": (
        tiny.Regression,
        {"train_dataset": [*PAIRS[:3], None]},
        ValueError,
        ("Sample 3 of the dataset is None", "__getitem__"),
    ),
    "a sample is None, with a collator of the user's": (
        tiny.Regression,
        {"train_dataset": [*DATA[:3], None], "data_collator": forget_labels_of},
        ValueError,
        ("Sample 3 of the dataset is None", "__getitem__"),
    ),
    "a loader as dataset": (
        tiny.Regression,
        {"train_dataset": DataLoader(DATA, batch_size=2)},
        TypeError,
        ("The training set is a DataLoader", "loader.dataset", "get_train_dataloader"),
    ),
    "tuples without a loss": (
        TakesOne,
        {"train_dataset": PAIRS},
        TypeError,
        ("A batch of 2 entries", "TakesOne.forward takes ['x']", "tuples", "compute_loss_func"),
    ),
    "a collator that returns the samples": (
        tiny.Regression,
        {"data_collator": keep_rows},
        TypeError,
        ("A batch is a list of 4 samples", "data_collator", "dictionary of tensors"),
    ),
    "a collator that returns nothing": (
        tiny.Regression,
        {"data_collator": forget},
        TypeError,
        ("A batch is None", "data_collator", "`return`"),
    ),
    "a loss for each row": (
        LossPerRow,
        {},
        ValueError,
        ("The loss has shape (4,)", "loss.mean()", "reduction"),
    ),
    "a column that **kwargs does not name": (
        TakesKeywords,
        {},
        ValueError,
        ("forward looked for 'x'", "was dropped", "**kwargs names no column", "remove_unused_columns=False"),
    ),
    "a column of a table that **kwargs does not name": (
        TakesKeywords,
        {"train_dataset": table()},
        ValueError,
        ("forward looked for 'x'", "was dropped", "remove_unused_columns=False"),
    ),
    "a column of another name": (
        OtherName,
        {},
        TypeError,
        ("missing a required argument: 'features'", "['x'] were dropped", "Rename columns"),
    ),
    "a loss function without return": (
        tiny.Regression,
        {"compute_loss_func": no_loss},
        TypeError,
        ("no_loss returned None", "as a tensor", "`return`"),
    ),
    "a loss function that returns a number": (
        tiny.Regression,
        {"compute_loss_func": loss_as_number},
        TypeError,
        ("loss_as_number returned a loss of type float", ".item()"),
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_gets_advice_before_the_first_update(workplace, case):
    model, given, error, fragments = MISTAKES[case]
    assert_refused(
        workplace, error, *fragments, model=model(), trainer=dict(given), per_device_train_batch_size=4
    )


def test_a_column_that_forward_may_have_wanted_is_named_where_forward_fails(tmp_path, caplog):
    class AsksForIt(TakesOne):
        def forward(self, labels: Any = None, **inputs: Any) -> Any:  # type: ignore[override]
            return {"loss": (self.weight * inputs.get("x") - labels).square().mean()}

    with pytest.raises(TypeError, match="NoneType"):  # the error is forward's own
        run(tmp_path, AsksForIt())
    assert "If it needs one of the columns ['x']: they were dropped" in caplog.text


@pytest.mark.parametrize(
    ("returned", "fragments"),
    [
        (lambda loss: None, ("compute_loss returned None", "(loss, outputs)", "`return`")),
        (lambda loss: loss.item(), ("compute_loss returned a loss of type float", ".item()")),
        (lambda loss: {"loss": loss}, ("compute_loss returned a loss of type dict",)),
    ],
)
def test_a_compute_loss_that_returns_no_loss_is_refused(tmp_path, returned, fragments):
    class Own(Trainer):
        def compute_loss(
            self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any
        ) -> Any:
            return returned(model(**inputs)["loss"])

    updates = CountsUpdates()
    trainer = Own(tiny.Regression(), tiny.arguments(tmp_path), train_dataset=DATA, callbacks=[updates])
    with pytest.raises(TypeError) as caught:
        trainer.train()
    assert not [fragment for fragment in fragments if fragment not in str(caught.value)]
    assert updates.count == 0


def test_a_loader_is_refused_for_evaluation_too_unless_the_user_reads_it(tmp_path):
    loader = DataLoader(DATA, batch_size=4)
    trainer = Trainer(tiny.Regression(), tiny.arguments(tmp_path), eval_dataset=loader)
    with pytest.raises(TypeError, match="evaluation set is a DataLoader"):
        trainer.evaluate()

    class ReadsIt(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.train_dataset

    arguments = tiny.arguments(tmp_path, max_steps=2)
    assert ReadsIt(tiny.Regression(), arguments, train_dataset=loader).train().global_step == 2


def test_a_dictionary_of_training_sets_is_refused_and_one_of_rows_by_number_trains(tmp_path):
    rows = tiny.regression_data(16)
    arguments = tiny.arguments(tmp_path, max_steps=2)
    with pytest.raises(TypeError, match=r"training set is a dictionary \(one, other\)"):
        Trainer(tiny.Regression(), arguments, train_dataset={"one": rows, "other": rows}).train()
    by_number = {number: rows[number] for number in range(16)}
    assert Trainer(tiny.Regression(), arguments, train_dataset=by_number).train().global_step == 2


def test_a_loss_of_one_value_with_a_dimension_trains(tmp_path):
    class KeepsADimension(LossPerRow):
        def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
            return {"loss": super().forward(x, labels)["loss"].mean()[None]}

    given = {"train_dataset": DATA}
    trainer = Trainer(KeepsADimension(), tiny.arguments(tmp_path, max_steps=2), **given)
    assert trainer.train().global_step == 2


def test_a_collator_that_leaves_out_samples_that_are_none_works(tmp_path):
    def skip_missing(rows: list[Any]) -> Any:
        return default_data_collator([row for row in rows if row is not None])

    given = {"train_dataset": [*DATA[:3], None, *DATA[3:7]], "data_collator": skip_missing}
    run(tmp_path, trainer=given, per_device_train_batch_size=4)


@pytest.mark.parametrize("below", ["", "deeper/run"], ids=["the file itself", "below a file"])
def test_an_output_dir_that_is_a_file_is_refused(tmp_path, below):
    file = tmp_path / "taken"
    file.write_text("notes")
    with pytest.raises(ValueError, match=r"output_dir=.*file.*Set output_dir to a folder"):
        Trainer(tiny.Regression(), tiny.arguments(file / below), train_dataset=DATA)
    assert file.read_text() == "notes"


def test_arguments_in_the_wrong_order_are_named(tmp_path):
    model, arguments = tiny.Regression(), tiny.arguments(tmp_path)
    with pytest.raises(TypeError, match=r"first argument of Trainer is `model`.*TrainingArguments.*by name"):
        Trainer(arguments, model, train_dataset=DATA)
    for data in (DATA, Endless(), table(), DataLoader(DATA)):
        with pytest.raises(TypeError, match=r"second argument of Trainer is `args`, and it is data.*by name"):
            Trainer(model, data)
        with pytest.raises(TypeError, match=r"third argument of Trainer is `data_collator`, and it is data"):
            Trainer(model, arguments, data)


def other_optimizer() -> Any:
    return torch.optim.SGD(tiny.Regression().parameters(), lr=0.1)


def test_an_optimizer_over_another_models_parameters_is_refused(workplace):
    given = {"optimizers": (other_optimizer(), None)}
    fragments = ("None of the 2 parameters in SGD", "(Regression)", "`optimizers`")
    assert_refused(workplace, ValueError, *fragments, trainer=given)


def test_an_optimizer_over_another_model_is_warned_of_where_the_loss_is_the_users(tmp_path, caplog):
    class TrainsAnother(Trainer):
        def compute_loss(self, model: nn.Module, inputs: Any, **kwargs: Any) -> Any:
            return model(**inputs)["loss"]

    optimizers = (other_optimizer(), None)
    arguments = tiny.arguments(tmp_path, max_steps=1)
    TrainsAnother(tiny.Regression(), arguments, train_dataset=DATA, optimizers=optimizers).train()
    assert "None of the 2 parameters in SGD" in caplog.text


def test_an_optimizer_that_also_holds_parameters_of_another_model_trains(tmp_path):
    model = tiny.Regression()
    sgd = torch.optim.SGD([*model.parameters(), *tiny.Regression().parameters()], lr=0.1)
    run(tmp_path, model, trainer={"optimizers": (sgd, None)})


def test_a_learning_rate_in_quotes_trains_as_the_number(tmp_path):
    weights = []
    for rate in (0.1, "1e-1"):
        model = tiny.Regression()
        run(tmp_path, model, learning_rate=rate)
        weights.append([value.item() for value in model.parameters()])
    assert weights[0] == weights[1]
    with pytest.raises(ValueError, match="learning_rate='fast' is text that is not a number"):
        run(tmp_path, learning_rate="fast")


# ---- the metric of the best model ----


def f1(prediction: EvalPrediction) -> dict[str, float]:
    return {"f1": 0.5}


BEST = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True}


@pytest.mark.parametrize(
    ("name", "given", "offered"),
    [
        ("accuracy", {"eval_dataset": DATA}, "'loss'"),
        ("accuracy", {"eval_dataset": DATA, "compute_metrics": f1}, "'f1'"),
        ("eval_accuracy", {"eval_dataset": DATA, "compute_metrics": f1}, "'f1'"),
        ("accuracy", {"eval_dataset": {"a": DATA, "b": DATA}}, "'b_loss'"),
        ("f1", {"eval_dataset": {"a": DATA, "b": DATA}, "compute_metrics": f1}, "'a_f1'"),
        ("c_f1", {"eval_dataset": {"a": DATA, "b": DATA}, "compute_metrics": f1}, "'b_f1'"),
    ],
    ids=["no metrics", "metrics", "prefixed", "sets", "sets and a bare name", "an absent set"],
)
def test_a_metric_that_no_evaluation_gives_is_refused_before_the_first_step(workplace, name, given, offered):
    fragments = (f"metric_for_best_model={name!r}", offered, "compute_metrics")
    assert_refused(workplace, ValueError, *fragments, trainer=dict(given), metric_for_best_model=name, **BEST)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (None, {"eval_dataset": DATA}),
        ("eval_loss", {"eval_dataset": DATA}),
        ("f1", {"eval_dataset": DATA, "compute_metrics": f1}),
        ("eval_f1", {"eval_dataset": DATA, "compute_metrics": f1}),
        ("a_f1", {"eval_dataset": {"a": DATA, "b": DATA}, "compute_metrics": f1}),
        ("loss", {"eval_dataset": {"a": DATA, "b": DATA}, "compute_metrics": f1}),
    ],
)
def test_a_metric_that_evaluation_gives_is_accepted(tmp_path, name, given):
    run(tmp_path, trainer=given, metric_for_best_model=name, **BEST)


class OtherNames(tiny.Regression):
    """Neither its labels nor its loss have the word in their name, so nobody can know that they are."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return tuple(super().forward(x, y).values())


@pytest.mark.parametrize("compute_metrics", [None, f1], ids=["no metrics", "metrics"])
def test_a_best_loss_that_no_evaluation_gives_is_refused_before_the_first_step(workplace, compute_metrics):
    rows = [{"x": row["x"], "y": row["labels"]} for row in DATA]
    given = {"train_dataset": rows, "eval_dataset": rows, "compute_metrics": compute_metrics}
    fragments = ("metric_for_best_model='loss'", "label_names")
    assert_refused(workplace, ValueError, *fragments, model=OtherNames(), trainer=dict(given), **BEST)
    run(workplace, OtherNames(), trainer=given, label_names=["y"], **BEST)


def test_metrics_that_are_no_dictionary_are_refused_by_name(tmp_path):
    trainer = Trainer(
        tiny.Regression(),
        tiny.arguments(tmp_path),
        eval_dataset=DATA,
        compute_metrics=lambda prediction: None,
    )
    with pytest.raises((TypeError, ValueError), match=r"compute_metrics.*None"):
        trainer.evaluate()


def test_trying_the_metric_first_does_not_change_the_run(tmp_path):
    losses = []
    for name in ("loss", "f1"):  # only the latter is tried
        trainer = Trainer(
            tiny.bert_classifier(),
            tiny.arguments(
                tmp_path, max_steps=4, logging_steps=1, eval_strategy="steps", metric_for_best_model=name
            ),
            train_dataset=tiny.classification_data(40),
            eval_dataset=tiny.classification_data(9),
            compute_metrics=f1,
        )
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert losses[0] == losses[1]


# ---- no loss: which of the four causes ----


class NeverALoss(tiny.Regression):
    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        return {"logits": super().forward(x)["logits"]}


class TakesAnything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None, goals: Any = None) -> Any:
        return {"logits": self.weight * x} if labels is None else {"loss": (self.weight * x - labels).mean()}


def rename_labels(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {
        "x": torch.stack([row["x"] for row in rows]),
        "goals": torch.stack([row["labels"] for row in rows]),
    }


def forget_labels(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {"x": torch.stack([row["x"] for row in rows])}


CAUSES: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], tuple[str, ...]]] = {
    "no labels": (
        tiny.Regression,
        {"train_dataset": [{"x": row["x"]} for row in DATA]},
        ("the dataset has no labels", "['labels']", "label_names"),
    ),
    "dropped by name": (
        tiny.Regression,
        {"train_dataset": [{"x": row["x"], "target": row["labels"]} for row in DATA]},
        ("['target'] were dropped because forward does not name them", "'labels'", "keep_columns"),
    ),
    "renamed by the collator": (
        TakesAnything,
        {"data_collator": rename_labels},
        ("the collator renamed or removed the labels", "['labels']", "goals"),
    ),
    "removed by the collator": (
        tiny.Regression,
        {"data_collator": forget_labels},
        ("the collator renamed or removed the labels", "['labels']"),
    ),
    "no loss in forward": (
        NeverALoss,
        {},
        ("forward received ['labels'] and still gave no loss", "compute_loss_func"),
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_no_loss_says_which_of_the_four_causes_it_is(workplace, cause):
    model, given, fragments = CAUSES[cause]
    text = assert_refused(
        workplace, ValueError, "The model returned no loss", *fragments, model=model(), trainer=dict(given)
    )
    for part in ("Columns of the dataset", "keys of the batch", "parameters of forward", "keys it returned"):
        assert part in text
    others = {case[2][0] for case in CAUSES.values()} - {fragments[0]}
    assert not [other for other in others if other in text]


def test_a_batch_key_that_forward_does_not_take_is_named_with_the_collator(workplace):
    """A collator that renames labels to something forward knows nothing of."""

    def rename(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return {
            "x": torch.stack([row["x"] for row in rows]),
            "goal": torch.stack([row["labels"] for row in rows]),
        }

    assert_refused(workplace, TypeError, "forward", "'goal'", trainer={"data_collator": rename})


def test_a_model_of_transformers_without_labels_says_so(workplace):
    rows = [{"input_ids": row} for row in tiny.token_rows(8)]
    assert_refused(
        workplace,
        ValueError,
        "The model returned no loss: the dataset has no labels",
        model=tiny.bert_classifier(),
        trainer={"train_dataset": rows},
    )


def test_columns_dropped_from_a_table_are_named_as_the_cause(workplace):
    from datasets import Dataset as Table

    rows = Table.from_dict({"x": [1.0, 2.0], "target": [1.0, 2.0]})
    assert_refused(
        workplace, ValueError, "['target'] were dropped because forward", trainer={"train_dataset": rows}
    )


def test_the_advice_for_a_dropped_label_is_not_to_rename_it_to_itself(workplace):
    class TakesNoLabels(tiny.Regression):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x)

    text = assert_refused(
        workplace, ValueError, "['labels'] were dropped", "compute_loss_func", model=TakesNoLabels()
    )
    assert "Rename them to one of ['labels']" not in text


# ---- non-finite ----


def test_a_first_loss_that_is_not_finite_is_refused_and_nothing_is_lost(workplace):
    rows = [{**row, "x": torch.tensor(math.nan)} for row in DATA]
    assert_refused(
        workplace,
        FloatingPointError,
        "Update 1",
        "nan",
        "weights are as they were",
        "on_nonfinite='skip'",
        trainer={"train_dataset": rows},
        on_nonfinite="raise",
    )


# ---- resume ----


def test_resume_without_a_checkpoint_is_refused(tmp_path):
    assert_refused(
        tmp_path, ValueError, "resume_from_checkpoint=True", repr(str(tmp_path)), "output_dir", resume=True
    )


def test_resume_from_a_folder_that_is_not_there_is_refused(workplace):
    assert_refused(workplace, ValueError, str(workplace / "nowhere"), resume=str(workplace / "nowhere"))


def test_resume_with_a_model_of_other_sizes_is_refused(workplace):
    class Wider(tiny.Regression):
        def __init__(self) -> None:
            super().__init__()
            self.slope = nn.Parameter(torch.ones(3))

    assert_refused(workplace, ValueError, "other sizes", "slope", model=Wider(), resume=True)


def test_resume_from_a_damaged_checkpoint_is_refused(workplace):
    weights = workplace / "checkpoint-4" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20])
    folder = str(workplace / "checkpoint-4")
    fragments = (folder, "model.safetensors", "resume_from_checkpoint=True")
    assert_refused(workplace, ValueError, *fragments, resume=folder)


def test_the_message_of_an_unknown_argument_is_one_readable_line():
    with pytest.raises(TypeError) as caught:
        TrainingArguments(output_dir="x", per_device_batch_size=3)
    assert "per_device_batch_size" in str(caught.value)
    assert "\n" not in str(caught.value)
