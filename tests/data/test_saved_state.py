"""States that a checkpoint can hold: copied, plain, and put back."""

from __future__ import annotations

import io
import random
from collections import OrderedDict

import numpy as np
import pytest
import torch

from footplate.data.saved_state import find_state, has_state, is_plain, plain_copy


class Holder:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


PLAIN = {
    "words": ["a", b"b", ("c", None)],
    3: {"deep": [1, 2.5, True, 2**80, -1, 1j]},
    "tensor": torch.arange(3),
}


def test_a_plain_copy_is_equal_and_shares_nothing():
    assert is_plain(PLAIN)
    assert not is_plain(OrderedDict(PLAIN))  # it would come back as another type
    copied = plain_copy(PLAIN)
    assert copied["words"] == PLAIN["words"]
    assert copied[3] == PLAIN[3]
    copied[3]["deep"].append(9)
    copied["tensor"][0] = 7
    assert len(PLAIN[3]["deep"]) == 6
    assert PLAIN["tensor"][0] == 0


def test_a_plain_copy_can_be_read_without_running_code():
    file = io.BytesIO()
    torch.save(plain_copy(PLAIN), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert {key: loaded[key] for key in ("words", 3)} == {key: PLAIN[key] for key in ("words", 3)}


@pytest.mark.parametrize("value", [np.zeros(2), np.float64(1), {1, 2}, random.Random(), object, lambda: 0])
def test_what_could_not_be_read_back_safely_is_left_out_and_named_once(value, caplog):
    holder = type(f"Holder{type(value).__name__}", (Holder,), {})({"deep": [value]})
    assert find_state(holder) is None
    assert find_state(holder) is None
    assert [record.message.count(type(value).__name__) for record in caplog.records] == [2]
    assert not is_plain({"deep": [value]})
    with pytest.raises(TypeError):
        plain_copy(value)


def test_state_is_what_can_be_told_and_put_back():
    assert has_state(Holder(1))
    assert not has_state(object())
    assert find_state(Holder({"place": 3})) == {"place": 3}


def test_an_error_inside_state_dict_is_the_users_to_see():
    class Broken(Holder):
        def state_dict(self):
            raise TypeError("unsupported operand")

    with pytest.raises(TypeError, match="unsupported operand"):
        find_state(Broken(1))
