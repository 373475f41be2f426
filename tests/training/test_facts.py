"""The facts tell datasets and models apart, are the same in another process, and cost the data nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import tiny
from footplate.training import facts
from footplate.training.facts import collect_facts, describe_data, describe_model, find_versions, hash_value

ROWS = tiny.regression_data(8)


class Reads(Dataset):
    """Counts what is read, and opens its file when it first is."""

    def __init__(self, rows):
        self.rows, self.reads, self.file = rows, [], None

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.file = self.file or object()
        self.reads.append(index)
        return self.rows[index]


class Augments(Reads):
    def __getitem__(self, index):
        return {"x": random.random() + np.random.rand() + torch.rand(1).item()}


def test_facts_are_plain_and_tell_of_data_model_and_versions():
    found = collect_facts(ROWS, tiny.Regression())
    assert json.loads(json.dumps(found)) == found
    assert found["data"]["rows"] == 8
    assert found["model"]["class"] == "Regression"
    assert found["versions"]["torch"] == torch.__version__
    assert {"python", "numpy", "footplate"} <= found["versions"].keys()


def test_a_library_that_nobody_imported_is_not_looked_for():
    code = "import sys; from footplate.training.facts import find_versions; v = find_versions(); "
    code += "assert 'transformers' not in sys.modules; print(sorted(v))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "transformers" not in done.stdout
    assert find_versions()["numpy"] == np.__version__


def test_reading_the_first_row_leaves_no_trace():
    data = Reads(ROWS)
    states = (random.getstate(), torch.get_rng_state())
    assert describe_data(data)["first_row"] == describe_data(ROWS)["first_row"]
    assert (data.reads, data.file) == ([], None)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


def test_rows_that_draw_random_numbers_have_the_same_hash():
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())
    first = describe_data(Augments(ROWS))["first_row"]
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    random.seed(5), torch.manual_seed(5), np.random.seed(5)
    assert describe_data(Augments(ROWS))["first_row"] == first is not None


def test_at_most_one_row_is_read():
    class Counts(Dataset):
        count = 0

        def __len__(self):
            return 3

        def __getitem__(self, index):
            Counts.count += 1  # what belongs to a class is not put back
            return {"x": index}

    describe_data(Counts())
    assert Counts.count == 1


class Stream(IterableDataset):
    def __iter__(self):
        raise AssertionError("a stream is read")

    def __len__(self):
        return 5


class Broken(Reads):
    def __getitem__(self, index):
        raise OSError("no such file")


class HoldsGenerator(Reads):
    def __init__(self, rows):
        super().__init__(rows)
        self.generator = np.random.default_rng()

    def __getitem__(self, index):
        raise AssertionError("it is read")


@pytest.mark.parametrize("data", [Stream(), Broken(ROWS), HoldsGenerator(ROWS), [], iter([1]), None])
def test_data_that_cannot_be_read_without_a_trace_has_no_first_row(data):
    assert describe_data(data)["first_row"] is None


def test_a_dataset_with_many_objects_is_not_looked_through(monkeypatch):
    monkeypatch.setattr(facts, "NUM_OBJECTS", 10)
    data = Reads([dict(row) for row in ROWS] * 5)
    assert describe_data(data)["first_row"] is None
    assert data.reads == []


def test_a_table_has_its_fingerprint_and_columns():
    from datasets import Dataset as Table

    found = describe_data(Table.from_dict({"x": [1, 2], "labels": [1, 2]}))
    assert (found["rows"], found["columns"]) == (2, ["x", "labels"])
    assert found["fingerprint"]
    other = describe_data(Table.from_dict({"x": [3, 2], "labels": [1, 2]}))
    assert other["first_row"] != found["first_row"]


VALUES = [
    {"x": torch.arange(3), "labels": 1},
    {"x": torch.arange(3).float(), "labels": 1},
    {"x": torch.arange(3)[None], "labels": 1},
    {"x": np.arange(3), "labels": 2},
    {"x": "text", "labels": None},
    ("text", None),
    [["text"], None],
    {"x": torch.zeros(2, dtype=torch.bfloat16)},
    {"x": b"bytes"},
    3.5,
]


def test_other_values_have_another_hash_and_order_of_keys_does_not_count():
    assert len({hash_value(value) for value in VALUES}) == len(VALUES)
    assert hash_value({"a": 1, "b": 2}) == hash_value({"b": 2, "a": 1})


def test_a_hash_is_the_same_in_another_process():
    code = (
        "from footplate.training.facts import hash_value; print(hash_value({'a': {'b': [1, 'x', object()]}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hash_value({"a": {"b": [1, "x", object()]}})


def test_models_differ_by_class_names_and_shapes():
    shapes = [
        describe_model(model)["shapes"] for model in (nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(2, 3))
    ]
    assert shapes[0] == shapes[2] != shapes[1]
    assert describe_model(nn.Linear(2, 3))["parameters"] == 9
    assert describe_model(torch.compile(nn.Linear(2, 3)))["class"] == "Linear"


def test_tensors_of_a_dataset_are_not_copied():
    data = TensorDataset(torch.zeros(4, 2), torch.ones(4))
    assert describe_data(data)["first_row"] == hash_value((torch.zeros(2), torch.tensor(1.0)))
