"""A batch on its way to the model, in every form a batch may have."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
import transformers
from accelerate.utils.memory import should_reduce_batch_size
from torch import nn
from transformers import BatchEncoding

import tiny
from footplate.training import batches

Pair = namedtuple("Pair", ["x", "y"])
A, B, C = (torch.full((2,), float(k)) for k in range(3))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], []),
        ([1], [(1, True)]),
        ([1, 2, 3], [(1, False), (2, False), (3, True)]),
        (iter("ab"), [("a", False), ("b", True)]),
    ],
)
def test_the_last_item_is_marked(items, expected):
    assert list(batches.mark_last(items)) == expected


def test_marking_reads_no_more_than_one_ahead():
    read = []

    def items():
        for k in range(5):
            read.append(k)
            yield k

    marked = batches.mark_last(items())
    assert next(marked) == (0, False)
    assert read == [0, 1]


class Echo(nn.Module):
    def forward(self, *args, **kwargs):
        return args, kwargs


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"x": 1, "y": 2}, ((), {"x": 1, "y": 2})),
        (BatchEncoding({"x": 1}), ((), {"x": 1})),
        ((1, 2), ((1, 2), {})),
        ([1, 2], ((1, 2), {})),
        (A, ((A,), {})),
        ("text", (("text",), {})),
    ],
)
def test_forward_is_called_as_the_batch_is_made(inputs, expected):
    assert batches.call_forward(Echo(), inputs) == expected


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ((torch.tensor(1.0), A), (torch.tensor(1.0), B)),
        (torch.tensor(1.0), (torch.tensor(1.0), B)),
        ((A, C), (None, None)),  # no scalar: that is no loss
        (A, (None, None)),
    ],
)
def test_a_batch_without_names_has_labels_where_outputs_begin_with_a_loss(outputs, expected):
    assert batches.loss_of_unnamed((A, B), outputs, None) == expected


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"loss": torch.tensor([1.0, 3.0]), "logits": A}, 2.0),
        ({"logits": A}, None),
        ((torch.tensor(1.0), A), None),
    ],
)
def test_a_batch_with_names_has_the_loss_that_outputs_call_one(outputs, expected):
    loss, labels = batches.loss_of_unnamed({"x": A, "y": B}, outputs, B)
    assert labels is B
    assert (None if loss is None else float(loss)) == expected


TOKEN_BATCHES = {
    "with a mask": {
        "input_ids": torch.tensor([[5, 6, 0], [7, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 0], [1, 0, 0]]),
    },
    "without a mask": {"input_ids": torch.tensor([[5, 6, 0], [7, 0, 0]])},
    "without the input": {"x": torch.ones(3)},
}


class PadsWithZero:
    pad_token_id = 0


@pytest.mark.parametrize("pads", [True, False])
@pytest.mark.parametrize("mode", ["all", "non_padding"])
@pytest.mark.parametrize("case", TOKEN_BATCHES)
def test_tokens_are_counted_as_by_the_original(case, mode, pads, tmp_path):
    processing = PadsWithZero() if pads else None
    original = transformers.Trainer(
        model=tiny.Regression(),
        args=tiny.arguments(tmp_path, transformers, include_num_input_tokens_seen=mode),
        processing_class=processing,
        data_collator=list,
    )
    original._track_num_input_tokens(TOKEN_BATCHES[case])
    found = batches.TokenCounter(mode, None, PadsWithZero() if pads else None).count(TOKEN_BATCHES[case])
    assert int(found or 0) == original.state.num_input_tokens_seen


def test_a_batch_that_is_no_mapping_counts_no_tokens():
    assert batches.TokenCounter("all").count((A,)) is None


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"input_ids": A}, "padding too: batches have no attention_mask"),
        ({"x": A}, "a batch has no 'input_ids'"),
    ],
    ids=["no mask", "no main input"],
)
def test_what_is_not_counted_as_asked_for_is_said_once(batch, words, caplog):
    counter = batches.TokenCounter("non_padding")
    counts = [counter.count(batch) for _ in range(3)]
    assert counts == [A.numel() if "input_ids" in batch else None] * 3
    (record,) = caplog.records
    assert "include_num_input_tokens_seen='non_padding'" in record.getMessage()
    assert words in record.getMessage()


def test_what_can_be_counted_is_counted_without_a_word(caplog):
    batches.TokenCounter("non_padding").count({"input_ids": A, "attention_mask": A})
    batches.TokenCounter("non_padding", None, PadsWithZero()).count({"input_ids": A})
    batches.TokenCounter("all").count({"input_ids": A})
    batches.TokenCounter("no").count({"x": A})
    assert not caplog.records


ROWS = torch.arange(10).reshape(5, 2)


@pytest.mark.parametrize("max_rows", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    ("batch", "read"),
    [
        ({"x": ROWS, "labels": ROWS[:, 0]}, lambda piece: piece["labels"].tolist()),
        ({"x": ROWS, "names": list("abcde")}, lambda piece: piece["names"]),
        ({"x": ROWS, "more": {"deep": ROWS}}, lambda piece: piece["more"]["deep"].tolist()),
        ((ROWS, ROWS[:, 0]), lambda piece: piece[1].tolist()),
        ([ROWS, ROWS[:, 0]], lambda piece: piece[1].tolist()),
        (ROWS, lambda piece: piece.tolist()),
    ],
    ids=["mapping", "texts", "nested", "tuple", "list", "tensor"],
)
def test_the_pieces_of_a_batch_are_the_batch(batch, read, max_rows):
    pieces = batches.split_batch(batch, max_rows)
    values = [read(piece) for piece in pieces]
    assert [value for piece in values for value in piece] == read(batch)
    assert [len(piece) for piece in values] == [len(chunk) for chunk in ROWS.split(max_rows)]
    assert all(type(piece) is type(batch) for piece in pieces)


def test_what_is_not_per_row_goes_into_every_piece():
    batch = {"x": ROWS, "scale": torch.tensor(3.0), "weights": torch.ones(7), "mode": "mean", "sizes": [1, 2]}
    for piece in batches.split_batch(batch, 2):
        assert {key: value for key, value in piece.items() if key != "x"} == {
            key: value for key, value in batch.items() if key != "x"
        }


def test_a_named_tuple_stays_one():
    first, *_ = batches.split_batch(Pair(ROWS, ROWS[:, 0]), 2)
    assert isinstance(first, Pair)
    assert first.x.tolist() == ROWS[:2].tolist()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("XPU out of memory."),
        RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        ValueError("CUDA out of memory."),
        RuntimeError(),
    ],
    ids=repr,
)
def test_a_lack_of_memory_is_recognised_as_by_accelerate(error):
    assert batches.is_out_of_memory(error) is should_reduce_batch_size(error)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("any text")], ids=repr)
def test_errors_that_mean_a_lack_of_memory_by_their_class_are_recognised(error):
    assert batches.is_out_of_memory(error)
