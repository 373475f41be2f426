"""The clock of one `train()` call."""

from __future__ import annotations

import time

import pytest

from footplate.training.clock import Clock


@pytest.fixture
def set_time(monkeypatch):
    """Set what `time.monotonic` returns; it starts at 0."""

    def set_seconds(seconds):
        monkeypatch.setattr(time, "monotonic", lambda: seconds)

    set_seconds(0)
    return set_seconds


def test_a_save_is_due_when_the_last_one_is_long_enough_ago(set_time):
    clock = Clock(save_every=60)
    for seconds, is_due in [(59, False), (60, True), (62, True)]:  # due until one is made
        set_time(seconds)
        assert clock.should_save() is is_due
    set_time(70)
    clock.note_save()
    for seconds, is_due in [(129, False), (130, True)]:
        set_time(seconds)
        assert clock.should_save() is is_due


def test_the_time_allowed_runs_out_and_stays_so(set_time):
    clock = Clock(max_time=100)
    set_time(90)
    clock.note_save()  # a save gives no more time
    for seconds, is_over in [(91, False), (99, False), (100, True), (500, True)]:
        set_time(seconds)
        assert clock.should_stop() is is_over


def test_without_settings_it_never_asks_for_anything(set_time):
    clock = Clock()
    set_time(1e9)
    assert not clock.should_save()
    assert not clock.should_stop()


def test_it_reads_the_time_itself():
    clock = Clock(max_time=0.02, save_every=0.01)
    assert not clock.should_stop()
    assert not clock.should_save()
    time.sleep(0.03)
    assert clock.should_stop()
    assert clock.should_save()
    clock.note_save()
    assert not clock.should_save()


def test_setting_the_date_does_not_move_it(monkeypatch):
    clock = Clock(max_time=100, save_every=100)
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert not clock.should_stop()
    assert not clock.should_save()
