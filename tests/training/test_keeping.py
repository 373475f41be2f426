"""What a rehearsal may change is put back: weights with gradients, files, classes, containers."""

from __future__ import annotations

import torch
from torch import nn

from footplate.training.keeping import KeptObjects, describe_arrays, weights_of
from footplate.training.rehearsal import NUM_BYTES


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
