"""Texts in a real store, which may be slow, stopped or gone."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from torch.distributed import HashStore, TCPStore

from footplate.distributed.board import Board, ask_within, open_board


@pytest.fixture
def store():
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_texts_are_read_by_all_and_the_first_writer_wins(store):
    first, second = Board(store, "a"), Board(store, "a")
    assert first.read("key") is None
    first.write_first("key", "mine")
    second.write_first("key", "theirs")
    assert second.read("key") == "mine"
    second.write("key", "newer")
    assert first.read("key") == "newer"
    assert Board(store, "b").read("key") is None
    assert first.add("count", 2) + second.add("count", 1) == 5


def test_any_text_can_be_written():
    board = Board(HashStore(), "a")
    board.write("key", "Größe \ud800 \n")
    assert board.read("key") == "Größe \\ud800 \n"


def test_a_board_answers_while_another_thread_waits_on_the_store(store):
    def wait() -> None:
        with pytest.raises(RuntimeError):
            store.wait(["never written"], timedelta(seconds=1))

    thread = threading.Thread(target=wait)
    board = Board(store, "a")
    thread.start()
    time.sleep(0.1)
    start = time.monotonic()
    board.write("key", "text")
    assert time.monotonic() - start < 0.5
    assert thread.is_alive()
    thread.join()


def test_without_processes_there_is_no_board():
    assert open_board("a") is None


def test_a_question_that_raises_or_never_returns_has_the_other_answer():
    def fail() -> str:
        raise RuntimeError("the store is gone")

    assert ask_within(1, lambda: "yes", "no") == "yes"
    assert ask_within(1, fail, "no") == "no"
    start = time.monotonic()
    assert ask_within(0.1, lambda: str(time.sleep(1)), "no") == "no"
    assert time.monotonic() - start < 0.8
