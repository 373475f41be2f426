"""What a batch is: labels, names, and answers without the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import T5Config
from transformers.modeling_outputs import ModelOutput

import tiny
from footplate import batch as batch_tools

A, B, C = (torch.full((2,), float(k)) for k in range(3))
LOSS = torch.tensor(0.5)


@dataclass
class Outputs:
    loss: Any = None
    logits: Any = None
    hidden: Any = None


@pytest.mark.parametrize(
    ("inputs", "label_names", "expected"),
    [
        ({"x": A, "labels": B}, ["labels"], ({"x": A}, B)),
        ({"x": A, "labels": B, "next_label": C}, ["labels", "next_label"], ({"x": A, "next_label": C}, B)),
        ({"x": A, "start": B, "end": C}, ["start", "end"], ({"x": A}, (B, C))),
        ({"x": A}, ["labels"], ({"x": A}, None)),
        ((A, B), [], ((A,), B)),
        ([A, B, C], [], ([A, B], C)),
        ((A,), [], ((A,), None)),
        (A, ["labels"], (A, None)),
    ],
)
def test_labels_are_taken_out(inputs, label_names, expected):
    keys = list(inputs) if isinstance(inputs, dict) else None
    assert batch_tools.take_labels(inputs, label_names) == expected
    assert keys is None or list(inputs) == keys  # the batch itself keeps them


@pytest.mark.parametrize(
    ("inputs", "label_names", "has_own_loss", "expected"),
    [
        ({"x": A, "labels": B}, ["labels"], False, B),
        ({"x": A, "start": B, "end": C}, ["start", "end"], False, (B, C)),
        ({"x": A, "start": B}, ["start", "end"], False, None),  # as in the original: all or none
        ({"x": A, "labels": None}, ["labels"], False, None),
        ({"x": A, "labels": B}, [], False, None),
        ({"x": A, "labels": B}, [], True, B),
        ((A, B), ["labels"], False, None),
        ((A, B), ["labels"], True, B),
        (A, [], True, None),
    ],
)
def test_labels_are_found(inputs, label_names, has_own_loss, expected):
    assert batch_tools.labels_of(inputs, label_names, has_own_loss) is expected or (
        batch_tools.labels_of(inputs, label_names, has_own_loss) == expected
    )


@pytest.mark.parametrize(
    ("inputs", "label_names", "expected"),
    [
        ({"x": A, "mine": B, "labels": C}, ["mine"], B),
        ({"x": A, "tag_labels": B}, [], B),
        ({"x": A, "labels": B, "label": C}, [], (B, C)),
        ({"x": A}, [], None),
        ((A, B), [], None),
    ],
)
def test_labels_without_given_names_are_found_by_usual_names(inputs, label_names, expected):
    found = batch_tools.find_labels(inputs, label_names)
    assert found is expected or found == expected


@pytest.mark.parametrize("make", [list, Dataset.from_list], ids=["list", "table"])
def test_rows_are_selected_from_any_dataset(make):
    rows = [{"n": index} for index in range(9)]
    part = batch_tools.select_rows(make(rows), [1, 4, 8])
    assert [part[index] for index in range(len(part))] == [rows[1], rows[4], rows[8]]


def test_labels_are_known_by_their_names():
    names = ["input_ids", "labels", "label", "label_ids", "tag_labels", "start_positions", "unlabeled"]
    known = ["labels", "label", "label_ids", "tag_labels", "start_positions"]
    assert batch_tools.known_labels(dict.fromkeys(names, A)) == known
    assert batch_tools.known_labels((A, B)) == []


def test_entries_are_looked_up_picked_and_left_out():
    batch = {"x": A, "labels": B, "none": None}
    assert batch_tools.entry(batch, "x") is A
    assert batch_tools.entry(batch, "z") is batch_tools.entry((A,), "x") is None
    assert batch_tools.pick(batch, ["labels", "none", "z"]) == {"labels": B}
    assert batch_tools.pick((A,), ["x"]) == {}
    assert batch_tools.without(batch, {"labels", "z"}) == {"x": A, "none": None}
    assert batch_tools.without(batch, ()) is batch
    assert batch_tools.without((A,), {"x"}) == (A,)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"x": 1, 2: 3}, ["x", "2"]),
        (Outputs(), ["loss", "logits", "hidden"]),
        ((A,), []),
        ([A], []),
        (A, []),
        ("text", []),
    ],
)
def test_names_are_read_where_there_are_some(batch, expected):
    assert batch_tools.keys_of(batch) == expected


@pytest.mark.parametrize(
    ("outputs", "has_loss", "expected"),
    [
        ({"loss": LOSS, "logits": A}, True, A),
        ({"loss": LOSS, "logits": A, "more": B}, True, (A, B)),
        ({"loss": LOSS, "logits": A, "past": B}, True, A),
        ({"logits": A}, False, A),
        ({"logits": A, "more": None}, False, A),
        (ModelOutput(loss=LOSS, logits=A), True, A),
        ((LOSS, A), True, A),
        ((LOSS, A, B), True, (A, B)),
        ((A, B), True, (A, B)),  # a loss function of the user's own: the tuple begins with logits
        ((A, B), False, (A, B)),
        ((A,), False, A),
        (Outputs(LOSS, A), True, A),
        (Outputs(LOSS, A, B), True, (A, B)),
        (A, True, A),
        (A, False, A),
        ({"loss": LOSS}, True, ()),
    ],
)
def test_answers_are_what_is_beside_the_loss(outputs, has_loss, expected):
    found = batch_tools.outputs_without_loss(outputs, ["past"], has_loss)
    assert found is expected or found == expected


def test_outputs_to_ignore_come_from_the_configuration():
    model = torch.nn.Module()
    model.config = T5Config()  # type: ignore[assignment]
    assert batch_tools.ignored_outputs(model) == T5Config().keys_to_ignore_at_inference
    assert batch_tools.ignored_outputs(tiny.gpt()) == ["past_key_values"]
    assert batch_tools.ignored_outputs(tiny.Regression()) == []
