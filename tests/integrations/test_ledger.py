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


def test_it_works_as_on_windows(tmp_path, monkeypatch):
    """Windows has no `os.pwrite`, and replaces no file that is open."""
    monkeypatch.delattr(os, "pwrite")
    opened, replace = [], os.replace
    open_ = os.open

    def open_and_count(path, flags, *args, **kwargs):
        opened.append(open_(path, flags, *args, **kwargs))
        return opened[-1]

    def is_open(descriptor):
        try:
            os.fstat(descriptor)
        except OSError:
            return False
        return True

    def replace_closed(*paths):
        assert not any(map(is_open, opened))
        replace(*paths)

    monkeypatch.setattr("footplate.integrations.ledger.os.open", open_and_count)
    monkeypatch.setattr("footplate.integrations.ledger.os.replace", replace_closed)
    ledger = Ledger(tmp_path, "wandb")
    for length in (1, 1, 2000, 3):
        ledger.note("a", "s" * length, length)
        assert ledger.find("a") == Entry("a", "s" * length, length)


HOSTILE = [
    b'{"run_id": ["a"], "service_id": null, "num_sent": 1}',
    b'{"run_id": "a", "service_id": {"a": 1}, "num_sent": 1}',
    b'{"run_id": "a", "service_id": null, "num_sent": "many"}',
    b'{"run_id": "a", "service_id": null, "num_sent": -1}',
    b'{"run_id": "a", "service_id": null, "num_sent": 1e999}',
    b"[" * 50_000,
    b" " * 100_000,
]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"run_id": "a"}', b"\xff", *HOSTILE])
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


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_not_waited_for_and_makes_room(tmp_path, caplog, kind):
    ledger = Ledger(tmp_path, "wandb")
    ledger.path.parent.mkdir()
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}
    make[kind](ledger.path)
    assert ledger.find("a") is None
    assert str(ledger.path) in caplog.text
    ledger.note("a", None, 2)
    assert ledger.find("a") == Entry("a", None, 2)


def test_a_link_in_place_of_a_draft_is_not_followed(tmp_path):
    ledger = Ledger(tmp_path, "wandb")
    precious = tmp_path / "precious"
    precious.write_text("mine")
    ledger.path.parent.mkdir()
    ledger.path.with_suffix(".new").symlink_to(precious)
    ledger.note("a", None, 2)
    assert precious.read_text() == "mine"
