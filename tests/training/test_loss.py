"""Smoothing and counts are the original's; a missing loss is explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers.modeling_outputs import ModelOutput
from transformers.trainer_pt_utils import LabelSmoother as OriginalSmoother

import tiny
from footplate.training import loss as losses

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    return tiny.build_trainer(folder, tiny.Regression(), tiny.regression_data(4), library=transformers)


def logits_and_labels(shape, dtype, num_classes=7):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(*shape, num_classes, generator=generator).to(dtype)
    labels = torch.randint(0, num_classes, shape, generator=generator)
    labels[torch.rand(shape, generator=generator) < 0.3] = -100
    return logits, labels


@pytest.mark.parametrize("num_items", [None, 11, torch.tensor(11)], ids=["own", "number", "tensor"])
@pytest.mark.parametrize("shifts", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_smoothing_and_its_gradient_are_the_originals(epsilon, dtype, shifts, num_items):
    values = []
    for smoother in (OriginalSmoother(epsilon), losses.LabelSmoother(epsilon)):
        logits, labels = logits_and_labels((4, 6), dtype)
        logits.requires_grad_()
        value = smoother({"logits": logits}, labels, shift_labels=shifts, num_items_in_batch=num_items)
        value.backward()
        values.append((value.detach(), logits.grad))
    (expected, expected_gradient), (found, gradient) = values
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)
    assert torch.equal(gradient, expected_gradient)


@pytest.mark.parametrize("wrap", [lambda x: (x,), lambda x: {"logits": x}, lambda x: ModelOutput(logits=x)])
def test_smoothing_finds_the_logits_where_the_original_does(wrap):
    logits, labels = logits_and_labels((5,), torch.float32)
    found, expected = (
        smoother(wrap(logits), labels) for smoother in (losses.LabelSmoother(), OriginalSmoother())
    )
    assert torch.equal(found, expected)


def test_smoothing_takes_labels_with_a_last_dimension_and_another_ignored_label():
    logits, labels = logits_and_labels((5,), torch.float32)
    labels = labels.masked_fill(labels == -100, 3).unsqueeze(-1)
    found, expected = (
        smoother(ignore_index=3)((logits,), labels) for smoother in (losses.LabelSmoother, OriginalSmoother)
    )
    assert torch.equal(found, expected)


def test_smoothing_leaves_logits_and_labels_as_they_were():
    logits, labels = logits_and_labels((5,), torch.float32)
    before = logits.clone(), labels.clone()
    losses.LabelSmoother()((logits,), labels)
    assert torch.equal(logits, before[0])
    assert torch.equal(labels, before[1])


BATCHES = {
    "rows": [{"labels": torch.tensor([1, -100, 2])}],
    "several": [{"labels": torch.tensor([[1, -100, 2]])}, {"labels": torch.tensor([[-100, -100, 3, 4]])}],
    "floats": [{"labels": torch.tensor([[0.5, 1.0]])}],
    "shifted already": [{"labels": torch.tensor([[1, 2]]), "shift_labels": torch.tensor([[2, -100]])}] * 2,
    "no labels": [{"input_ids": torch.tensor([1])}],
    "boxes": [{"labels": [{"boxes": torch.zeros(1, 4)}]}],
    "lists": [{"labels": [1, 2]}],
    "nothing": [],
}


@pytest.mark.parametrize("shifts", [False, True])
@pytest.mark.parametrize("case", BATCHES)
def test_labels_that_count_are_counted_as_by_the_original(original, case, shifts):
    original.model_accepts_loss_kwargs, original._loss_shifts_labels = True, shifts
    expected = original._get_num_items_in_batch(BATCHES[case], CPU)
    found = losses.count_labels(BATCHES[case], shifts, CPU)
    assert (found is None) == (expected is None)
    assert found is None or (torch.is_tensor(found) and found.dtype == expected.dtype and found == expected)


def test_batches_that_are_no_mappings_have_no_labels_to_count():
    assert losses.count_labels([(torch.ones(3), torch.ones(3))], False, CPU) is None


@pytest.mark.parametrize(
    ("batch", "label_names", "shifts", "expected"),
    [
        ({"labels": torch.tensor([1, -100, 2])}, ["labels"], False, 2),
        ({"labels": torch.tensor([[1, -100, 2], [3, 4, -100]])}, ["labels"], False, 4),
        ({"labels": torch.tensor([[1, -100, 2], [3, 4, -100]])}, ["labels"], True, 2),
        ({"labels": torch.tensor([1, 0, 2])}, ["labels"], True, 3),  # one label per row: nothing shifts
        ({"labels": torch.tensor([[0.5, 1.0], [-100.0, 2.0]])}, ["labels"], False, 4),
        ({"start_positions": torch.tensor([4, -100])}, ["start_positions", "end_positions"], False, 1),
        ({"x": torch.ones(3), "labels": torch.tensor([1, 2, -100])}, [], False, 2),
        ({"x": torch.ones(3)}, ["labels"], False, 3),
        ({"x": torch.ones(3), "labels": ["a", "b"]}, ["labels"], False, 3),
        ((torch.ones(3),), ["labels"], False, 3),
        ({"labels": torch.tensor([1, 2]), "num_items": 17}, ["labels"], False, 17),
        ({"labels": torch.tensor([1, 2]), "num_items": torch.tensor([8, 9])}, ["labels"], False, 17),
    ],
)
def test_items_are_the_collators_count_or_labels_or_rows(batch, label_names, shifts, expected):
    assert losses.count_items(batch, label_names, shifts) == expected


def test_a_batch_with_nothing_to_count_names_the_ways_out():
    with pytest.raises(ValueError, match=r"type str.*'num_items'.*label_names.*loss_weighting='batches'"):
        losses.count_items("batch", ["labels"], False)


def test_the_notice_names_what_depends_on_the_cut_and_the_switch():
    assert losses.describe_weighting(False, False, False) is None
    for flags in [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]:
        notice = losses.describe_weighting(*flags)
        words = ("averages", "adds up", "eval_loss")
        assert [word in notice for word in words] == list(flags)
        assert "loss_weighting='items'" in notice
        assert "\n" not in notice


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"labels": torch.zeros(3, 4, dtype=torch.long)}, True),
        ({"labels": torch.zeros(3, dtype=torch.long)}, False),
        ({"labels": torch.zeros(3, 4)}, False),
        ({"start_positions": torch.zeros(3, 2, dtype=torch.long)}, True),
        ({"x": torch.zeros(3, 4, dtype=torch.long)}, False),
        ((torch.zeros(3, 4, dtype=torch.long),), False),
    ],
)
def test_rows_with_several_labels_are_known(batch, expected):
    assert losses.has_item_labels(batch, ["start_positions"]) is expected


@dataclass
class Outputs:
    loss: Any


class NamedOutputs(tuple):
    loss = torch.tensor(4.0)


LOSS = torch.tensor(2.0)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"loss": LOSS, "logits": torch.ones(2)}, LOSS),
        ({"logits": torch.ones(2)}, None),
        ({"loss": None}, None),
        (ModelOutput(loss=LOSS), LOSS),
        (Outputs(LOSS), LOSS),
        (Outputs(None), None),
        ((LOSS, torch.ones(2)), LOSS),
        ([LOSS], LOSS),
        ((), None),
        (LOSS, LOSS),
        (torch.ones(2), None),
        ("loss", None),
        (None, None),
        (NamedOutputs((LOSS,)), NamedOutputs.loss),
    ],
    ids=repr,
)
def test_a_loss_is_found_wherever_a_model_puts_it(outputs, expected):
    assert losses.read_loss(outputs) is expected


CAUSES = {
    "headless": ({"headless": "BertModel"}, ["BertModel returns hidden states", "AutoModelFor"]),
    "forward ignores labels": (
        {"dataset_keys": ["x", "labels"], "batch_keys": ["x", "labels"]},
        ["received ['labels']", "compute_loss_func"],
    ),
    "no labels in the data": (
        {"dataset_keys": ["x", "z"], "batch_keys": ["x"]},
        ["the dataset has no labels", "label_names"],
    ),
    "labels dropped": (
        {"dataset_keys": ["x", "target"], "batch_keys": ["x"]},
        ["['target'] were dropped", "rename them", "keep_columns=['target']"],
    ),
    "lost in the collator": (
        {"dataset_keys": ["x", "labels"], "batch_keys": ["x"], "forward_names": ["x", "labels"]},
        ["the collator renamed or removed the labels"],
    ),
}


@pytest.mark.parametrize("case", CAUSES)
def test_a_missing_loss_is_explained_by_its_cause_and_shows_all_sides(case):
    given, words = CAUSES[case]
    settings = {
        "dataset_keys": [],
        "batch_keys": [],
        "forward_names": ["x"],
        "output_keys": ["logits"],
        "label_names": ["labels"],
    }
    message = losses.explain_missing_loss(**{**settings, **given})
    for word in [*words, "Columns of the dataset", "keys it returned: ['logits']"]:
        assert word in message
    for other, (_, other_words) in CAUSES.items():
        assert other == case or other_words[0] not in message


def test_a_dropped_label_of_the_right_name_is_not_to_be_renamed():
    message = losses.explain_missing_loss(["x", "labels"], ["x"], ["x"], ["logits"], ["labels"])
    assert "were dropped" in message
    assert "rename" not in message


def test_difference_smoothing_in_double_precision_stays_in_double_precision():
    logits, labels = logits_and_labels((50,), torch.float64)
    expected = nn.CrossEntropyLoss(label_smoothing=0.1)(logits, labels).item()
    assert losses.LabelSmoother(0.1)((logits,), labels).item() == pytest.approx(expected, rel=1e-14)
    assert OriginalSmoother(0.1)((logits,), labels).item() != pytest.approx(expected, rel=1e-14)


def test_a_smoother_is_found_where_there_is_something_to_smooth(caplog):
    assert losses.find_smoother(0.0, nn.Linear(1, 1)) is None
    assert losses.find_smoother(0.2, nn.Linear(1, 1)) == losses.LabelSmoother(0.2)
    assert losses.find_smoother(0.2, tiny.bert_classifier()) == losses.LabelSmoother(0.2)
    assert not caplog.records
    several = tiny.bert_classifier(problem_type="multi_label_classification")
    assert losses.find_smoother(0.2, several) is None
    assert "label_smoothing_factor" in caplog.text
