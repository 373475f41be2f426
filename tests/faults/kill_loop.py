"""Train a small model, kill it with SIGKILL at random moments, resume it, and check what is left each time.

    python tests/faults/kill_loop.py --kills 1000

Each run is a forked child, so that a start costs milliseconds and many kills fall into writes. At random
moments a second process starts in the same folder. A run that reaches its end has the weights, the optimizer
state and the log history of one that nobody killed; then the next run, with another seed, begins there.

After every kill: whatever has the name of a checkpoint is intact and has weights; what a resume finds is of
the current run and the newest that it sealed; the checkpoints of the run before are there until this one
comes to their steps; and no two processes were ever training in the folder at the same time.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from footplate import Trainer, TrainerCallback, TrainingArguments
from footplate.checkpoint import find_last_checkpoint, verify_checkpoint
from footplate.checkpoint.lock import LOCK_NAME, FolderInUse
from footplate.checkpoint.runs import find_origin

MAX_STEPS = 24
LIMIT = 3
FAILED, REFUSED, TWO_AT_ONCE = 1, 3, 9  # exit codes


class Net(torch.nn.Module):
    """Some hundred thousand weights, so that writing takes its time, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = (16, 256, 256, 1)
        layers = [torch.nn.Linear(*pair) for pair in pairwise(sizes)]
        self.layers = torch.nn.Sequential(layers[0], torch.nn.Dropout(0.2), layers[1], layers[2])

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x).squeeze(-1)
        return {"loss": ((logits - labels) ** 2).mean(), "logits": logits}


def rows() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [{"x": torch.randn(16, generator=generator), "labels": torch.tensor(i % 5 / 5)} for i in range(50)]


class Oracle(TrainerCallback):
    """Ends the process if another one is training already; knows nothing of footplate's own lock."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w")  # noqa: SIM115 (held until the process ends)

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os._exit(TWO_AT_ONCE)


def train(folder: str, seed: int, resume: str | None) -> None:
    """One run in this process; its outcome is left in the folder."""
    arguments = TrainingArguments(
        folder,
        max_steps=MAX_STEPS,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=3,
        save_steps=1,
        save_total_limit=LIMIT,
        eval_strategy="steps",
        eval_steps=5,
        disable_tqdm=True,
        use_cpu=True,
        seed=seed,
    )
    oracle = Oracle(f"{folder}.oracle")
    trainer = Trainer(Net(), arguments, train_dataset=rows(), eval_dataset=rows()[:9], callbacks=[oracle])
    trainer.pop_callback(
        next(c for c in trainer.callback_handler.callbacks if type(c).__name__ == "PrinterCallback")
    )
    trainer.train(resume_from_checkpoint=resume)
    history = [
        sorted(item for item in entry.items() if not item[0].endswith(("runtime", "per_second")))
        for entry in trainer.state.log_history
    ]
    outcome = [trainer.model.state_dict(), trainer.optimizer.state_dict()["state"], repr(history)]
    torch.save(outcome, os.path.join(folder, "outcome.partial"))
    os.rename(os.path.join(folder, "outcome.partial"), os.path.join(folder, "outcome.pt"))


def fork_and_train(folder: str, seed: int, resume: str | None) -> int:
    """The id of a child that trains."""
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            train(folder, seed, resume)
            code = 0
        except FolderInUse:
            code = REFUSED
        finally:
            os._exit(code)
    return child


def wait_until(deadline: float, child: int) -> int | None:
    """The exit code of a child that ended by itself; None if it was killed at the deadline."""
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == -signal.SIGKILL else code


class Series:
    """The runs that follow one another in a folder, and what must be true of their checkpoints."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.seed = 0  # of the current run
        self.sealed = 0  # the highest step that the current run is known to have sealed
        self.earlier: set[str] = set()  # names of the runs that came to their end
        self.left: set[int] = set()  # steps that the run before left

    @property
    def resume(self) -> str | None:
        """How the current run starts: anew in a folder with an older run, until it has sealed something."""
        return "auto" if self.sealed or not self.earlier else None

    def check(self) -> None:
        """Raise if work was lost, something half done is sealed, or another run would be resumed."""
        found = find_last_checkpoint(self.folder)
        origins = {}
        for path in Path(self.folder).glob("checkpoint-*"):
            verdict = verify_checkpoint(path)
            if not verdict.is_intact or not (path / "model.safetensors").is_file():
                raise AssertionError(f"{path} has the name of a checkpoint: {verdict}")
            origins[int(path.name.split("-")[1])] = find_origin(path).run_id
        own = [step for step, run_id in origins.items() if run_id not in self.earlier]
        if len({origins[step] for step in own}) > 1:
            raise AssertionError(f"there are checkpoints of a run that nobody started: {origins}")
        newest = max(own, default=0)
        if newest < self.sealed:
            raise AssertionError(f"step {self.sealed} was sealed, and only {newest} is left")
        step = int(found.rsplit("-", 1)[1]) if found else 0
        if own and step != newest:
            raise AssertionError(f"the run has sealed step {newest}, and a resume would take {found}")
        gone = {step for step in self.left if step > newest + 1 and origins.get(step) not in self.earlier}
        if gone:
            raise AssertionError(f"at step {newest}, those of the run before are gone: {sorted(gone)}")
        self.sealed = newest

    def begin_next(self) -> None:
        """The current run came to its end."""
        run_ids = {find_origin(path).run_id for path in Path(self.folder).glob("checkpoint-*")}
        os.unlink(os.path.join(self.folder, "outcome.pt"))
        self.earlier |= run_ids
        self.left = {MAX_STEPS - number for number in range(LIMIT)}
        self.sealed, self.seed = 0, 1 - self.seed


def kill_again_and_again(num_kills: int, seed: int) -> dict[str, Any]:
    """Kill, check, resume; runs that reach their end are compared, and the next one begins."""
    chance = random.Random(seed)
    counts = dict.fromkeys(
        ("kills", "kills_while_writing", "runs_finished", "resumes", "intruders", "refused", "lost"), 0
    )
    with tempfile.TemporaryDirectory() as parent:
        expected = [
            train_undisturbed(os.path.join(parent, f"reference-{number}"), number) for number in (0, 1)
        ]
        series = Series(os.path.join(parent, "run"))
        while counts["kills"] < num_kills:
            child = fork_and_train(series.folder, series.seed, series.resume)
            counts["resumes"] += series.sealed > 0
            deadline = time.monotonic() + chance.uniform(0.02, 0.5)
            if chance.random() < 0.3:
                counts["intruders"] += 1
                counts["refused"] += intrude(series, chance.uniform(0, 0.3), chance.uniform(0.02, 0.3), child)
            code = wait_until(deadline, child)
            if code is None:
                counts["kills"] += 1
                counts["kills_while_writing"] += any(Path(series.folder).glob(".checkpoint-*.writing"))
                series.check()
                continue
            assert code in (0, REFUSED), f"a run ended with code {code}"
            series.check()
            if code == 0:
                compare(series, expected[series.seed])
                counts["runs_finished"] += 1
                series.begin_next()
    return counts


def intrude(series: Series, wait: float, live: float, child: int) -> bool:
    """Start a second process in the folder while the first may be training; whether it was refused."""
    time.sleep(wait)
    # two that both begin a new run, one after the other, would be two runs: then the first must be inside
    while series.resume is None and not has_folder(series.folder, child):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False
        time.sleep(0.001)
    second = fork_and_train(series.folder, series.seed, series.resume)
    code = wait_until(time.monotonic() + live, second)
    # it may have come before the first one, or after its end: then it is the run that goes on
    assert code in (None, 0, REFUSED), f"a second process ended with code {code}"
    return code == REFUSED


def has_folder(folder: str, child: int) -> bool:
    """Whether the lock of the folder is this child's."""
    try:
        return bool(json.loads(Path(folder, LOCK_NAME).read_text())["pid"] == child)
    except (OSError, ValueError):
        return False


def train_undisturbed(folder: str, seed: int) -> Any:
    """The outcome of a run that nobody kills."""
    child = fork_and_train(folder, seed, None)
    assert os.waitpid(child, 0)[1] == 0
    return torch.load(os.path.join(folder, "outcome.pt"), weights_only=True)


def compare(series: Series, expected: Any) -> None:
    """Raise if the run that has ended is not the one that nobody killed."""
    found = torch.load(os.path.join(series.folder, "outcome.pt"), weights_only=True)
    assert found[2] == expected[2], f"the log history differs: {found[2]} is not {expected[2]}"
    assert all(torch.equal(a, b) for a, b in zip(flat(found[:2]), flat(expected[:2]), strict=True))


def flat(value: Any) -> list[torch.Tensor]:
    """All tensors of a nested structure, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in flat(item)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000, help="how often to kill (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments (default: 0)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # imports what every child would have to
    print(json.dumps(kill_again_and_again(options.kills, options.seed)))


if __name__ == "__main__":
    sys.exit(main())
