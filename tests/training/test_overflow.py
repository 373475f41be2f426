"""The first layer with a value that is not finite is found."""

from __future__ import annotations

import pytest
import torch
import transformers.debug_utils as original
from torch import nn

from footplate.training.overflow import DebugUnderflowOverflow, detect_overflow, get_abs_min_max


class Divides(nn.Module):
    """Gives infinity where its input is 0."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return 1 / x, None


class Model(nn.Module):
    """Three layers, of which the second may overflow."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(2, 2, bias=False), Divides()
        self.last = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x))[0])


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if "e+" in line or "e-" in line or "None" in line]


@pytest.mark.parametrize("library", [DebugUnderflowOverflow, original.DebugUnderflowOverflow])
def test_the_run_stops_at_the_layer_and_shows_those_before(library, capsys):
    model = Model()
    library(model)
    model(torch.ones(1, 2))
    with pytest.raises(ValueError, match="DebugUnderflowOverflow"):
        model(torch.zeros(1, 2))
    printed = capsys.readouterr().out
    assert "Detected inf/nan during batch_number=1" in printed
    assert "output[0] has infs" in printed
    assert "second Divides" in printed
    assert printed.rstrip().count("last Linear") == 1  # of the batch before; this one did not get there


def test_the_figures_are_those_of_the_original(capsys):
    shown = []
    for library in (DebugUnderflowOverflow, original.DebugUnderflowOverflow):
        model = Model()
        library(model)
        with pytest.raises(ValueError):
            model(torch.zeros(1, 2))
        shown.append(lines_of(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert len(shown[0]) >= 5


def test_a_batch_can_be_printed_whole_and_the_run_ended_after_it(capsys):
    model = Model()
    DebugUnderflowOverflow(model, trace_batch_nums=[1], abort_after_batch_num=1)
    model(torch.ones(1, 2))
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="stops after 2 batches"):
        model(torch.ones(1, 2))
    assert capsys.readouterr().out.count("Linear") == 2


def test_values_are_told(capsys):
    assert detect_overflow(torch.tensor([float("nan"), float("inf")]), "x")
    assert capsys.readouterr().out.splitlines() == ["x has nans", "x has infs"]
    assert not detect_overflow(torch.ones(2), "x")
    value = torch.tensor([-3.0, 0.5])
    assert get_abs_min_max(value, "x") == original.get_abs_min_max(value, "x")
