"""Starts a command with a limit on its time, and reads what job.py left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
JOB = HERE / "job.py"
PYTHON = sys.executable
TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
ACCELERATE = [PYTHON, "-m", "accelerate.commands.launch"]
SET_BY_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MAX_SECONDS = 280


def launch(*commands: list[Any], max_seconds: float = MAX_SECONDS) -> list[str]:
    """Run commands at the same time and return what each printed; all must end without an error."""
    ended = launch_any(*commands, max_seconds=max_seconds)
    for code, output in ended:
        assert code == 0, output[-6000:]
    return [output for _, output in ended]


def launch_any(*commands: list[Any], max_seconds: float = MAX_SECONDS) -> list[tuple[int, str]]:
    """Run commands at the same time: the exit code of each, and what it printed."""
    started = [start(command) for command in commands]
    try:
        outputs = [process.communicate(timeout=max_seconds)[0] for process in started]
        return [(process.returncode, output) for process, output in zip(started, outputs, strict=True)]
    finally:
        for process in started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with all that it started
                process.wait()


def start(command: list[Any]) -> subprocess.Popen[str]:
    """A process in a group of its own, which sees no accelerator and no launcher around the tests."""
    kept = {name: value for name, value in os.environ.items() if name not in SET_BY_LAUNCHERS}
    return subprocess.Popen(
        [str(word) for word in command],
        env={**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def read_results(folder: Path) -> list[dict[str, Any]]:
    """What the ranks wrote, in their order."""
    files = sorted((folder / "results").glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]
