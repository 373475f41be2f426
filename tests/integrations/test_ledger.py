"""What a tracker has got, kept on disk through kills."""

from __future__ import annotations

import os
import signal

import pytest

from footplate.integrations.ledger import Entry, Ledger


def test_what_was_noted_is_found_by_the_run_it_is_about(tmp_path):
    ledger = Ledger(tmp_path, "wandb")
    assert ledger.find("a") is None
    ledger.note("a", "service-1", 3)
    ledger.note("a", "service-1", 4, is_ended=True)
    assert Ledger(tmp_path, "wandb").find("a") == Entry("a", "service-1", 4, True, False)
    assert ledger.find("b") is None
    assert Ledger(tmp_path, "mlflow").find("a") is None
    assert [path.name for path in (tmp_path / "trackers").iterdir()] == ["wandb.json"]


def test_entries_of_any_length_follow_each_other(tmp_path):
    ledger = Ledger(tmp_path, "tensorboard")
    for length in (5, 2000, 400, 600, 1):
        ledger.note("r" * length, "s" * length, length)
        assert ledger.find("r" * length) == Entry("r" * length, "s" * length, length)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"run_id": "a"}', b"\xff"])
def test_a_damaged_entry_counts_as_none_and_is_replaced(tmp_path, damage):
    ledger = Ledger(tmp_path, "wandb")
    ledger.note("a", None, 1)
    ledger.path.write_bytes(damage)
    assert ledger.find("a") is None
    ledger.note("a", None, 2)
    assert ledger.find("a") == Entry("a", None, 2)


def test_a_kill_leaves_the_last_entry_or_the_one_before(tmp_path):
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        ledger = Ledger(tmp_path, "wandb")
        for number in range(10**9):
            ledger.note("a", "service", number + 1)
            os.write(tell, b".")
    num_told = sum(len(os.read(told, 64)) for _ in range(20))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(tell)
    while rest := os.read(told, 65536):
        num_told += len(rest)
    entry = Ledger(tmp_path, "wandb").find("a")
    assert entry is not None
    assert entry.num_sent in (num_told, num_told + 1)
