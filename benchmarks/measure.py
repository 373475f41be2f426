"""Runs each measurement in a fresh process, round by round, and sums the rounds up."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 600
# settings of containers that people do not have: each printed line a system call, each import compiled anew
UNUSUAL = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
Result = dict[str, Any]
IMPORT_SCRIPT = """
import json, sys, time
exec(sys.argv[2])
print(json.dumps({"total_cpu": [time.process_time()], "total_wall": [time.monotonic() - float(sys.argv[1])]}))
"""


def run_contender(name: str, settings: Result, folder: str = "contenders") -> Result:
    """One run of `<folder>/<name>.py` in a process of its own."""
    return run_script(f"{folder}.{name}", settings | {"spawned_at": time.monotonic()})


def run_script(module: str, settings: Result, timeout_seconds: float = TIMEOUT_SECONDS) -> Result:
    """One run of a script that takes its settings as JSON, with a folder for what it writes."""
    with tempfile.TemporaryDirectory() as output_dir:
        settings = settings | {"output_dir": output_dir}
        return run_python(["-m", module, json.dumps(settings)], timeout_seconds)


def run_ranks(name: str, settings: Result) -> Result:
    """One run of a contender in several processes that torchrun starts: the mean over them, by windows."""
    with tempfile.TemporaryDirectory() as output_dir:
        settings = settings | {"spawned_at": time.monotonic(), "output_dir": output_dir}
        num_ranks = settings["ranks"]
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        found = run_python([*launcher, "-m", f"contenders.{name}", json.dumps(settings)], reads_output=False)
        if "error" in found:
            return found
        files = [Path(output_dir, f"rank-{rank}.json") for rank in range(num_ranks)]
        results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return {
        key: [statistics.fmean(values) for values in zip(*(result[key] for result in results), strict=True)]
        for key in results[0]
    }


def run_kills(library: str, num_tries: int) -> Result:
    """So many kills during a save, and what became of the resumes, counted in a process of its own."""
    return run_script("kill", {"library": library, "tries": num_tries})


def run_import(statement: str) -> Result:
    """One import statement in a process of its own, timed from process start to the statement's end."""
    return run_python(["-c", IMPORT_SCRIPT, str(time.monotonic()), statement])


def run_python(
    arguments: list[str], timeout_seconds: float = TIMEOUT_SECONDS, reads_output: bool = True
) -> Result:
    """What the child's last line of output says, or `{"error": ...}` if it gave none."""
    # one thread each: two busy threads on a small machine wait on each other and drown the difference
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for name in UNUSUAL:
        environment.pop(name, None)
    command = [sys.executable, *arguments]
    try:
        child = subprocess.run(
            command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {timeout_seconds:.0f} s"}
    if child.returncode != 0:
        return {"error": (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]}
    if not reads_output:
        return {}
    result: Result = json.loads(child.stdout.strip().splitlines()[-1])
    return result


def interleave(jobs: Mapping[str, Callable[[], Result]], num_rounds: int) -> dict[str, list[Result]]:
    """Every job once per round, each round starting with another, so that a slow minute hits all alike."""
    names = list(jobs)
    results: dict[str, list[Result]] = {name: [] for name in names}
    for index in range(num_rounds):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            show_progress(f"round {index + 1} of {num_rounds}: {name}")
            results[name].append(jobs[name]())
    show_progress("")
    return results


def show_progress(line: str) -> None:
    """Overwrite the terminal's last line; a log file gets the tables alone."""
    if sys.stderr.isatty():
        print(line.ljust(60), end="\r", file=sys.stderr, flush=True)


def summarize(results: list[Result]) -> Result:
    """Best and median of each figure over all rounds; a job that failed in one of them counts as failed."""
    errors = [result["error"] for result in results if "error" in result]
    if errors:
        return {"error": errors[0], "num_failed": len(errors)}
    figures = {key: [value for result in results for value in result[key]] for key in results[0]}
    return {
        key: {"best": min(values), "median": statistics.median(values)} for key, values in figures.items()
    }
