"""Two processes exchange gradients in the last micro-batch of an update, or in each if a setting says so."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def found(launched):
    return launched.found["syncing.gradients"]


def test_by_default_gradients_are_exchanged_in_the_last_micro_batch(found):
    first, second = found
    assert len(first["ddp, last"]["seen"]) == 2
    assert first["ddp, last"]["seen"] != second["ddp, last"]["seen"]
    assert first["fsdp, last"]["seen"] == [None, None]


@pytest.mark.parametrize("engine", ["ddp", "fsdp"])
def test_sync_each_batch_exchanges_them_in_each(found, engine):
    first, second = (part[f"{engine}, each"] for part in found)
    assert None not in first["seen"]
    assert first["seen"] == second["seen"]


def test_the_weights_are_the_same_either_way(found):
    expected = found[0]["ddp, last"]["weight"]
    for part in found:
        for run in part.values():
            assert run["weight"] == pytest.approx(expected, abs=1e-6)
