"""Kills runs with SIGKILL while they save, resumes them, and counts what comes of it.

`python -m kill '{"library": "footplate", "tries": 100, "output_dir": "..."}'` prints one line of JSON.
Each run is a forked child of a process that has imported the library: quick to start, and the kill is real.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import logging
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from workloads import build_tower

MAX_STEPS = 4
KILLED_STEP = 3  # two whole checkpoints lie before it
MAX_MISSES = 3  # per try: kills that came after the save had ended


def train(library: Any, folder: Path, resume: bool) -> str:
    """One run in this process; what it ends with, as a digest of its weights."""
    torch.manual_seed(0)
    model, rows = build_tower(MAX_STEPS, num_layers=4, width=1000)
    args = library.TrainingArguments(
        output_dir=str(folder),
        max_steps=MAX_STEPS,
        per_device_train_batch_size=1,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    library.Trainer(model=model, args=args, train_dataset=rows).train(resume_from_checkpoint=resume)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def fork_run(library: Any, folder: Path, resume: bool = False) -> int:
    """The id of a child that trains and leaves `{"weights": ...}` or `{"error": ...}` in `outcome.json`."""
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nowhere, contextlib.suppress(BaseException):
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            try:
                outcome = {"weights": train(library, folder, resume)}
            except Exception as error:
                outcome = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            Path(f"{folder}.json").write_text(json.dumps(outcome), encoding="utf-8")
        os._exit(0)
    return child


def take_outcome(child: int, folder: Path) -> dict[str, str]:
    """What a child left when it ended; the folder's own path is of no interest in a message."""
    _, status = os.waitpid(child, 0)
    path = Path(f"{folder}.json")
    if not path.exists():
        return {"error": f"ended with status {status}"}
    outcome: dict[str, str] = json.loads(path.read_text(encoding="utf-8").replace(f"{folder}/", ""))
    path.unlink()
    return outcome


def wait_for_save(child: int, folder: Path) -> float:
    """The time at which the checkpoint to be hit is begun, under its own name or a hidden one."""
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        with contextlib.suppress(FileNotFoundError):
            if any(f"checkpoint-{KILLED_STEP}" in name for name in os.listdir(folder)):
                return time.time()
        time.sleep(0.0005)
    raise RuntimeError("the run ended before it saved")


def list_files(folder: Path) -> dict[str, int]:
    """Names and sizes of a checkpoint's files; of those in JSON the names alone, as they hold times."""
    return {
        path.name: 0 if path.suffix == ".json" else path.stat().st_size
        for path in folder.glob(f"checkpoint-{KILLED_STEP}/*")
    }


def kill_while_saving(library: Any, parent: Path, num_tries: int) -> dict[str, Any]:
    """Kill at moments spread over the save, resume with `resume_from_checkpoint=True`, compare the end."""
    chance = random.Random(0)
    whole = parent / "whole"
    child = fork_run(library, whole)
    begun = wait_for_save(child, whole)
    expected = take_outcome(child, whole)
    if "error" in expected:
        return expected
    files = list_files(whole)
    ended = max(path.stat().st_mtime for path in (whole / f"checkpoint-{KILLED_STEP}").iterdir())
    counts: dict[str, Any] = {"kills": 0, "missed": 0, "failed": 0, "differs": 0, "errors": []}
    counts["save_seconds"] = ended - begun
    while counts["kills"] < num_tries and counts["missed"] < MAX_MISSES * num_tries:
        folder = parent / "run"
        child = fork_run(library, folder)
        wait_for_save(child, folder)
        time.sleep(chance.uniform(0, ended - begun))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        Path(f"{folder}.json").unlink(missing_ok=True)
        if list_files(folder) == files:
            counts["missed"] += 1
        else:
            outcome = take_outcome(fork_run(library, folder, resume=True), folder)
            counts["kills"] += 1
            counts["failed"] += "error" in outcome
            counts["differs"] += outcome.get("weights", expected["weights"]) != expected["weights"]
            counts["errors"] += [outcome["error"]] if "error" in outcome else []
        shutil.rmtree(folder)
    return counts


def main() -> None:
    """Read the settings, kill, print the counts."""
    settings = json.loads(sys.argv[1])
    library = importlib.import_module(settings["library"])
    # brings in, once, what every child would have to
    library.Trainer, library.TrainingArguments, torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    logging.disable(logging.CRITICAL)
    print(json.dumps(kill_while_saving(library, Path(settings["output_dir"]), settings["tries"])))


if __name__ == "__main__":
    main()
