"""The Hub on the loopback, and the real client told where it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import loopback


@pytest.fixture
def hub() -> Iterator[loopback.LoopbackHub]:
    """A Hub of its own for one test."""
    server = loopback.LoopbackHub()
    yield server
    server.close()


@pytest.fixture
def client(hub: loopback.LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> loopback.LoopbackHub:
    """The Hub, with the client of this process pointed at it."""
    loopback.point_client_at(hub, monkeypatch)
    return hub
