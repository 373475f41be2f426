"""What scripts call themselves on folders of checkpoints: sort them, remove old ones, load shards."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from torch import nn

from footplate.checkpoint.files import Folder
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.checkpoint.tensors import read_shards
from footplate.checkpoint.weights import SAFE_WEIGHTS_NAME, WEIGHTS_NAME, LoadResult

MIN_SECONDS_APART = 1.0  # file systems that make up the times give all folders the same


def sort_checkpoints(
    output_dir: Folder,
    checkpoint_prefix: str = PREFIX_CHECKPOINT_DIR,
    use_mtime: bool = False,
    best_model_checkpoint: str | None = None,
) -> list[str]:
    """The folders of checkpoints, oldest first; the best one, if given, stands last but one.

    Args:
        output_dir: The folder of a run.
        checkpoint_prefix: What the names begin with, before the step.
        use_mtime: Sort by the time of change instead of by step.
        best_model_checkpoint: The folder that must not be among the oldest.
    """
    found = _find_steps(output_dir, checkpoint_prefix)
    if use_mtime:
        times = {path: os.path.getmtime(path) for path in found}
        is_told = len(times) < 2 or max(times.values()) - min(times.values()) >= MIN_SECONDS_APART
        found = times if is_told else found
    ordered = sorted(found, key=lambda path: (found[path], path))
    best = None if best_model_checkpoint is None else str(Path(best_model_checkpoint))
    if best in ordered[:-1]:
        ordered.remove(best)
        ordered.insert(len(ordered) - 1, best)
    return ordered


def _find_steps(output_dir: Folder, prefix: str) -> dict[str, float]:
    matches = {
        str(path): re.fullmatch(rf"{re.escape(prefix)}-([0-9]+).*", path.name)
        for path in _folders(output_dir)
    }
    return {path: float(match[1]) for path, match in matches.items() if match}


def _folders(output_dir: Folder) -> list[Path]:
    folder = Path(output_dir)
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def rotate_checkpoints(
    output_dir: Folder,
    save_total_limit: int | None = None,
    best_model_checkpoint: str | None = None,
    use_mtime: bool = False,
    checkpoint_prefix: str = PREFIX_CHECKPOINT_DIR,
) -> None:
    """Delete the oldest checkpoints until at most `save_total_limit` stay, never the newest or the best.

    Args:
        output_dir: The folder of a run.
        save_total_limit: How many may stay; all if None or not positive.
        best_model_checkpoint: The folder that stays in any case.
        use_mtime: Sort by the time of change instead of by step.
        checkpoint_prefix: What the names begin with, before the step.
    """
    if save_total_limit is None or save_total_limit <= 0:
        return
    checkpoints = sort_checkpoints(output_dir, checkpoint_prefix, use_mtime)
    kept = set(checkpoints[-1:])
    if best_model_checkpoint is not None:
        kept.add(str(Path(best_model_checkpoint)))
    num_surplus = max(0, len(checkpoints) - max(save_total_limit, len(kept)))
    for path in [path for path in checkpoints if path not in kept][:num_surplus]:
        shutil.rmtree(path, ignore_errors=True)


def load_sharded_checkpoint(
    model: nn.Module, folder: Folder, strict: bool = True, prefer_safe: bool = True
) -> Any:
    """Load weights that are split over several files with an index, one file at a time.

    Args:
        model: The module to load into.
        folder: The folder with the index and its files.
        strict: Refuse, before anything is loaded, if names are missing or unknown.
        prefer_safe: Take safetensors where the folder has both kinds.
    """
    names = [
        name for name in (SAFE_WEIGHTS_NAME, WEIGHTS_NAME) if Path(folder, f"{name}.index.json").is_file()
    ]
    if not names:
        raise ValueError(
            f"{folder} has no index of shards: looked for {SAFE_WEIGHTS_NAME}.index.json and "
            f"{WEIGHTS_NAME}.index.json."
        )
    chosen = names[0] if prefer_safe else names[-1]
    own = set(model.state_dict())
    stored = {name for _, state in read_shards(Path(folder), [chosen]) for name in state}
    result = LoadResult(sorted(own - stored), sorted(stored - own))
    if strict and any(result):
        raise RuntimeError(
            f"The weights in {folder} do not fit {type(model).__name__}. Missing: {result.missing_keys}. "
            f"Not known: {result.unexpected_keys}. Pass strict=False to load the rest."
        )
    for _, state in read_shards(Path(folder), [chosen]):
        model.load_state_dict(state, strict=False)
    return result
