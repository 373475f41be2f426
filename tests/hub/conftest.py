"""The Hub on the loopback, and the real client told where it is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

spec = importlib.util.spec_from_file_location("loopback", Path(__file__).with_name("loopback.py"))
assert spec is not None
assert spec.loader is not None
loopback = importlib.util.module_from_spec(spec)
sys.modules.setdefault("loopback", loopback)
spec.loader.exec_module(loopback)


@pytest.fixture
def hub() -> Iterator[Any]:
    """A Hub of its own for one test."""
    server = loopback.LoopbackHub()
    yield server
    server.close()


@pytest.fixture
def client(hub: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The Hub, with the client of this process pointed at it: variables are read only when it is imported."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", loopback.TOKEN)
    return hub
