"""A model as a tree: what is counted, what is folded, what is shared."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from footplate.instruments.outline import MAX_LINES, Outline


class Block(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.norm, self.line = nn.LayerNorm(width), nn.Linear(width, width)


class Stack(nn.Module):
    """Blocks between an embedding and a head that shares its weight."""

    def __init__(self, num_blocks: int = 12):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.layers = nn.ModuleList([Block() for _ in range(num_blocks)])
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("positions", torch.arange(16))


def test_equal_blocks_are_one_line_and_their_parts_are_counted_together():
    model = Stack()
    shown = [(line.depth, line.name, line.copies, line.parameters) for line in Outline(model).lines()]
    assert shown == [
        (0, "Stack", 1, 40 + 12 * 28),
        (1, "embed", 1, 40),
        (1, "layers.0 ... layers.11", 12, 12 * 28),
        (2, "norm", 12, 12 * 8),
        (2, "line", 12, 12 * 20),
        (1, "head", 1, 0),
    ]


def test_the_totals_are_those_of_torch_and_what_is_shared_counts_once():
    model = Stack()
    model.layers[3].line.weight.requires_grad_(False)
    outline = Outline(model)
    assert outline.root.parameters == sum(value.numel() for value in model.parameters())
    assert outline.root.trainable == sum(v.numel() for v in model.parameters() if v.requires_grad)
    assert outline.root.num_bytes == sum(value.nbytes for value in model.parameters())
    assert outline.trained_bytes == sum(v.nbytes for v in model.parameters() if v.requires_grad)
    assert outline.root.num_modules == len(list(model.modules()))
    assert (outline.buffers, outline.buffer_bytes) == (16, 128)
    assert outline.tied == [("head.weight", "embed.weight")]


@pytest.mark.parametrize(
    "change",
    [
        lambda block: block.line.weight.requires_grad_(False),
        lambda block: block.half(),
        lambda block: setattr(block, "line", nn.Linear(4, 5)),
        lambda block: setattr(block, "more", nn.Identity()),
        lambda block: block.register_buffer("mask", torch.ones(2)),
    ],
    ids=["frozen", "other type", "other shape", "another part", "a buffer"],
)
def test_a_block_that_differs_has_a_line_of_its_own(change):
    model = Stack(5)
    change(model.layers[2])
    names = [line.name for line in Outline(model).lines() if line.depth == 2]
    assert names == ["0 ... 1", "2", "3 ... 4"]


def test_kinds_that_take_turns_many_times_are_two_lines():
    parts: list[nn.Module] = []
    for _ in range(6):
        parts += [nn.Linear(4, 4), nn.ReLU()]
    lines = Outline(nn.Sequential(*parts)).lines()
    assert [(line.name, line.copies, line.kind) for line in lines[1:]] == [
        ("0 ... 10", 6, "Linear"),
        ("1 ... 11", 6, "ReLU"),
    ]
    few = Outline(nn.Sequential(*parts[:4])).lines()
    assert [line.kind for line in few[1:]] == ["Linear", "ReLU", "Linear", "ReLU"]


def test_a_module_in_two_places_is_counted_where_it_stands_first():
    part = nn.Linear(3, 3)
    outline = Outline(nn.ModuleDict({"first": part, "second": nn.Sequential(part)}))
    assert outline.root.parameters == 12
    assert outline.tied == [("second.0", "first")]


def test_a_part_that_refers_to_the_whole_does_not_loop():
    model = Block()
    model.line.owner = [model]
    model.line.add_module("back", model)
    outline = Outline(model)
    assert outline.root.parameters == 28
    assert outline.tied == [("line.back", "the model")]


def test_a_tree_that_is_too_long_goes_less_deep_and_says_what_is_below():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(n, 2), nn.Sequential(nn.ReLU())) for n in range(1, 31)])
    lines = Outline(model).lines()
    assert len(lines) == 31
    assert {line.num_below for line in lines[1:]} == {3}
    assert lines[0].num_below == 0
    assert len(Outline(model).lines(depth=2, limit=1000)) == 91


def test_a_tree_with_too_many_branches_ends_with_what_is_left():
    model = nn.Sequential(*[nn.Linear(n, 2) for n in range(1, 201)])
    lines = Outline(model).lines()
    assert len(lines) == MAX_LINES
    assert lines[-1].name == "... 142 more"
    assert sum(line.parameters for line in lines[1:]) == lines[0].parameters


@pytest.mark.parametrize("kind", ["script", "meta", "lazy"])
def test_unusual_models_are_counted(kind):
    model: nn.Module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    if kind == "script":
        model = torch.jit.script(model)
    elif kind == "meta":
        model = model.to("meta")
    else:
        model.append(nn.LazyLinear(4))
    outline = Outline(model)
    assert outline.root.parameters == 12
    assert [line.kind for line in outline.lines()[1:3]] == ["Linear", "ReLU"]
    assert (outline.has_meta, outline.has_lazy) == (kind == "meta", kind == "lazy")


def test_four_bits_in_a_byte_are_two_numbers():
    class State:  # as bitsandbytes describes what it has packed
        shape, quant_type = torch.Size([8, 4]), "nf4"

    model = nn.Linear(4, 8, bias=False)
    model.weight = nn.Parameter(torch.zeros(16, 1, dtype=torch.uint8), requires_grad=False)
    model.weight.quant_state = State()
    (line,) = Outline(model).lines()
    assert (line.parameters, line.num_bytes, line.dtype) == (32, 16, "nf4")


def test_what_a_journal_keeps_is_small_and_bounded():
    names = {f"{'long' * 60}{number}": nn.Linear(number + 1, 2) for number in range(500)}
    note = Outline(nn.ModuleDict(names)).to_note()
    assert len(note["lines"]) == MAX_LINES
    assert all(len(line[1]) <= 80 for line in note["lines"])


def test_thousands_of_modules_take_a_moment():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2, n % 7 + 1), nn.ReLU()) for n in range(2000)])
    start = time.process_time()
    outline = Outline(model)
    outline.lines()
    assert outline.root.num_modules == 6001
    assert time.process_time() - start < 2.0
