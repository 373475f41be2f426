"""Runs of several processes, some updates of which are made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed

import footplate
from ranks_training import resuming
from replayed import contents

STEPS = (3, 7, 9, 12)


def replay_some(folder: Path, kind: str, **settings: Any) -> Any:
    """Train with checkpoints, make updates again, and say how each came out."""
    settings = {"save_strategy": "steps", "save_steps": 4, **settings}
    resuming.build(folder, kind, **settings).train()

    def describe(step: int) -> dict[str, Any]:
        found = footplate.replay(folder, step, lambda: resuming.build(folder, kind, **settings))
        return {
            "is_same": found.is_same,
            "compared": found.compared_steps,
            "loss": found.loss,
            "logged": found.mismatches == [] and step in found.compared_steps,
            "rows": [(row.rank, row.number, row.shown.get("input")) for row in found.rows],
            "losses": [row.loss for row in found.rows],
            "modules": [module.name for module in found.modules],
            "first_step": found.first_step,
        }

    torch.distributed.barrier()  # the first rank still writes the report
    before = contents(folder)
    found = [describe(step) for step in STEPS]
    return {"found": found, "is_untouched": contents(folder) == before}


def rows(folder: Path) -> Any:
    return replay_some(folder, "rows")


def workers(folder: Path) -> Any:
    return replay_some(folder, "rows", dataloader_num_workers=2, eval_strategy="no")


def stream(folder: Path) -> Any:
    return replay_some(folder, "stream")


def sharded(folder: Path) -> Any:
    return replay_some(folder, "rows", fsdp="full_shard")
