"""Measuring an update changes nothing in it, and says what is there."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from footplate.instruments.activations import ActivationWatch, mark_of, tensors_in
from footplate.instruments.compare import find_differences
from footplate.instruments.measures import RowMeasure, UpdateMeasure, join_ranks
from footplate.instruments.weights import WeightsBefore, note_gradients, own_parameters


class Shared(nn.Module):
    """Two layers of one weight, one layer of another, a buffer that counts, a nested answer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.three = (nn.Linear(3, 3) for _ in range(3))
        self.two.weight = self.one.weight
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        hidden = self.norm(self.two(torch.relu(self.one(x))))
        hidden = hidden.relu_()  # in place: a hook on the tensor must not mind
        return {"parts": (hidden, [self.three(hidden)]), "count": torch.tensor(3)}


def loss_of(model, x):
    torch.manual_seed(1)
    return model(x)["parts"][1][0].square().mean()


def test_a_watched_update_has_the_same_bits():
    x, plain, watched = torch.randn(5, 3), Shared(), Shared()
    watch = ActivationWatch(watched, keeps_marks=True)
    watch.begin_batch({"x": x})
    losses = [loss_of(plain, x), loss_of(watched, x)]
    for loss in losses:
        loss.backward()
    assert torch.equal(*losses)
    for own, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(own.grad, other.grad)
    watch.detach()
    assert not any(module._forward_hooks for module in watched.modules())
    assert list(watch.measures) == ["one", "two", "norm", "three", "(model)"]
    assert len(watch.measures["(model)"].marks["output"]) == 16


def test_the_first_module_and_the_rows_with_nan_are_found():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    watch = ActivationWatch(model)
    for batch in (torch.ones(2, 3), torch.tensor([[1.0] * 3, [math.inf] * 3, [1.0] * 3])):
        watch.begin_batch(batch)
        model(batch)
    watch.detach()
    first = next(measure for measure in watch.measures.values() if measure.num_nonfinite)
    assert (first.name, first.rows) == ("0", [3])  # rows count on over micro-batches
    assert (watch.first_module_of(3), watch.first_module_of(0)) == ("0", None)
    assert first.low is not None


def test_a_gradient_that_is_not_finite_is_found_where_backward_meets_it_first():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    watch = ActivationWatch(model)
    output = model(torch.ones(2, 3))
    (output.square().sum() * 0.0).sqrt().backward()  # its slope at 0 is infinite, and 0 times that is NaN
    watch.detach()
    assert not any(measure.num_nonfinite for measure in watch.measures.values())
    assert watch.first_nonfinite_gradient == "2"  # the inner one of the two that gave this tensor


def test_gradients_and_updates_belong_to_the_first_module_of_a_parameter():
    model, x = Shared(), torch.randn(5, 3)
    before, measures = WeightsBefore(model), {}
    loss_of(model, x).backward()
    note_gradients(model, measures)
    with torch.no_grad():
        model.three.weight += 1.0
    before.note_update(measures)
    assert measures["three"].update_norm == pytest.approx(3.0)
    assert measures["one"].update_norm == 0.0
    assert [name for _, own in own_parameters(model) for name, _ in own].count("two.weight") == 0
    total = math.sqrt(sum(measure.grad_norm**2 for measure in measures.values()))
    assert total == pytest.approx(float(nn.utils.get_total_norm([p.grad for p in model.parameters()])))


def test_weights_and_buffers_are_put_back():
    model, x = Shared(), torch.randn(5, 3)
    kept, before = copy.deepcopy(model.state_dict()), WeightsBefore(model)
    loss_of(model, x).backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert int(model.norm.num_batches_tracked) == 1
    before.put_back()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert before.find_nonfinite() is None
    with torch.no_grad():
        model.three.bias[0] = math.nan
    assert WeightsBefore(model).find_nonfinite() == "three"


def test_marks_tell_bits_apart():
    one = torch.tensor([0.0, 1.0], dtype=torch.bfloat16)
    assert mark_of({"x": one}) == mark_of([one.clone()])
    assert mark_of(one) != mark_of(one.float())
    assert mark_of(one) != mark_of(-one)  # -0.0 equals 0.0, and has other bits
    assert len(list(tensors_in({"a": [one, (one, {"b": one})], "c": "text"}))) == 3


def measured(**options):
    """One update of a small model, as an instrument sees it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    if options.get("changes_weight"):
        with torch.no_grad():
            model[1].bias += 1.0
    x = torch.full((2, 3), options.get("value", 1.0))
    before, watch = WeightsBefore(model), ActivationWatch(model, keeps_marks=True)
    before.note_marks(watch.measures)
    watch.begin_batch(x)
    model(x).square().mean().backward()
    note_gradients(model, watch.measures, keeps_marks=True)
    torch.optim.SGD(model.parameters(), lr=options.get("lr", 0.1)).step()
    before.note_update(watch.measures, keeps_marks=True)
    watch.detach()
    rows = [RowMeasure(0, place, number) for place, number in enumerate(options.get("rows", (4, 5)))]
    return UpdateMeasure(modules=list(watch.measures.values()), rows=rows, batch_marks=[mark_of(x)])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, []),
        ({"lr": 0.2}, [("update", "0")]),
        ({"rows": (4, 6)}, [("rows", "")]),
        ({"value": 2.0}, [("batch", ""), ("output", "0"), ("gradient", "1"), ("update", "0")]),
        ({"changes_weight": True}, [("weights", "1"), ("output", "1"), ("gradient", "1"), ("update", "0")]),
    ],
)
def test_two_updates_differ_where_the_first_thing_differs(options, found):
    differences = find_differences(measured(), measured(**options))
    assert [(entry.what, entry.module) for entry in differences] == found


def test_measures_survive_a_file():
    measure = measured()
    again = UpdateMeasure.from_dict(measure.to_dict())
    assert again == measure
    assert find_differences(measure, again) == []


def test_the_parts_of_several_ranks_are_joined():
    parts = [measured(), measured(value=3.0)]
    parts[0].loss, parts[1].loss = 1.0, 3.0
    parts[1].modules[0].num_nonfinite, parts[1].modules[0].rows = 2, [1]
    whole = join_ranks(parts)
    assert (whole.loss, [row.rank for row in whole.rows]) == (2.0, [0, 0, 1, 1])
    assert whole.modules[0].rows == [3]
    assert whole.find_first_nonfinite() is whole.modules[0]
