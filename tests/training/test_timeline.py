"""The stopwatch of a profile keeps each update by itself, and waits for a device."""

from __future__ import annotations

import time

import pytest
import torch

from footplate.training.batches import TokenCounter
from footplate.training.timeline import PARTS, BatchCount, Timeline, time_laps


def test_each_update_has_its_own_seconds():
    timeline = Timeline()
    for nap in (0.002, 0.01):
        time.sleep(nap)
        timeline.lap("data")
        time.sleep(0.003)
        timeline.add("callbacks")
        timeline.lap("callbacks")  # what the loop calls so is its own work
        timeline.end_update()
    first, second = timeline.updates
    assert list(first) == list(PARTS)
    assert 0.002 <= first["data"] < second["data"]
    assert second["data"] >= 0.01
    assert first["callbacks"] >= 0.003 > first["the loop itself"]
    assert timeline.num_laps == 6


def test_what_comes_between_two_phases_is_forgotten():
    timeline = Timeline()
    time.sleep(0.02)
    timeline.restart()
    timeline.lap("data")
    timeline.end_update()
    assert timeline.updates[0]["data"] < 0.01


def test_a_part_ends_when_the_device_is_done():
    timeline = Timeline(lambda: time.sleep(0.004))
    timeline.lap("forward")
    timeline.end_update()
    assert timeline.updates[0]["forward"] >= 0.004
    assert timeline.waited == pytest.approx(timeline.updates[0]["forward"], abs=0.002)


def test_spans_follow_each_other_without_a_gap():
    timeline = Timeline()
    timeline.spans = []
    for part in ("data", "forward", "backward"):
        timeline.lap(part)
    assert [part for part, _, _ in timeline.spans] == ["data", "forward", "backward"]
    assert all(
        before[2] == after[1] for before, after in zip(timeline.spans, timeline.spans[1:], strict=False)
    )


def test_a_lap_takes_microseconds():
    assert 0 < time_laps(1000) < 1e-4


def test_rows_tokens_and_padding_of_an_update():
    count = BatchCount(TokenCounter("all"), "input_ids", lambda batch: len(batch["input_ids"]))
    batch = {"input_ids": torch.ones(2, 4, dtype=torch.long)}
    assert count.count({**batch, "attention_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])}) == 8
    count.count({**batch, "attention_mask": torch.ones(2, 4)})
    count.end_update()
    count.count(batch)  # nobody says what is padding
    count.end_update()
    (rows, tokens, used), second = count.updates
    assert (rows, tokens, int(used)) == (4, 16, 14)
    assert second == (2, 8, None)
    assert count.mode == "all"


def test_data_without_tokens_has_rows_alone():
    count = BatchCount(TokenCounter("no"), "input_ids", lambda batch: 3)
    count.count({"input_ids": torch.ones(3, 5)})  # no whole numbers: features, not tokens
    count.count([torch.ones(3)])
    count.end_update()
    assert count.updates == [(6, 0, None)]
