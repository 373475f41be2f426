"""One launch of two processes for what takes little time each: searches, shared runs, hardest rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import loopback
from ranks_training import jobs

SHORT = (
    *("searching.pruned", "searching.by_chance", "sharing.unshared", "sharing.pushed", "sharing.dead"),
    *("hardest.shared", "hardest.sharded", "hardest.uneven", "hardest.failing"),
    "syncing.gradients",
)


class Launched(NamedTuple):
    """What each rank gave for each job, the folder of all of them, and the Hub that they pushed to."""

    found: dict[str, list[Any]]
    folder: Path
    hub: loopback.LoopbackHub


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """The short jobs, in one launch."""
    folder = tmp_path_factory.mktemp("launched")
    hub = loopback.LoopbackHub()
    variables = {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        found = jobs.together(folder, *SHORT)
    yield Launched(found, folder, hub)
    hub.close()
