"""The random state is captured, restored and left alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from footplate import rng


def draw() -> tuple[float, float, float, float]:
    """One number of each generator, and a normal one, which numpy makes in pairs."""
    return random.random(), float(np.random.rand()), float(np.random.standard_normal()), float(torch.rand(()))


@pytest.fixture(autouse=True)
def _as_before():
    with rng.scoped():
        yield


@pytest.mark.parametrize("drawn_before", range(4))
def test_what_is_restored_draws_the_same_again(drawn_before):
    for _ in range(drawn_before):
        np.random.standard_normal()
    states = rng.capture()
    expected = [draw() for _ in range(3)]
    rng.restore(states)
    assert [draw() for _ in range(3)] == expected


def test_a_normal_number_that_numpy_holds_back_is_part_of_the_state():
    """Drawing it leaves no trace in the generator's memory, so a remembered copy must not be trusted."""
    rng.seed_all(5)
    np.random.standard_normal()  # its partner is held back
    with_partner = rng.capture()
    expected = np.random.standard_normal()
    without_partner = rng.capture()
    following = np.random.standard_normal()
    rng.restore(with_partner)
    assert np.random.standard_normal() == expected
    rng.restore(without_partner)
    assert np.random.standard_normal() == following


def test_a_state_is_copied_once_while_nothing_is_drawn():
    first, second = rng.capture(), rng.capture()
    assert second["numpy"] is first["numpy"]
    np.random.rand()
    assert rng.capture()["numpy"] is not first["numpy"]


def test_another_seed_is_seen_by_the_remembered_copy():
    rng.seed_all(1)
    rng.capture()
    rng.seed_all(2)
    states = rng.capture()
    expected = np.random.rand()
    rng.restore(states)
    assert np.random.rand() == expected


def test_inside_a_scope_numbers_come_from_its_seed():
    before = rng.capture()
    with rng.scoped(seed=3):
        first = draw()
    with rng.scoped(seed=3):
        assert draw() == first
    after = draw()
    rng.restore(before)
    assert draw() == after


def test_inside_a_scope_numbers_come_from_given_states():
    states = rng.capture()
    expected = draw()
    now = rng.capture()
    with rng.scoped(states=states):
        assert draw() == expected
    following = draw()
    rng.restore(now)
    assert draw() == following


def test_plain_states_hold_no_array_and_restore_the_same():
    plain = rng.to_plain(rng.capture())
    assert type(plain["numpy"][1]) is list
    expected = draw()
    rng.restore(plain)
    assert draw() == expected


def test_a_recorder_captures_what_capture_does():
    with rng.scoped(seed=4):
        recorder = rng.Recorder()
        for number in range(100):
            torch.rand(1)
            np.random.rand()
            if number % 2:
                random.random()
            recorded, captured = recorder.capture(), rng.capture()
            assert recorded["python"] == captured["python"]
            assert torch.equal(recorded["cpu"], captured["cpu"])
            assert np.array_equal(recorded["numpy"][1], captured["numpy"][1])


def test_a_recorder_knows_that_python_drew_behind_its_back():
    with rng.scoped(seed=4):
        recorder = rng.Recorder()
        for _ in range(rng.Recorder.num_compared):
            recorder.capture()
        assert recorder.compare()
        random.random()
        assert not recorder.compare()
        random.random()
        assert recorder.capture()["python"] == random.getstate()  # from now on every time


@pytest.mark.parametrize("index", [-1, 625, 10**7])
def test_a_state_of_numpy_whose_index_lies_outside_is_refused(index):
    """numpy itself would read there, and the process would end."""
    states = rng.to_plain(rng.capture())
    kind, key, _, *rest = states["numpy"]
    with pytest.raises(ValueError, match="must be from 0 to 624"):
        rng.restore({**states, "numpy": (kind, key, index, *rest)})
