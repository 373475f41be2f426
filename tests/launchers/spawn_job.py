"""A program that joins its processes by itself, without a launcher and its variables, then runs job.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.distributed
import torch.multiprocessing

sys.path.insert(0, str(Path(__file__).parent))  # also in the processes that are started
VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def work(rank: int, folder: str, num_processes: int) -> None:
    """One process: join the others by a file, and train."""
    import job

    assert not any(name in os.environ for name in VARIABLES)
    store = torch.distributed.FileStore(f"{folder}/store", num_processes)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=num_processes)
    job.main(Path(folder))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    for name in VARIABLES:
        os.environ.pop(name, None)
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    torch.multiprocessing.spawn(work, args=(sys.argv[1], 2), nprocs=2)
