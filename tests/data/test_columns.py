"""Columns: what forward names stays, the rest is dropped and named once."""

from __future__ import annotations

import logging
import pickle

import datasets
import peft
import pytest
import torch
import transformers
from transformers import trainer_utils as original

from footplate.data import columns as columns_module
from footplate.data.columns import (
    ColumnFilter,
    RemoveColumnsCollator,
    can_drop_columns,
    drop_unused_columns,
    signature_columns,
)
from wrapped import Anything, Plain, bert


@pytest.fixture(autouse=True)
def _forget_what_was_named(monkeypatch):
    monkeypatch.setattr(columns_module, "_already_named", set())


@pytest.mark.parametrize(
    "make", [bert, Plain, lambda: peft.get_peft_model(bert(), peft.LoraConfig("SEQ_CLS"))]
)
def test_signature_columns_are_the_originals(make, tmp_path):
    args = transformers.TrainingArguments(
        tmp_path, use_cpu=True, report_to=[], label_names=["start", "labels"]
    )
    trainer = transformers.Trainer(make(), args)
    trainer._set_signature_columns_if_needed()
    ours = signature_columns(trainer.model, trainer.label_names)
    assert set(ours) == set(trainer._signature_columns)
    assert len(ours) == len(set(ours))


ROWS = {"x": [1, 2], "labels": [0, 1], "text": ["a", "b"], "id": [7, 8]}


def test_columns_of_a_dataset_are_dropped_as_by_the_original(tmp_path):
    dataset = datasets.Dataset.from_dict(ROWS).with_format("torch")
    trainer = transformers.Trainer(
        Plain(), transformers.TrainingArguments(tmp_path, use_cpu=True, report_to=[])
    )
    ours = drop_unused_columns(dataset, signature_columns(Plain(), ["labels"]))
    assert ours.column_names == trainer._remove_unused_columns(dataset).column_names == ["x", "labels"]
    assert ours.format["type"] == "torch"
    assert dataset.column_names == list(ROWS)


def test_columns_of_a_stream_with_known_names_are_dropped():
    stream = datasets.Dataset.from_dict(ROWS).to_iterable_dataset()
    assert list(drop_unused_columns(stream, ["x", "id"])) == [{"x": 1, "id": 7}, {"x": 2, "id": 8}]


def test_other_datasets_are_left_to_the_collator():
    nameless = datasets.IterableDataset.from_generator(lambda: iter([{"x": 1}]))
    transformed = datasets.Dataset.from_dict(ROWS).with_transform(
        lambda rows: {"x": [len(t) for t in rows["text"]]}
    )
    for dataset in ([{"x": 1, "y": 2}], torch.utils.data.TensorDataset(torch.ones(2)), nameless, transformed):
        assert not can_drop_columns(dataset)
        assert drop_unused_columns(dataset, ["x"]) is dataset
    assert transformed[0] == {"x": 1}  # the transform still has the column that it reads
    kept = datasets.Dataset.from_dict(ROWS)
    assert drop_unused_columns(kept, list(ROWS)) is kept


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize("form", ["dataset", "collator"])
def test_dropped_columns_are_named_once_for_a_set(form, custom, caplog):
    caplog.set_level(logging.INFO)
    for description in ("Training", "Evaluation", "Training"):
        told = {"description": description, "model_name": "Plain", "custom": custom}
        if form == "dataset":
            drop_unused_columns(datasets.Dataset.from_dict(ROWS), ["x", "labels"], **told)
        else:
            for _ in range(2):
                ColumnFilter(list, ["x", "labels"], **told)([{"x": 1, "text": "a", "id": 7}] * 2)
    records = [record for record in caplog.records if record.name == columns_module.__name__]
    assert [record.message.split(" set")[0] for record in records] == [
        "Columns of the Training",
        "Columns of the Evaluation",
    ]
    assert "Plain.forward does not name were dropped: " in records[0].message
    assert {"text", "id"} <= set(records[0].message.rstrip(".").replace(",", "").replace(".", "").split())
    assert records[0].levelno == (logging.WARNING if custom else logging.INFO)
    assert ("keep_columns=[...]" in records[0].message) is custom


@pytest.mark.parametrize("form", ["dataset", "collator"])
def test_nothing_left_is_an_error_that_shows_both_sides(form):
    keep = signature_columns(Anything(), ["labels"])
    rows = [{"text": "a", "id": 1}]
    attempt = {
        "dataset": lambda: drop_unused_columns(datasets.Dataset.from_list(rows), keep, model_name="Anything"),
        "collator": lambda: ColumnFilter(list, keep, model_name="Anything")(rows),
    }[form]
    with pytest.raises(ValueError, match=r"the data has \['id', 'text'\]") as error:
        attempt()
    for part in ("Anything.forward", "kwargs", "remove_unused_columns=False", "keep_columns"):
        assert part in str(error.value)


BATCHES = [
    [{"x": 1, "labels": 2}, {"x": 3, "labels": 4}],
    [{"x": 1, "text": "a"}, {"x": 3}],
    [{"x": 1}, {"x": 3, "id": 4}],
    [{"x": 5, "label": 0}, {"x": 6, "label": 1}],
    [(1, 2), (3, 4)],
    [(1, 2), {"x": 1, "id": 2}],
    [torch.ones(1)],
    [{}],
    [],
]


def test_filtered_samples_are_the_originals_whatever_comes_when():
    keep = signature_columns(Plain(), ["labels"])
    ours, theirs = ColumnFilter(list, keep), original.RemoveColumnsCollator(list, keep)
    for batch in [*BATCHES, *reversed(BATCHES)]:
        assert ours(batch) == theirs(batch)


def test_samples_with_nothing_to_drop_reach_the_collator_as_they_are():
    batch = [{"x": 1}, {"x": 2, "labels": 3}]
    assert ColumnFilter(lambda samples: samples, ["x", "labels"])(batch) is batch
    dropped = [{"x": 1, "id": 2}]
    ColumnFilter(list, ["x"])(dropped)
    assert dropped == [{"x": 1, "id": 2}]


def test_the_originals_constructor_and_logger_work(caplog):
    log = logging.getLogger("mine")
    caplog.set_level(logging.INFO, logger="mine")
    collator = RemoveColumnsCollator(
        data_collator=list, signature_columns=["x"], logger=log, model_name="Plain", description="test"
    )
    assert pickle.loads(pickle.dumps(collator))([{"x": 1, "id": 2}]) == [{"x": 1}]
    assert [record.name for record in caplog.records] == ["mine"]


def test_a_later_sample_left_with_nothing_is_an_error_too():
    collator = ColumnFilter(list, ["x"])
    collator([{"x": 1, "id": 2}])
    with pytest.raises(ValueError, match=r"the data has \['id'\]"):
        collator([{"id": 2}])


def test_of_several_workers_one_names_the_columns(capfd):
    class Loud:
        """A logger that every process shares."""

        def info(self, text):
            print(text, flush=True)

    rows = [{"x": index, "id": index} for index in range(8)]
    collator = ColumnFilter(list, ["x"], logger=Loud(), description="Training")
    list(torch.utils.data.DataLoader(rows, batch_size=2, num_workers=2, collate_fn=collator))
    assert capfd.readouterr().out.count("were dropped: id.") == 1
