"""Buffers that forward changes are set back when an update is given up."""

from __future__ import annotations

import torch
from torch import nn

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
    assert keeper._copies == []
    BufferKeeper().note()
    BufferKeeper().restore()
