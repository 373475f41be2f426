"""All rows of a batch in readable form, whatever they are."""

from __future__ import annotations

import torch

from footplate.samples.batch import SampleBatch
from footplate.samples.shown import show_all
from footplate.samples.text import TextReader


def test_rows_are_shown_as_those_of_their_task():
    batch = SampleBatch({"x": torch.ones(2, 3)}, torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    shown = show_all(batch, 2)
    assert [row["correct"] for row in shown] == [True, False]
    assert shown[0]["input"] == "1 1 1"


def test_rows_whose_tokenizer_fails_are_shown_as_numbers():
    class Broken:
        def decode(self, ids):
            raise RuntimeError("no such token")

    batch = SampleBatch(
        {"input_ids": torch.tensor([[4, 5], [6, 7]])},
        torch.tensor([0, 1]),
        torch.tensor([[1.0, 0.0], [2.0, 0.0]]),
        reader=TextReader(Broken()),
    )
    assert [row["input"] for row in show_all(batch, 2)] == ["4 5", "6 7"]


def test_what_cannot_be_shown_is_empty():
    assert show_all(SampleBatch({"x": torch.ones(2, 3)}, None, None), 5) == [{}] * 5
