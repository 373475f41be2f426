"""What a rehearsal may change is put back: weights with gradients, files, classes, containers."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
from torch import nn

from footplate.training.keeping import KeptObjects, describe_arrays, weights_of
from footplate.training.rehearsal import NUM_BYTES, CannotPutBack


class Counting:
    """A class that counts on itself."""

    total = 0
    names: list[str] = []

    def count(self):
        type(self).total += 1
        self.names.append("again")


def test_weights_gradients_and_buffers_come_back_in_place():
    model = nn.BatchNorm1d(2)
    model.weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    before, gradient = model.weight.detach().clone(), model.weight.grad
    kept = KeptObjects([model, optimizer], weights_of(model, optimizer))
    model(torch.rand(8, 2)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight, before)
    kept.put_back()
    assert torch.equal(model.weight, before)
    assert model.weight.grad is gradient
    assert gradient.tolist() == [1.0, 1.0]
    assert model.num_batches_tracked == 0
    assert not optimizer.state


LARGE = NUM_BYTES // 4 + 1  # floats: one more than are copied


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(LARGE), requires_grad=False)
        self.register_buffer("mean", torch.zeros(LARGE))


def test_another_model_and_its_optimizer_come_back_however_large_they_are():
    teacher, critic = Teacher(), nn.Parameter(torch.ones(LARGE))
    alone = [teacher.mean]  # reached in another way too
    optimizer = torch.optim.SGD([critic], lr=0.5, momentum=0.9)
    critic.grad = torch.ones(LARGE)
    optimizer.step()
    momentum = optimizer.state[critic]["momentum_buffer"]
    kept = KeptObjects([{"teacher": teacher, "optimizer": optimizer}, alone], [])
    critic.grad.mul_(3.0)
    optimizer.step()
    teacher.weight.data.add_(1.0)
    teacher.mean.add_(1.0)
    kept.put_back()
    assert (critic[0].item(), critic[-1].item(), momentum[0].item()) == (0.5, 0.5, 1.0)
    assert not teacher.weight.any()
    assert not teacher.mean.any()
    assert critic.grad[0] == 1.0
    assert kept.find_changed() == []


def test_other_large_tensors_are_watched():
    written, read = torch.zeros(LARGE), torch.zeros(LARGE)
    kept = KeptObjects([{"written": written, "read": read}], [])
    assert float((written + read).sum()) == 0.0
    written[3] = 1.0
    kept.put_back()
    (changed,) = kept.find_changed()
    assert changed is written


def test_a_class_of_the_user_and_what_it_holds_come_back():
    counting = Counting()
    kept = KeptObjects([counting], [])
    counting.count()
    kept.put_back()
    assert (Counting.total, Counting.names) == (0, [])


def test_the_place_in_an_open_file_comes_back(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("one\ntwo\n")
    with path.open() as file:
        file.readline()
        kept = KeptObjects([{"file": file}], [])
        assert file.readline() == "two\n"
        kept.put_back()
        assert file.readline() == "two\n"


def test_a_large_container_is_kept_without_a_look_at_its_entries():
    rows = [[number] for number in range(5_000)]
    kept = KeptObjects([rows], [])
    rows.append([0])
    rows[0].append(1)
    kept.put_back()
    assert len(rows) == 5_000
    assert rows[0] == [0, 1]


def test_checksums_tell_every_value_from_another():
    state = {"a": torch.tensor([1.0, 2.0]), "b": [{"c": 3, "d": None}]}
    same = {"a": torch.tensor([1.0, 2.0]), "b": ({"c": 3, "d": None},)}
    other = {"a": torch.tensor([1.0, 2.5]), "b": [{"c": 4, "d": None}]}
    assert describe_arrays(state) == describe_arrays(same)
    now = describe_arrays(other)
    assert {path for path, value in describe_arrays(state).items() if now[path] != value} == {"a", "b[0].c"}


class Slots:
    """Holds what it counts in no dictionary."""

    __slots__ = ("late", "total")

    def __init__(self):
        self.total = 0


class MakesLate:
    """Makes on its class, in its module and in a slot what it counts with, at its first call."""

    def __init__(self):
        self.slots = Slots()

    def count(self):
        global num_counted
        num_counted = globals().get("num_counted", 0) + 1
        type(self).num_calls = getattr(type(self), "num_calls", 0) + 1
        self.slots.total += 1
        self.slots.late = 1


def test_what_a_first_call_makes_is_taken_away():
    counting = MakesLate()
    kept = KeptObjects([counting], [])
    counting.count()
    kept.put_back()
    assert not hasattr(MakesLate, "num_calls")
    assert "num_counted" not in globals()
    assert (counting.slots.total, hasattr(counting.slots, "late")) == (0, False)


def test_a_variable_of_an_outer_function_that_was_not_set_is_taken_away():
    def remember():
        nonlocal seen
        seen = 1

    def read():
        return seen

    kept = KeptObjects([remember], [])
    remember()
    kept.put_back()
    with pytest.raises(NameError):
        read()
    seen = 0


def test_numbers_that_processes_share_are_set_back():
    shared = {"value": multiprocessing.Value("i", 3), "array": multiprocessing.Array("d", [1.0, 2.0])}
    kept = KeptObjects([shared], [])
    shared["value"].value = 5
    shared["array"][1] = 7.0
    kept.put_back()
    assert (shared["value"].value, list(shared["array"])) == (3, [1.0, 2.0])


def test_a_queue_of_processes_is_left_alone():
    with pytest.raises(CannotPutBack, match="it holds a Queue"):
        KeptObjects([{"queue": multiprocessing.Queue()}], [], is_careful=True)


def test_tensors_that_cannot_be_written_to_do_no_harm():
    with torch.inference_mode():
        fixed = torch.ones(3)
    held = {"graph": torch.eye(3).to_sparse(), "mask": torch.ones(1).expand(4), "fixed": fixed}
    model = nn.Module()
    for name, value in held.items():
        model.register_buffer(name, value)
    kept = KeptObjects([model, held], weights_of(model, None))
    held["graph"].mul_(2)
    kept.put_back()
    assert [one.layout for one in kept.find_changed()] == [torch.sparse_coo]


def test_a_tensor_that_was_resized_has_its_shape_again():
    held = {"seen": torch.ones(2)}
    kept = KeptObjects([held], [])
    held["seen"].resize_(5)
    kept.put_back()
    assert held["seen"].tolist() == [1.0, 1.0]
