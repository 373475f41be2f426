"""Running sums: means, records, refusals, and a state that goes through JSON."""

from __future__ import annotations

import json
import logging
import math

import pytest
import torch

from footplate.state import export_states, restore_states
from footplate.training.meter import Meter, Records

CPU = torch.device("cpu")
NAN = torch.tensor(math.nan)


def feed(meter, losses, first_update=0, num_micro_batches=1):
    """Losses of updates, each with a record of twice the loss at every second update."""
    for update, loss in enumerate(losses, first_update):
        for _ in range(num_micro_batches):
            meter.add(torch.tensor(loss / num_micro_batches))
            if update % 2 == 0:
                meter.record("double", 2 * loss, 1 / num_micro_batches, update)


def test_a_log_has_the_mean_since_the_last_log_and_the_run_that_of_all_updates():
    meter = Meter(CPU)
    feed(meter, [1.0, 2.0, 6.0])
    assert meter.drain(3)["loss"] == 3.0
    feed(meter, [5.0, 7.0], first_update=3)
    assert meter.drain(5)["loss"] == 6.0
    feed(meter, [3.0], first_update=5)
    assert meter.mean_loss(6) == 4.0
    assert meter.mean_loss(6) == 4.0  # reading it twice counts nothing twice


def test_micro_batches_of_an_update_are_summed_and_updates_averaged():
    meter = Meter(CPU)
    feed(meter, [1.0, 2.0, 3.0], num_micro_batches=4)
    assert meter.drain(3) == {"loss": 2.0, "double": 4.0}


def test_a_record_is_averaged_over_the_updates_that_recorded_it_and_then_gone():
    meter = Meter(CPU)
    feed(meter, [1.0, 2.0, 3.0])
    assert meter.drain(3)["double"] == (2.0 + 6.0) / 2
    feed(meter, [1.0], first_update=3)
    assert meter.drain(4) == {"loss": 1.0}


@pytest.mark.parametrize("name", ["loss", "grad_norm", "learning_rate", "epoch", "step"])
def test_a_record_may_not_take_the_name_of_a_log_entry(name):
    with pytest.raises(ValueError, match=name):
        Records().add(name, 1.0, 1.0, 1.0)


def test_a_recorded_tensor_is_cut_from_its_graph_and_read_at_the_log():
    records = Records()
    value = torch.tensor(3.0, requires_grad=True)
    records.add("value", value * 2, 1.0, 1.0)
    assert not records._sums["value"].requires_grad
    assert records.drain() == {"value": 6.0}
    assert records.drain() == {}


def test_losses_stay_tensors_until_a_log():
    meter = Meter(CPU)
    meter.add(torch.tensor(2.0))
    assert torch.is_tensor(meter.loss)
    assert meter.loss.item() == 2.0


def test_values_that_are_not_finite_are_counted_and_said_once(caplog):
    meter = Meter(CPU)
    with caplog.at_level(logging.WARNING):
        for step in (1, 2, 3):
            meter.add(NAN if step != 2 else torch.tensor(1.0))
            meter.watch(torch.tensor(math.inf))
            logs = meter.drain(step)
            assert logs["nonfinite"] == (2 if step != 2 else 1)
    assert len(caplog.records) == 1
    assert "on_nonfinite" in caplog.text
    assert meter.num_nonfinite_total == 5


def test_a_mean_after_a_log_of_nan_is_clean_again():
    meter = Meter(CPU)
    meter.add(NAN)
    assert math.isnan(meter.drain(1)["loss"])
    meter.add(torch.tensor(2.0))
    assert meter.drain(2) == {"loss": 2.0}


def test_few_values_are_held_back_however_rare_the_logs():
    meter = Meter(CPU)
    for _ in range(1000):
        meter.begin_update()
        meter.add(torch.tensor(1.0))
    meter.watch(NAN)
    assert len(meter._unchecked) < 256
    assert meter.drain(1000) == {"loss": 1.0, "nonfinite": 1}


def test_watched_values_may_be_of_any_dtype_and_shape():
    meter = Meter(CPU)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        meter.watch(torch.tensor([math.nan], dtype=dtype))
    assert meter.drain(1)["nonfinite"] == 3


def test_an_undone_update_leaves_everything_as_it_was():
    meter = Meter(CPU)
    feed(meter, [1.0])
    meter.flos, meter._num_tokens = 10.0, 7
    meter.begin_update()
    meter.add(NAN)
    meter.record("double", 5.0, 1.0, 1)
    meter.flos += 5
    meter.add_tokens(3)
    meter.undo_update()
    assert (meter.flos, meter.drain_tokens()) == (10.0, 7)
    feed(meter, [3.0], first_update=1)
    assert meter.drain(2) == {"loss": 2.0, "double": 2.0}


@pytest.mark.parametrize("is_single", [True, False])
def test_the_sum_contains_the_loss_of_the_update_under_way_until_it_is_undone(is_single):
    meter = Meter(CPU)
    feed(meter, [1.0])
    meter.begin_update(is_single)
    meter.add(torch.tensor(2.0))
    assert (float(meter.loss), float(meter.update_loss)) == (3.0, 2.0)
    meter.undo_update()
    assert float(meter.loss) == 1.0
    for _ in range(2):  # made again, in two micro-batches
        meter.add(torch.tensor(0.75))
    assert float(meter.update_loss) == 1.5
    meter.undo_update()
    assert float(meter.loss) == 1.0
    meter.add(torch.tensor(3.0))
    meter.finish_update()
    assert meter.drain(2)["loss"] == 2.0


def test_an_undone_update_may_record_again():
    meter = Meter(CPU)
    meter.begin_update()
    meter.record("part", 5.0, 1.0, 0)
    meter.undo_update()
    meter.record("part", 1.0, 0.5, 0)
    meter.record("part", 3.0, 0.5, 0)
    assert meter.drain(1)["part"] == 2.0


def test_a_refused_update_is_left_out_of_the_means_and_its_nan_is_counted():
    meter = Meter(CPU)
    feed(meter, [1.0])
    meter.begin_update()
    meter.add(NAN)
    meter.record("double", NAN, 1.0, 1)
    assert math.isnan(meter.update_loss.item())
    meter.refuse_update()
    feed(meter, [3.0], first_update=2)
    assert meter.drain(3) == {"loss": 2.0, "double": 4.0, "nonfinite": 1}
    assert meter.mean_loss(3) == 2.0


def test_the_weights_are_not_said_to_be_damaged_where_updates_were_left_out(caplog):
    meter = Meter(CPU)
    meter.begin_update()
    meter.add(NAN)
    meter.refuse_update()
    with caplog.at_level(logging.WARNING):
        meter.drain(1)
    assert "Updates left out: 1; the weights are as they were" in caplog.text
    assert "damaged" not in caplog.text


def test_a_log_of_refused_updates_alone_has_no_loss_to_average():
    meter = Meter(CPU)
    meter.begin_update()
    meter.add(NAN)
    meter.refuse_update()
    assert meter.drain(1) == {"loss": 0.0, "nonfinite": 1}


def test_the_loss_of_the_update_under_way_leaves_out_earlier_ones():
    meter = Meter(CPU)
    feed(meter, [10.0])
    meter.begin_update()
    feed(meter, [3.0], num_micro_batches=2)
    assert meter.update_loss.item() == 3.0


def test_tokens_are_counted_as_numbers_or_tensors():
    meter = Meter(CPU)
    for tokens in (3, None, torch.tensor(4)):
        meter.add_tokens(tokens)
    assert meter.drain_tokens() == 7
    assert meter.drain_tokens() == 0


def stop_and_go_on(meter):
    """A new meter with the state of another, by way of a file."""
    states = json.loads(json.dumps(export_states([meter])))
    other = Meter(CPU, first_step=3)
    restore_states([other], states)
    return other


@pytest.mark.parametrize("stop", range(1, 8))
def test_a_run_that_stops_anywhere_reports_the_same_numbers(stop):
    losses = [0.1, 0.7, math.nan, 0.3, 0.2, 0.9, 0.4, 0.8]

    def run(stops_at):
        meter, logs = Meter(CPU), []
        for update, loss in enumerate(losses):
            if update == stops_at:
                meter = stop_and_go_on(meter)
            meter.begin_update()
            feed(meter, [loss], first_update=update)
            if math.isnan(loss):
                meter.refuse_update()
            if update % 3 == 2:
                logs.append(meter.drain(update + 1))
        return logs, meter.mean_loss(len(losses)), meter.num_nonfinite_total

    assert run(stop) == run(None)


def test_the_sum_of_a_users_own_loop_is_taken_over_and_left_at_zero():
    meter = Meter(CPU)
    own = torch.tensor(6.0)
    meter.take_over(own)
    assert own.item() == 0.0
    assert meter.drain(3) == {"loss": 2.0}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_filter_logs_the_mean_of_the_finite_losses_and_how_many_were_not(restarts):
    meter = Meter(CPU, filters=True)
    for update, loss in enumerate([1.0, math.nan, 2.0, math.inf]):
        meter.begin_update(is_single=True)
        meter.add(torch.tensor(loss))
        meter.finish_update()
        if restarts and update == 1:
            states = json.loads(json.dumps(export_states([meter])))
            meter = Meter(CPU, filters=True)
            restore_states([meter], states)
    assert meter.drain(4) == {"loss": 1.5, "nonfinite": 2}
    meter.add(torch.tensor(math.nan))
    logs = meter.drain(5)
    assert math.isnan(logs["loss"])  # there is no finite one
    assert logs["nonfinite"] == 1
    meter.add(torch.tensor(3.0))
    assert meter.drain(6) == {"loss": 3.0}
