"""Buffers that forward changes are set back when an update is given up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from footplate.training import buffers
from footplate.training.buffers import BufferKeeper


def test_running_means_are_set_back():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    keeper = BufferKeeper(model)
    for _ in range(4):
        keeper.note()
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        model(torch.randn(8, 3))
        assert not torch.equal(model[0].running_mean, before["0.running_mean"])
        keeper.restore()
        assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
        model(torch.randn(8, 3))  # the next update counts


def test_spectral_norm_is_set_back():
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    keeper = BufferKeeper(model)
    keeper.note()
    before = [buffer.clone() for buffer in model.buffers()]
    model(torch.randn(2, 4))
    keeper.restore()
    assert all(map(torch.equal, model.buffers(), before))


def test_a_buffer_that_forward_replaces_is_set_back():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self):
            self.count = self.count + 1

    model = Counts()
    keeper = BufferKeeper(model)
    keeper.note()
    model()
    keeper.restore()
    assert model.count == 0
    model()
    keeper.note()
    assert model.count == 1
    model()
    keeper.restore()
    assert model.count == 1


def test_what_never_changes_is_copied_once_and_let_go():
    model = nn.Module()
    model.register_buffer("mask", torch.ones(5))
    keeper = BufferKeeper(model)
    keeper.note()
    keeper.note()
    assert keeper._places == []
    BufferKeeper().note()
    BufferKeeper().restore()


class Holds(nn.Module):
    """Holds a buffer, and does something with it in each forward."""

    def __init__(self, buffer, change=lambda module: None):
        super().__init__()
        self.register_buffer("held", buffer)
        self.change = change

    def forward(self):
        self.change(self)


def in_inference_mode():
    with torch.inference_mode():
        return torch.ones(3)


SPECIAL = {
    "coordinates": lambda: torch.eye(3).to_sparse(),
    "compressed rows": lambda: torch.eye(3).to_sparse_csr(),
    "one value for all": lambda: torch.ones(1).expand(5),
    "of inference": in_inference_mode,
    "without values": lambda: torch.ones(3, device="meta"),
}


def undo_every_other_call(model, num_rounds):
    """The buffer is the former one after each call that is undone, however the others change it."""
    keeper = BufferKeeper(model)
    for _ in range(num_rounds):
        keeper.note()
        before = model.held
        model()
        keeper.restore()
        assert model.held is before
        model()


@pytest.mark.parametrize("name", SPECIAL)
def test_buffers_that_cannot_be_written_to_do_no_harm(name):
    """Matrices of graphs and masks are registered so."""
    buffer = SPECIAL[name]()
    for model in (Holds(buffer), Holds(buffer, lambda module: setattr(module, "held", SPECIAL[name]()))):
        undo_every_other_call(model, 3)


def test_a_lazy_buffer_is_kept_once_it_has_values():
    model = nn.LazyBatchNorm1d(affine=False)
    keeper = BufferKeeper(model)
    keeper.note()
    model(torch.randn(8, 3))
    keeper.note()
    before = model.running_mean.clone()
    model(torch.randn(8, 3))
    keeper.restore()
    assert torch.equal(model.running_mean, before)


def test_a_buffer_may_go_and_come_back():
    def turn(module):
        module.held = torch.ones(2) if module.held is None else None

    undo_every_other_call(Holds(torch.zeros(2), turn), 4)


def test_a_buffer_may_be_removed_for_good():
    model = Holds(torch.zeros(2), lambda module: module._buffers.pop("held", None))
    keeper = BufferKeeper(model)
    keeper.note()
    model()
    keeper.restore()
    assert model.held.tolist() == [0.0, 0.0]
    model()
    for _ in range(3):
        keeper.note()
        keeper.restore()
        assert "held" not in model._buffers


def test_an_update_that_was_undone_says_nothing_of_what_is_constant():
    model = nn.BatchNorm1d(3)
    keeper = BufferKeeper(model)
    keeper.note()
    model(torch.randn(8, 3))
    keeper.restore()
    for _ in range(3):
        keeper.note()
        before = model.running_mean.clone()
        model(torch.randn(8, 3))
        keeper.restore()
        model(torch.randn(8, 3))
        keeper.restore()  # made again, and undone again
        assert torch.equal(model.running_mean, before)
        model(torch.randn(8, 3))


def test_buffers_of_many_bytes_are_copied_only_once_they_were_seen_to_change(monkeypatch):
    """Quantized weights are registered so: a copy of them might not fit."""
    monkeypatch.setattr(buffers, "BYTES_AT_FIRST", 100)
    model = nn.Module()
    model.weights, model.queue = Holds(torch.ones(50)), Holds(torch.ones(50), lambda it: it.held.add_(1))
    model.small = Holds(torch.ones(5))
    keeper = BufferKeeper(model)
    keeper.note()
    assert sum(place._copy is not None for place in keeper._places) == 1
    model.queue()
    keeper.note()
    assert [place._tensor is model.queue.held for place in keeper._places] == [True]
    model.queue()
    keeper.restore()
    assert model.queue.held.tolist() == [2.0] * 50
