"""Keep what an evaluation has predicted if its metrics fail: a file beside the checkpoints."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from footplate.disk import replacing

logger = logging.getLogger(__name__)

FOLDER_NAME = "failed_evaluation"
MAX_BYTES = 512 * 2**20
LARGEST_SHARE = 0.1  # of the space that is free on the disk


def rescue_predictions(
    output_dir: str | os.PathLike[str], name: str, step: int, error: Exception, **collected: Any
) -> None:
    """Save what was collected, and say where it is and how to load it; never raises.

    Args:
        output_dir: The folder of the run.
        name: Names the file: the evaluation's prefix. A later failure under this name replaces it.
        step: The updates made so far.
        error: What failed.
        collected: Arrays by name, or nested lists, tuples and mappings of them; None is left out.
    """
    try:
        arrays = {key: array for key, value in collected.items() for key, array in _flatten(key, value)}
        path = Path(output_dir, FOLDER_NAME, f"{_file_name(name)}.npz").absolute()
        _check_size(sum(array.nbytes for array in arrays.values()), path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            contents: dict[str, Any] = {"step": np.array(step), **arrays}
            np.savez(file, **contents)
    except Exception as failure:
        logger.error("compute_metrics failed, and what it was given was not kept: %s.", failure)
        return
    names = [key for key in arrays if key != "indices"]
    advice = (
        f"compute_metrics failed at step {step}. What it was given is in {path}, as {', '.join(names)}. To "
        f"try your function on it: data = numpy.load({str(path)!r}), then "
        "compute_metrics(EvalPrediction(data['predictions'], data['label_ids']))."
    )
    logger.error("%s", advice)
    if hasattr(error, "add_note"):
        error.add_note(advice)


def _flatten(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays in a nested structure, with names such as `predictions.1`."""
    if isinstance(value, np.ndarray) and value.dtype != object:  # objects would be pickled
        yield name, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _flatten(f"{name}.{key}", entry)
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from _flatten(f"{name}.{index}", entry)


def _check_size(num_bytes: int, path: Path) -> None:
    folder = next(parent for parent in path.parents if parent.is_dir())
    limit = min(MAX_BYTES, int(LARGEST_SHARE * shutil.disk_usage(folder).free))
    if num_bytes > limit:
        raise ValueError(f"it has {num_bytes:,} bytes, and at most {limit:,} are written")


def _file_name(name: str) -> str:
    """A name that is safe as that of a file."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:100] or "eval"
