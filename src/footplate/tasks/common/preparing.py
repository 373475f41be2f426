"""From rows to features: on all cores, with progress, kept for the next start."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import footplate
from footplate.tasks.common.problems import BadRow, TaskError, describe_bad_rows

if TYPE_CHECKING:
    from footplate.tasks.common.flags import DataFlags
    from footplate.tasks.common.recipe import Recipe

logger = logging.getLogger(__name__)

ROWS_PER_PROCESS = 2000  # a process takes longer to start than it takes to prepare fewer rows
# flags that say which rows are read, and not what is made of them; the rows have a fingerprint of their own
SOURCES = {"overwrite_cache", "preprocessing_num_workers", "show_samples", "skip_bad_rows", "streaming"}


def drop_bad_rows(rows: Any, recipe: Recipe, source: str) -> Any:
    """The rows that the recipe can use; raises if there are others, unless they may be skipped."""
    if not hasattr(rows, "__len__") or not recipe.has_own("find_problem"):
        return rows

    def find(row: dict[str, Any]) -> dict[str, str]:
        return {"problem": recipe.find_problem(row) or ""}

    found = map_rows(rows, find, recipe, "find_problem", f"Checking {Path(source).name}", batched=False)
    places = rows._indices.column(0).to_pylist() if rows._indices is not None else range(len(rows))
    wrong = [(index, text) for index, text in enumerate(found["problem"]) if text]
    bad = sorted(BadRow(places[index] + 1, text) for index, text in wrong)  # as the file counts them
    if not bad:
        return rows
    text = describe_bad_rows(source, bad, len(rows))
    if len(bad) == len(rows):
        raise TaskError(text)
    if not recipe.data.skip_bad_rows:
        raise TaskError(f"{text} Mend them, or leave them out with --skip_bad_rows.")
    logger.warning("%s They are left out.", text)
    left_out = {index for index, _ in wrong}
    return rows.select([index for index in range(len(rows)) if index not in left_out])


def build_features(rows: Any, recipe: Recipe, split: str) -> Any:
    """What the recipe makes of rows, stage by stage; looked up where it was made before."""
    for stage in recipe.stages(split):
        rows = map_rows(rows, stage, recipe, f"{split}.{stage.__name__}", f"Preparing {split} rows")
    transform = recipe.transform(split)
    if transform is None:
        return rows
    if hasattr(rows, "with_transform"):
        return rows.with_transform(transform)
    return rows.map(transform, batched=True, remove_columns=list(rows.column_names or []))


def empty_splits(features: Mapping[str, Any]) -> list[str]:
    """The splits of whose rows nothing is left."""
    return [split for split, part in features.items() if hasattr(part, "__len__") and not len(part)]


def map_rows(
    rows: Any, function: Callable[..., Any], recipe: Recipe, name: str, title: str, batched: bool = True
) -> Any:
    """Apply a function to rows; its columns replace theirs."""
    columns = list(rows.column_names or [])
    if not hasattr(rows, "__len__"):
        return rows.map(function, batched=batched, batch_size=recipe.rows_at_once, remove_columns=columns)
    is_ordered = function.__name__ in recipe.ordered_stages
    num_processes = plan_processes(recipe.data, len(rows), is_ordered)
    key = f"{rows._fingerprint} {name} {num_processes} {describe_making(recipe)}"
    with recipe.args.main_process_first(desc=title.lower()):
        return rows.map(
            function,
            batched=batched,
            batch_size=recipe.rows_at_once,
            remove_columns=columns,
            num_proc=num_processes if num_processes > 1 else None,
            load_from_cache_file=not recipe.data.overwrite_cache,
            try_original_type=False,  # a column of texts may become one of numbers
            new_fingerprint=hashlib.sha256(key.encode()).hexdigest()[:32],
            desc=title,
        )


def plan_processes(data: DataFlags, num_rows: int, is_ordered: bool = False) -> int:
    """How many processes prepare so many rows; one by itself, if the result depends on how rows are split."""
    if data.preprocessing_num_workers is not None:
        return max(1, min(data.preprocessing_num_workers, num_rows))
    if is_ordered:
        return 1
    has_affinity = hasattr(os, "sched_getaffinity")
    num_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min(num_cores, num_rows // ROWS_PER_PROCESS))


def describe_making(recipe: Recipe) -> str:
    """All that decides what rows become: code, flags, processor, and what was learned from the data."""
    flags = {name: value for name, value in asdict(recipe.data).items() if name not in SOURCES}
    learned = {name: value for name, value in vars(recipe).items() if is_plain(value)}
    parts = [
        footplate.__version__,
        source_of(type(recipe)),
        flags,
        learned,
        describe_processor(recipe.processor),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@cache
def read_shared_source() -> str:
    """The text of all files that tasks are written in."""
    home = Path(footplate.__file__).parent
    files = [*home.glob("tasks/**/*.py"), *home.glob("qa/*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(files))


def source_of(kind: type) -> str:
    """The text of the files that a recipe and all that tasks share are written in."""
    texts = [read_shared_source()]
    modules = {parent.__module__ for parent in kind.__mro__ if parent is not object}
    for name in sorted(name for name in modules if not name.startswith("footplate.")):
        try:
            texts.append(inspect.getsource(sys.modules[name]))
        except (OSError, TypeError, KeyError):  # typed into a console
            texts.append(name)
    return "\n".join(texts)


def is_plain(value: Any) -> bool:
    """Whether a value is text, a number or a container of these."""
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool))


def describe_processor(processor: Any) -> str:
    """A tokenizer or processor as text; without its last padding and truncation, which each call sets."""
    backend = getattr(processor, "backend_tokenizer", None)
    if backend is not None:
        saved = {**json.loads(backend.to_str()), "padding": None, "truncation": None}
        return f"{type(processor).__name__} {processor.padding_side} {json.dumps(saved, sort_keys=True)}"
    if hasattr(processor, "get_vocab"):
        return f"{type(processor).__name__} {sorted(processor.get_vocab().items())}"
    parts = [getattr(processor, name, None) for name in ("tokenizer", "feature_extractor", "image_processor")]
    inner = [describe_processor(part) for part in parts if part is not None]
    text = processor.to_json_string() if hasattr(processor, "to_json_string") else repr(processor)
    return " ".join([type(processor).__name__, *inner] if inner else [text])
