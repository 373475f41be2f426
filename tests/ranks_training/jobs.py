"""Runs jobs one after the other in this process, one of several or alone, and writes down what each gave.

torchrun --nproc-per-node 2 jobs.py FOLDER equal.plain deciding.early_stop ...
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import ranks
from ranks_training import small

SCRIPT = Path(__file__)


def run(folder: Path, names: list[str]) -> None:
    """Run each job in a folder of its own, and leave its result in a file of this rank."""
    for name in names:
        part, job = name.split(".")
        function = getattr(importlib.import_module(f"ranks_training.{part}"), job)
        result = function(folder / name)
        (folder / f"{name}.{small.RANK}.json").write_text(json.dumps(small.plain(result)))


def together(folder: Path, *names: str, options: Sequence[str] = ()) -> dict[str, list[Any]]:
    """What each rank of two gave for each job, all jobs in one launch, with options for torchrun."""
    result = launch(folder, *names, options=options)
    found = {name: read(folder, name) for name in names}
    missing = [name for name, parts in found.items() if len(parts) < 2]
    assert result.code == 0, f"{missing} did not end well:\n{result.output[-6000:]}"
    return found


def launch(folder: Path, *names: str, options: Sequence[str] = ()) -> ranks.Result:
    """What a launch of two processes printed, and how it ended."""
    folder.mkdir(parents=True, exist_ok=True)
    return ranks.torchrun(SCRIPT, str(folder), *names, options=options)


def alone(folder: Path, *names: str) -> dict[str, Any]:
    """What this process gives for each job by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    run(folder, list(names))
    return {name: read(folder, name)[0] for name in names}


def read(folder: Path, name: str) -> list[Any]:
    """The results of a job that are there, in the order of ranks."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}.*.json"))]


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
