"""A traced model gives the model's own results, and what cannot be traced stays as it is."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
from torch import nn

import tiny
from footplate import TrainingArguments
from footplate.training.tracing import TracedModel, is_wanted, trace

TOKENS = torch.tensor(tiny.token_rows(4))


@pytest.fixture(autouse=True)
def quiet():
    """Tracing warns of what it cannot know, and of its end in some later version of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (tiny.Regression, {"x": torch.arange(4.0), "labels": torch.ones(4)}),
        (tiny.bert_classifier, {"input_ids": TOKENS, "labels": torch.tensor([0, 1, 2, 0])}),
        (lambda: tiny.gpt(use_cache=False), {"input_ids": TOKENS, "labels": TOKENS}),
    ],
    ids=["plain", "classifier", "language model"],
)
def test_results_are_those_of_the_model_for_any_number_of_rows(make, batch):
    model = make().eval()
    traced = trace(model, batch)
    assert isinstance(traced, TracedModel)
    for num_rows in (4, 2):
        rows = {name: value[:num_rows] for name, value in batch.items()}
        with torch.no_grad():
            expected, found = model(**rows), traced(**rows)
        assert torch.equal(found["loss"], expected["loss"])
        assert torch.equal(found["logits"], expected["logits"])


def test_inputs_that_it_was_not_traced_with_are_left_out():
    traced = trace(tiny.gpt(use_cache=False).eval(), {"input_ids": TOKENS, "labels": TOKENS})
    assert isinstance(traced, TracedModel)
    counted = traced(input_ids=TOKENS, labels=TOKENS, num_items_in_batch=torch.tensor(44.0))
    assert torch.equal(counted["loss"], traced(input_ids=TOKENS, labels=TOKENS)["loss"])


def test_inputs_without_names_are_traced_by_position():
    layer = nn.Linear(3, 2).eval()
    traced = trace(layer, (torch.ones(4, 3),))
    assert torch.equal(traced(torch.ones(2, 3)), layer(torch.ones(2, 3)))
    assert torch.equal(trace(layer, torch.ones(4, 3))(torch.ones(2, 3)), layer(torch.ones(2, 3)))


class Talkative(nn.Module):
    """Returns what a graph cannot hold."""

    def forward(self, x):
        return {"logits": x, "note": "text"}


def test_a_model_that_cannot_be_traced_stays_as_it_is_with_a_warning(caplog):
    model = Talkative().eval()
    with caplog.at_level(logging.WARNING, logger="footplate"):
        assert trace(model, {"x": torch.ones(2)}) is model
    (record,) = caplog.records
    assert record.getMessage().startswith("jit_mode_eval has no effect: torch cannot trace Talkative: ")
    assert len(record.getMessage()) < 300  # torch prints all tensors


def test_a_model_of_mixed_precision_answers_in_single_precision():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        accelerator = Accelerator(cpu=True, mixed_precision="bf16")
        model = accelerator.prepare_model(tiny.bert_classifier()).eval()
        traced = trace(model, {"input_ids": TOKENS}, accelerator.autocast())
        assert isinstance(traced, TracedModel)
        with torch.no_grad():
            expected, found = model(input_ids=TOKENS)["logits"], traced(input_ids=TOKENS)["logits"]
        assert found.dtype == expected.dtype == torch.float32
        assert torch.allclose(found, expected, atol=1e-2)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("given", [True, False])
def test_the_settings_ask_for_it_by_its_old_name(given):
    assert is_wanted(TrainingArguments("runs", jit_mode_eval=given)) is given
    assert not is_wanted(TrainingArguments("runs"))
