"""What is kept of a training step, for how long, and which updates are accepted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from footplate.training.watch import StepData, TrainWindow, accepts_update

ONE, NAN, INFINITE = (torch.tensor(value) for value in (1.0, math.nan, math.inf))


def test_step_data_lies_in_the_shared_dictionary_until_it_is_released():
    shared = {"trainer": "stays"}
    data = StepData(shared)
    assert shared == {"trainer": "stays", "inputs": None, "outputs": None, "loss": None}
    loss = torch.ones((), requires_grad=True) * 2
    data.keep({"x": 1}, "outputs", loss)
    assert (shared["inputs"], shared["outputs"], shared["loss"].item()) == ({"x": 1}, "outputs", 2.0)
    assert not shared["loss"].requires_grad
    data.release()
    assert shared == {"trainer": "stays", "inputs": None, "outputs": None, "loss": None}


def mean_and_rows(prediction):
    assert isinstance(prediction.predictions, np.ndarray)
    return {"mean": float(prediction.predictions.mean()), "rows": len(prediction.label_ids)}


def window_of(num_batches, *values):
    window = TrainWindow(num_batches)
    for value in values:
        window.add(torch.full((2, 3), float(value), requires_grad=True), torch.zeros(2))
    return window


def test_the_window_holds_the_last_batches():
    assert window_of(2, 1, 2, 6).compute(mean_and_rows) == {"mean": 4.0, "rows": 4}
    assert window_of(5, 1, 2, 6).compute(mean_and_rows) == {"mean": 3.0, "rows": 6}


def test_the_window_keeps_no_graph():
    (logits, _), *_ = window_of(2, 1).contents()
    assert not logits.requires_grad


def test_ragged_batches_are_padded_and_bfloat16_is_read():
    window = TrainWindow(2)
    window.add(torch.ones(1, 2, dtype=torch.bfloat16), torch.ones(1, 2, dtype=torch.long))
    window.add(torch.ones(1, 3, dtype=torch.bfloat16), torch.ones(1, 3, dtype=torch.long))
    seen = []
    window.compute(lambda prediction: seen.append(prediction) or {})
    assert seen[0].label_ids.tolist() == [[1, 1, -100], [1, 1, 1]]
    assert seen[0].predictions.tolist() == [[1, 1, -100], [1, 1, 1]]


def test_several_logits_stay_a_tuple():
    window = TrainWindow(2)
    for _ in range(2):
        window.add((torch.ones(1, 2), torch.zeros(1)), torch.ones(1))
    seen = []
    window.compute(lambda prediction: seen.append(prediction) or {})
    assert [part.shape for part in seen[0].predictions] == [(2, 2), (2,)]


def test_a_batch_without_logits_or_labels_is_not_kept():
    window = TrainWindow(2)
    window.add(None, torch.ones(1))
    window.add(torch.ones(1), None)
    assert window.contents() == []
    assert window.compute(mean_and_rows) == {}


def test_without_a_function_there_are_no_metrics():
    assert window_of(2, 1).compute(None) == {}


def test_contents_can_be_put_back_and_the_size_stays():
    window = window_of(2, 1, 2)
    before = window.contents()
    window.add(torch.full((2, 3), 9.0), torch.zeros(2))
    window.replace(before)
    assert window.compute(mean_and_rows)["mean"] == 1.5
    window.add(torch.full((2, 3), 4.0), torch.zeros(2))
    assert window.compute(mean_and_rows)["mean"] == 3.0


@pytest.mark.parametrize("policy", ["skip", "raise"])
def test_a_finite_update_is_accepted(policy):
    assert accepts_update(policy, ONE, ONE, 1)


@pytest.mark.parametrize(("norm", "loss"), [(NAN, ONE), (INFINITE, ONE), (ONE, NAN), (ONE, -INFINITE)])
def test_an_update_that_is_not_finite_is_skipped_or_raises_with_its_values(norm, loss):
    assert not accepts_update("skip", norm, loss, 7)
    with pytest.raises(FloatingPointError, match=r"Update 7 .*on_nonfinite='skip'") as caught:
        accepts_update("raise", norm, loss, 7)
    assert f"loss {float(loss)}" in str(caught.value)
    assert f"norm {float(norm)}" in str(caught.value)
