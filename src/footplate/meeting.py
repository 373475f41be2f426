"""How processes meet at a store that may still hold what earlier processes wrote there."""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

POLL_SECONDS = 0.01


def outlives_processes() -> bool:
    """Whether the store is the launcher's: torchrun starts failed processes again with the same one."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def choose_name(store: Store, rank: int, num_ranks: int, timeout: timedelta) -> str:
    """A name that all processes which meet now have in common, and no earlier ones had.

    Without it, processes that were started again connect to addresses of those that are gone, and wait there.
    Each process asks under a name of its own, so that an answer is for it and not for an earlier one. How
    often processes were started again does not serve as a name: launchers on several hosts count apart.

    Args:
        store: Where they meet.
        rank: The number of this process.
        num_ranks: How many there are.
        timeout: How long to wait for the others.
    """
    own = uuid.uuid4().hex
    if rank == 0:
        _answer(store, own, num_ranks, timeout)
        return own
    store.set(f"meeting/asks/{rank}", own)
    answer = f"meeting/answer/{own}"
    store.wait([answer], timeout)
    name = store.get(answer).decode()
    store.set(f"meeting/{name}/{rank}", "here")
    return name


def _answer(store: Store, name: str, num_ranks: int, timeout: timedelta) -> None:
    """Tell the name to every process that asks, until all have heard it."""
    deadline = time.monotonic() + timeout.total_seconds()
    missing, answered = list(range(1, num_ranks)), set()
    while missing:
        for rank in missing:
            if not store.check([f"meeting/asks/{rank}"]):
                continue
            asked = store.get(f"meeting/asks/{rank}").decode()
            if asked not in answered:  # the first one may be of a process that is gone
                store.set(f"meeting/answer/{asked}", name)
                answered.add(asked)
        missing = [rank for rank in missing if not store.check([f"meeting/{name}/{rank}"])]
        if missing and time.monotonic() > deadline:
            raise TimeoutError(
                f"After {timeout.total_seconds():.0f} s (ddp_timeout), {len(missing)} of {num_ranks} "
                f"processes have not come, rank {missing[0]} first. See whether they were started."
            )
        if missing:
            time.sleep(POLL_SECONDS)
