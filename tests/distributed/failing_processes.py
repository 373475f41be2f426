"""A loop of collectives in which one rank fails, in the way and on the rank that the command line names."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed

from footplate.distributed.failures import FailureWatch
from footplate.voice import install_voice


def fail(way: str, watch: FailureWatch) -> None:
    """Do what the rank that fails does."""
    print(f"raised at {time.time()}", flush=True)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        raise ValueError("the answer is 41")
    except ValueError as error:
        if way == "linger":  # such as a rank that saves a checkpoint before it ends
            watch.announce(error)
            time.sleep(4)
        raise


def main(way: str, failing_rank: int) -> None:
    """Reduce again and again, until a rank fails in the sixth round."""
    install_voice()
    signal.signal(signal.SIGTERM, lambda *received: None)  # as in training, where SIGTERM saves first
    torch.distributed.init_process_group("gloo")
    total = torch.ones(4)
    grace = 1.0 if way == "linger" else 30.0
    with FailureWatch(grace, interval=0.2) as watch:
        for turn in range(10):
            if turn == 5 and torch.distributed.get_rank() == failing_rank:
                time.sleep(0.5)  # the other rank waits in its collective, and both have said that they live
                fail(way, watch)
            torch.distributed.all_reduce(total)


main(sys.argv[1], int(sys.argv[2]))
