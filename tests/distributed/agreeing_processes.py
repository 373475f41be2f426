"""Two ranks that compare themselves, look for each other's files, and wait for a slow one."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from footplate.distributed import agreement
from footplate.distributed.agreement import check_agreement, find_shared_folder_problem
from footplate.distributed.hang import HangWatch
from footplate.voice import install_voice


def compare(**facts: Any) -> str:
    """What is said about facts, empty if nothing is."""
    try:
        check_agreement(facts)
    except ValueError as error:
        return str(error)
    return ""


def wait_for_slow_rank(number: int) -> None:
    """The second rank needs five seconds to read its data in step 2."""
    total = torch.ones(1)
    with HangWatch(1.5) as watch:
        for step in range(4):
            watch.beat(step, "data")
            if number == 1 and step == 2:
                time.sleep(5)
            watch.beat(step, "backward")
            torch.distributed.all_reduce(total)
    assert total.item() == 16


def main(folder: Path) -> None:
    """Write what this rank saw into a file, and end with code 0."""
    install_voice()
    torch.distributed.init_process_group("gloo")
    number = torch.distributed.get_rank()
    seen = {
        "same": compare(rows=29, arguments={"seed": 1, "names": ("a", "b")}),
        "different": compare(rows=29 + number, arguments={"seed": 1, "lr": 0.1 / (1 + number)}, version="1"),
        "one launcher": find_shared_folder_problem(folder / "nowhere" / str(number)),
    }
    os.environ["LOCAL_WORLD_SIZE"] = "1"  # as if each rank had a host of its own
    seen["shared"] = find_shared_folder_problem(folder / "shared")
    agreement.LOOK_SECONDS = (0.0, 0.2)  # there is no network file system here to wait for
    seen["apart"] = find_shared_folder_problem(folder / f"only-{number}")
    (folder / "file").touch()
    seen["no folder"] = find_shared_folder_problem(folder / "file" / "sub")
    wait_for_slow_rank(number)
    (folder / f"{number}.json").write_text(json.dumps(seen))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()  # or its threads may end too late


main(Path(sys.argv[1]))
