"""Short texts that all processes of a run can read: torch's store, asked within a limited time."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from footplate.comm import find_store, rank

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

Answer = TypeVar("Answer")

STORE_TIMEOUT = timedelta(seconds=10)

_connections: dict[str, Store] = {}  # the store of the process group, and our connection


class Board:
    """Texts by key. Every method may raise, since the process that holds the store may end at any time.

    It also may never return: torch waits without a limit for a store whose process is stopped. Threads that
    can wait call it directly; others use `ask_within`.
    """

    def __init__(self, store: Store, name: str) -> None:
        from torch._C._distributed_c10d import PrefixStore  # torch can be built without it

        self._store = PrefixStore(f"footplate/{name}", _connect_again(store))

    def write(self, key: str, text: str) -> None:
        """Put a text under a key, in place of what was there."""
        self._store.set(key, _encodable(text))

    def write_first(self, key: str, text: str) -> None:
        """Put a text under a key unless one is there: the first of several writers wins."""
        self._store.compare_set(key, "", _encodable(text))

    def read(self, key: str) -> str | None:
        """The text under a key; None if there is none."""
        if not self._store.check([key]):  # without this, reading waits until somebody writes
            return None
        return self._store.get(key).decode(errors="replace")

    def add(self, key: str, number: int) -> int:
        """Add to the number under a key, which starts at 0, and return the sum."""
        return self._store.add(key, number)


def open_board(name: str) -> Board | None:
    """The board of this name; None where no processes train together or their backend has no store."""
    store = find_store()
    return None if store is None else Board(store, name)


def is_store_in_first_rank() -> bool:
    """Whether the store ends together with rank 0; torchrun keeps it in the launcher's process instead."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def is_store_here() -> bool:
    """Whether the store ends together with this process."""
    return rank() == 0 and is_store_in_first_rank()


def ask_within(seconds: float, question: Callable[[], Answer], otherwise: Answer) -> Answer:
    """The answer to a question that may raise or never return; `otherwise` if there is none in time."""
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(question())
        except Exception:
            answers.put(otherwise)

    threading.Thread(target=ask, name="footplate-ask", daemon=True).start()
    try:
        return answers.get(timeout=seconds)
    except queue.Empty:
        return otherwise


def _connect_again(store: Store) -> Store:
    """A second connection: on a shared one, a thread has to wait as long as another one waits for a key.

    All boards of a process have the same one, since nobody waits on it: a launcher has room for a limited
    number of connections.
    """
    if not hasattr(store, "clone") or not _is_network_store(store):  # torch 2.6 cannot; files do not need it
        return store
    if _connections.get("of") is not store:
        own: Store = store.clone()
        own.set_timeout(STORE_TIMEOUT)
        _connections.update({"of": store, "own": own})
    return _connections["own"]


def _is_network_store(store: Store) -> bool:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return hasattr(store, "port")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
