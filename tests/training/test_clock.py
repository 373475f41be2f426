"""The clock of one `train()` call."""

from __future__ import annotations

import time

import pytest

from footplate.training.clock import Clock


@pytest.fixture
def start():
    """The moment that clocks made in the test start at, or a little before."""
    return time.monotonic()


def test_a_save_is_due_when_the_last_one_is_long_enough_ago(start):
    clock = Clock(save_every=60)
    assert not clock.should_save(start + 59)
    assert clock.should_save(start + 61)
    assert clock.should_save(start + 62)  # due until one is made
    clock.note_save(start + 70)
    assert not clock.should_save(start + 129)
    assert clock.should_save(start + 130)


def test_the_time_allowed_runs_out_and_stays_so(start):
    clock = Clock(max_time=100)
    clock.note_save(start + 90)  # a save gives no more time
    assert [clock.should_stop(start + seconds) for seconds in (1, 99, 101, 500)] == [False, False, True, True]
    assert clock.elapsed_seconds(start + 10) == pytest.approx(10, abs=1)


def test_without_settings_it_is_idle_and_never_asks_for_anything(start):
    clock = Clock()
    assert clock.is_idle
    assert not clock.should_save(start + 1e9)
    assert not clock.should_stop(start + 1e9)
    assert not Clock(max_time=1).is_idle
    assert not Clock(save_every=1).is_idle


def test_it_reads_the_time_itself():
    clock = Clock(max_time=0.02, save_every=0.01)
    assert not clock.should_stop()
    assert not clock.should_save()
    time.sleep(0.03)
    assert clock.should_stop()
    assert clock.should_save()
    clock.note_save()
    assert not clock.should_save()
    assert clock.elapsed_seconds() >= 0.03


def test_setting_the_date_does_not_move_it(monkeypatch):
    clock = Clock(max_time=100, save_every=100)
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert not clock.should_stop()
    assert not clock.should_save()
