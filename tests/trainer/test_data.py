"""The loaders that a Trainer makes, as subclasses and scripts of the original see them."""

from __future__ import annotations

import inspect
import random
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler, WeightedRandomSampler

import footplate
import tiny
from footplate import Trainer
from footplate.data import Loader

DATA = tiny.regression_data(10)


def build(folder: Any, cls: type = Trainer, **settings: Any) -> Any:
    return cls(tiny.Regression(), tiny.arguments(folder, **settings), train_dataset=DATA, eval_dataset=DATA)


def test_every_loader_is_made_by_get_dataloader_as_in_the_original(tmp_path):
    calls: dict[str, list[dict[str, Any]]] = {}

    def watched(library: Any) -> Any:
        class Watched(library.Trainer):
            def _get_dataloader(self, **given: Any) -> Any:
                known = {name: value for name, value in given.items() if name != "sampler_fn"}
                calls.setdefault(library.__name__, []).append(known)
                return super()._get_dataloader(**given)

        args = tiny.arguments(tmp_path, library, dataloader_persistent_workers=True, dataloader_num_workers=1)
        return Watched(tiny.Regression(), args, train_dataset=DATA, eval_dataset={"a": DATA})

    for library in (footplate, transformers):
        trainer = watched(library)
        trainer.get_train_dataloader(), trainer.get_eval_dataloader("a"), trainer.get_test_dataloader(DATA)
        assert list(trainer._eval_dataloaders) == ["a"]
    assert calls["footplate"] == calls["transformers"]
    ours, theirs = (inspect.signature(lib.Trainer._get_dataloader) for lib in (footplate, transformers))
    assert list(ours.parameters) == list(theirs.parameters)


def test_without_a_sampler_function_rows_come_in_their_own_order(tmp_path):
    loader = build(tmp_path)._get_dataloader(DATA, "mine", 4)
    assert torch.equal(torch.cat([batch["x"] for batch in loader]), torch.stack([row["x"] for row in DATA]))


def test_a_loader_tells_its_sizes_as_the_originals_does(tmp_path):
    found = []
    for library in (Trainer, transformers.Trainer):
        arguments = tiny.arguments(tmp_path, __import__(library.__module__.partition(".")[0]))
        trainer = library(tiny.Regression(), arguments, train_dataset=DATA, eval_dataset=DATA[:3])
        loaders = (trainer.get_train_dataloader(), trainer.get_eval_dataloader())
        found.append([(loader.total_batch_size, loader.total_dataset_length) for loader in loaders])
    assert found[0] == found[1] == [(8, 10), (8, 3)]


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_are_handed_out_on_the_device(is_training, num_workers):
    loader = Loader(
        DATA, is_training=is_training, batch_size=4, num_workers=num_workers, device=torch.device("meta")
    )
    assert {batch["x"].device.type for batch in loader} == {"meta"}


def test_the_loaders_of_a_trainer_know_its_device(tmp_path):
    trainer = build(tmp_path)
    assert trainer.get_train_dataloader().device == trainer.args.device


def test_a_test_of_the_metrics_does_not_start_the_workers_of_an_evaluation(tmp_path):
    """Starting them draws a random number, which must happen where the original draws it."""
    losses = []
    for library in ("footplate", "transformers"):
        module = __import__(library)
        arguments = tiny.arguments(
            tmp_path,
            module,
            max_steps=6,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=2,
            dataloader_num_workers=1,
            dataloader_persistent_workers=True,
        )
        torch.manual_seed(0)
        trainer = module.Trainer(
            tiny.bert_classifier(),
            arguments,
            train_dataset=tiny.classification_data(24),
            eval_dataset=tiny.classification_data(5),
            compute_metrics=tiny.accuracy,
        )
        trainer.train()
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert losses[0] == losses[1]


class Drawn(Trainer):
    """Brings a sampler of another length than the data has."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return WeightedRandomSampler([1.0] * 10, 30)


def test_another_batch_size_goes_on_at_the_sample_where_a_longer_sampler_was(tmp_path):
    saving = {"num_train_epochs": 1, "save_strategy": "steps", "save_steps": 5}
    build(tmp_path, Drawn, per_device_train_batch_size=3, **saving).train()
    trainer = build(tmp_path, Drawn, per_device_train_batch_size=5, **saving)
    result = trainer.train(resume_from_checkpoint=f"{tmp_path}/checkpoint-5")
    assert trainer._current_run.plan.first_batch == 3  # 15 of 30 samples, in batches of 5
    assert result.global_step == 5 + 3


TABLE = datasets.Dataset.from_dict({"x": [1.0] * 8, "labels": [2.0] * 8, "extra": ["a"] * 8})


@pytest.mark.parametrize("kind", ["table", "stream", "list"])
def test_columns_are_dropped_through_the_originals_joints(kind, tmp_path):
    data = {"table": TABLE, "stream": TABLE.to_iterable_dataset(), "list": list(TABLE)}[kind]
    found: dict[str, list[Any]] = {}
    for library in (footplate, transformers):
        seen = found[library.__name__] = []

        class Watched(library.Trainer):
            def _remove_unused_columns(self, dataset: Any, description: Any = None, seen: Any = seen) -> Any:
                seen.append(("dataset", description))
                return super()._remove_unused_columns(dataset, description)

            def _get_collator_with_removed_columns(
                self, data_collator: Any, description: Any = None, seen: Any = seen
            ) -> Any:
                seen.append(("collator", description))
                return super()._get_collator_with_removed_columns(data_collator, description)

        args = tiny.arguments(tmp_path, library, max_steps=1)
        trainer = Watched(tiny.Regression(), args, train_dataset=data, eval_dataset=data)
        seen += [sorted(batch) for batch in trainer.get_train_dataloader()]
        seen += [sorted(batch) for batch in trainer.get_eval_dataloader()]
    assert found["footplate"] == found["transformers"]


def noisy(rows: list[Any]) -> dict[str, torch.Tensor]:
    """A batch with noise from all three generators."""
    batch = {name: torch.stack([row[name] for row in rows]) for name in ("x", "labels")}
    return {**batch, "x": batch["x"] + torch.rand(()) + random.random() + float(np.random.rand())}


LOADERS = {
    "plain": lambda data, accelerator: DataLoader(data, batch_size=4, shuffle=True, collate_fn=noisy),
    "sampled": lambda data, accelerator: DataLoader(
        data, batch_size=4, sampler=WeightedRandomSampler([1.0] * len(data), 8), collate_fn=noisy
    ),
    "prepared": lambda data, accelerator: accelerator.prepare(
        DataLoader(data, batch_size=4, shuffle=True, collate_fn=noisy)
    ),
}


def losses_of(folder: Any, library: Any, kind: str, eval_rows: int = 8) -> list[Any]:
    """What a run logs whose loaders the user makes; evaluated before, trained twice."""

    class Own(library.Trainer):
        def get_train_dataloader(self) -> Any:
            return LOADERS[kind](self.train_dataset, self.accelerator)

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return LOADERS[kind](self.eval_dataset, self.accelerator)

    library.set_seed(3)
    model = Dropping()
    settings = {"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 2, "num_train_epochs": 2}
    args = tiny.arguments(folder, library, per_device_eval_batch_size=4, **settings)
    data = tiny.regression_data(11)
    trainer = Own(model, args, train_dataset=data, eval_dataset=data[:eval_rows])
    logged = [trainer.evaluate()["eval_loss"]]
    for _ in range(2):
        trainer.train()
        logged += [entry.get("loss", entry.get("eval_loss")) for entry in trainer.state.log_history]
    return logged


class Dropping(tiny.Regression):
    """Dropout draws between the batches."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return super().forward(nn.functional.dropout(x, 0.3, self.training), labels)


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_of_the_users_own_gives_the_batches_that_it_gives_in_the_original(kind, tmp_path):
    assert losses_of(tmp_path, footplate, kind) == losses_of(tmp_path, transformers, kind)


def test_a_short_last_batch_of_the_users_own_loader_counts_by_its_rows(tmp_path):
    """The original counts every batch as a full one, if accelerate did not prepare the loader."""
    ours, theirs = (losses_of(tmp_path, library, "plain", 7)[0] for library in (footplate, transformers))
    assert ours != theirs


@pytest.mark.parametrize("with_init", [True, False])
@pytest.mark.parametrize("noise", [True, False])
def test_a_second_run_and_an_evaluation_before_it_give_the_originals_numbers(with_init, noise, tmp_path):
    logged = []
    for library in (footplate, transformers):
        library.set_seed(3)
        settings = {"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 2, "num_train_epochs": 2}
        model = {"model_init": Dropping} if with_init else {"model": Dropping()}
        data = tiny.regression_data(19)
        trainer = library.Trainer(
            args=tiny.arguments(tmp_path, library, **settings),
            train_dataset=data,
            eval_dataset=data[:5],
            data_collator=noisy if noise else None,
            **model,
        )
        numbers = [trainer.evaluate()["eval_loss"]]
        for _ in range(2):
            trainer.train()
            numbers += [entry.get("loss", entry.get("eval_loss")) for entry in trainer.state.log_history]
        logged.append([*numbers, trainer.evaluate()["eval_loss"]])
    assert logged[0] == logged[1]


def test_an_eval_sampler_of_the_users_own_is_kept(tmp_path):
    class Own(Trainer):
        def _get_eval_sampler(self, eval_dataset: Any) -> Any:
            return SequentialSampler(range(4))

    assert build(tmp_path, Own).get_eval_dataloader().sampler.data_source == range(4)


# ---- tables of `datasets` ----

TOKENS = {
    "x": [[1.0, 2.0], [3.0, 4.0]] * 6,
    "labels": list(range(12)),
    "text": [f"row {i}" for i in range(12)],
}


def shift(columns):
    return {"x": [torch.tensor(row) + 1 for row in columns["x"]], "labels": columns["labels"]}


TABLES = {
    "plain": lambda table: table,
    "torch": lambda table: table.with_format("torch"),
    "numpy": lambda table: table.with_format("numpy"),
    "some columns": lambda table: table.with_format("torch", columns=["x"], output_all_columns=True),
    "a transform": lambda table: table.with_transform(shift),
    "selected": lambda table: table.select([7, 1, 5, 3, 2, 0]),
}


@pytest.mark.parametrize("kind", TABLES)
def test_the_collator_gets_the_rows_of_a_table_that_it_gets_from_the_original(kind, tmp_path):
    given = []
    for library in (transformers, footplate):
        rows_of = []

        def collate(rows, seen=rows_of):
            seen.append([{name: (type(value), str(value)) for name, value in row.items()} for row in rows])
            return {"x": torch.zeros(len(rows))}

        args = tiny.arguments(tmp_path, library, per_device_train_batch_size=4)
        table = TABLES[kind](datasets.Dataset.from_dict(TOKENS))
        trainer = library.Trainer(tiny.Regression(), args, data_collator=collate, train_dataset=table)
        list(trainer.get_train_dataloader())
        given.append(rows_of)
    assert given[0] == given[1]
    assert {type(row) for batch in given[1] for row in batch} == {dict}
    assert set(given[1][0][0]) == {"x", "labels"}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_asked_once_for_each_batch(kind, tmp_path, monkeypatch):
    asked = []
    read = datasets.Dataset.__getitem__
    monkeypatch.setattr(
        datasets.Dataset, "__getitem__", lambda table, key: asked.append(key) or read(table, key)
    )
    args = tiny.arguments(tmp_path, per_device_train_batch_size=3)
    table = TABLES[kind](datasets.Dataset.from_dict(TOKENS))
    trainer = footplate.Trainer(tiny.Regression(), args, data_collator=len, train_dataset=table)
    assert [*trainer.get_train_dataloader()] == [3] * (len(table) // 3)
    assert sorted(index for batch in asked for index in batch) == list(range(len(table)))
    assert len(asked) == len(table) // 3
