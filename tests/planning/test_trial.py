"""One micro-batch without memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tiny
from footplate.planning.meter import MemoryMeter, Moment, Peaks
from footplate.planning.trial import call_for_loss, replaced_weights, try_micro_batch

CPU = torch.device("cpu")


class Wide(nn.Module):
    """Two layers, with a switch for what fake tensors cannot do."""

    def __init__(self, asks_for_value: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1000, 1000), nn.Linear(1000, 1000)
        self.asks_for_value = asks_for_value

    def forward(self, x, labels):
        x = self.second(torch.relu(self.first(x)))
        if self.asks_for_value and x.sum().item() == 123.0:
            x = x + 1
        return {"loss": (x - labels).square().mean(), "logits": x}


def batch(num_rows=500):
    return {"x": torch.zeros(num_rows, 1000), "labels": torch.zeros(num_rows, 1000)}


def highest(trial):
    return max(peaks.by_total.total for peaks in trial.peaks.values())


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_activations_are_those_of_the_real_run(device):
    with torch.device(device):
        model = Wide()
    trial = try_micro_batch(model, batch(), call_for_loss, CPU)
    real, inputs = Wide(), batch()
    with MemoryMeter(real.parameters(), inputs.values()) as meter:
        real(**inputs)["loss"].backward()
    counted = max(peaks.by_total.total for peaks in meter.peaks.values())
    assert highest(trial) == pytest.approx(counted, rel=0.05)
    assert trial.batch_bytes == 2 * 500 * 1000 * 4
    assert trial.output_bytes == 500 * 1000 * 4
    assert not trial.problem


def test_the_model_stays_as_it_was():
    model = Wide().eval()
    before = dict(model.named_parameters())
    state = torch.get_rng_state()
    try_micro_batch(model, batch(), call_for_loss, CPU)
    assert all(before[name] is value for name, value in model.named_parameters())
    assert all(value.grad is None for value in model.parameters())
    assert not model.training
    assert torch.equal(state, torch.get_rng_state())


def test_code_that_asks_for_values_is_run_for_real():
    trial = try_micro_batch(Wide(asks_for_value=True), batch(), call_for_loss, CPU)
    assert highest(trial) == pytest.approx(
        highest(try_micro_batch(Wide(), batch(), call_for_loss, CPU)), rel=0.3
    )


def test_a_model_that_fails_is_reported_and_the_rest_is_known():
    trial = try_micro_batch(Wide(), {"unknown": torch.zeros(2)}, call_for_loss, CPU)
    assert "unexpected keyword argument" in trial.problem
    assert trial.batch_bytes == 8


def test_autocast_copies_of_weights_are_counted_apart():
    trial = try_micro_batch(Wide(), batch(), call_for_loss, CPU, precision=torch.bfloat16)
    copies = max(peaks.by_total.copies for peaks in trial.peaks.values())
    assert copies == 2 * 2 * 1000 * 1001  # weights and biases of two layers


def test_units_are_counted_apart_in_forward_and_in_backward():
    model = Wide()
    trial = try_micro_batch(model, batch(), call_for_loss, CPU, units=[model.first, model.second])
    assert {("forward", 0), ("forward", 1), ("backward", 1), ("backward", 0)} <= set(trial.peaks)


def test_recomputation_lowers_activations():
    plain, again = tiny.gpt(n_ctx=32), tiny.gpt(n_ctx=32)
    again.activation_checkpointing_enable()
    ids = torch.ones(8, 32, dtype=torch.long)
    sizes = [
        highest(try_micro_batch(model, {"input_ids": ids, "labels": ids}, call_for_loss, CPU))
        for model in (plain, again)
    ]
    assert sizes[1] < 0.8 * sizes[0]


def test_shared_weights_stay_shared_and_recurrent_layers_use_the_new_ones():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "rnn": nn.LSTM(2, 2)})
    model["b"].weight = model["a"].weight
    with replaced_weights(model, torch.zeros_like):
        assert model["a"].weight is model["b"].weight
        assert model["rnn"]._flat_weights[0] is model["rnn"].weight_ih_l0
        assert not model["rnn"].weight_ih_l0.any()
    assert model["rnn"]._flat_weights[0] is model["rnn"].weight_ih_l0
    assert model["rnn"].weight_ih_l0.any()


def test_memory_is_counted_until_its_last_view_is_gone():
    with MemoryMeter() as meter:
        kept = torch.zeros(1000)
        view = kept[:10]
        del kept
        assert meter.now() == Moment(activations=4000)
        del view
        assert meter.now() == Moment()
        torch.zeros(5)
    assert meter.peaks == {("forward", None): Peaks(Moment(4000), Moment(4000))}
