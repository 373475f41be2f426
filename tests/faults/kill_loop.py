"""Train a small model, kill it with SIGKILL at random moments, resume it, and check what is left each time.

    python tests/faults/kill_loop.py --kills 1000

Each run is a forked child, so that a start costs milliseconds and many kills fall into writes. After every
kill: whatever was sealed is found, and intact. A run that reaches its end has the weights, the optimizer
state and the log history of one that nobody killed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from footplate import Trainer, TrainingArguments
from footplate.checkpoint import find_last_checkpoint, verify_checkpoint

MAX_STEPS = 24


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


def train(folder: str) -> None:
    """One run in this process, from the newest intact checkpoint; its outcome is left in the folder."""
    arguments = TrainingArguments(
        folder,
        max_steps=MAX_STEPS,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=3,
        save_steps=1,
        save_total_limit=3,
        eval_strategy="steps",
        eval_steps=5,
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(Net(), arguments, train_dataset=rows(), eval_dataset=rows()[:9])
    trainer.pop_callback(
        next(c for c in trainer.callback_handler.callbacks if type(c).__name__ == "PrinterCallback")
    )
    trainer.train(resume_from_checkpoint="auto")
    history = [
        sorted(item for item in entry.items() if not item[0].endswith(("runtime", "per_second")))
        for entry in trainer.state.log_history
    ]
    outcome = [trainer.model.state_dict(), trainer.optimizer.state_dict()["state"], repr(history)]
    torch.save(outcome, os.path.join(folder, "outcome.partial"))
    os.rename(os.path.join(folder, "outcome.partial"), os.path.join(folder, "outcome.pt"))


def fork_and_train(folder: str) -> int:
    """The id of a child that trains."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train(folder)
            code = 0
        finally:
            os._exit(code)
    return child


def newest_sealed(folder: str) -> int:
    """The highest step under a checkpoint's own name; sealing gives it that name."""
    steps = [int(path.name.split("-")[1]) for path in Path(folder).glob("checkpoint-*")]
    return max(steps, default=0)


def check_after_kill(folder: str, sealed_before: int) -> int:
    """The step that a resume will start from; raises where work was lost."""
    sealed = newest_sealed(folder)
    found = find_last_checkpoint(folder)
    step = int(found.rsplit("-", 1)[1]) if found else 0
    if found is not None and not verify_checkpoint(found).is_intact:
        raise AssertionError(f"{found} was found and is not intact")
    if step < max(sealed, sealed_before):
        raise AssertionError(f"step {max(sealed, sealed_before)} was sealed, and only {step} is found")
    return step


def kill_again_and_again(num_kills: int, seed: int) -> dict[str, Any]:
    """Kill, check, resume; runs that reach their end are compared and begun anew."""
    chance = random.Random(seed)
    counts = {"kills": 0, "kills_while_writing": 0, "runs_finished": 0, "resumes": 0, "lost": 0}
    with tempfile.TemporaryDirectory() as parent:
        reference = os.path.join(parent, "reference")
        child = fork_and_train(reference)
        assert os.waitpid(child, 0)[1] == 0
        expected = torch.load(os.path.join(reference, "outcome.pt"), weights_only=True)
        folder, sealed = os.path.join(parent, "run"), 0
        while counts["kills"] < num_kills:
            child = fork_and_train(folder)
            counts["resumes"] += sealed > 0
            deadline = time.monotonic() + chance.uniform(0.02, 0.5)
            ended = 0
            while time.monotonic() < deadline and not ended:
                ended, status = os.waitpid(child, os.WNOHANG)
                time.sleep(0.001)
            if not ended:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                counts["kills"] += 1
                counts["kills_while_writing"] += any(Path(folder).glob(".checkpoint-*.writing"))
                sealed = check_after_kill(folder, sealed)
                continue
            assert status == 0, f"a resumed run ended with status {status}"
            found = torch.load(os.path.join(folder, "outcome.pt"), weights_only=True)
            assert found[2] == expected[2], f"the log history differs: {found[2]} is not {expected[2]}"
            assert all(torch.equal(a, b) for a, b in zip(flat(found[:2]), flat(expected[:2]), strict=True))
            counts["runs_finished"] += 1
            shutil.rmtree(folder)
            sealed = 0
    return counts


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
