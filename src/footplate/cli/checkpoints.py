"""`footplate checkpoints DIR`: what is there, which is best, and what can be trusted."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from footplate.checkpoint import find_checkpoint_folders, load_arguments, verify_checkpoint
from footplate.state import TRAINER_STATE_NAME


@dataclass(frozen=True)
class Entry:
    """One checkpoint in the list."""

    name: str
    step: int
    is_best: bool
    is_last: bool  # the one that a resume would take
    size_bytes: int
    metric_name: str | None
    metric: float | None
    is_intact: bool
    has_manifest: bool
    reason: str


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "List the checkpoints of a run: step, best or last, size, metric, intact or not."
    parser = commands.add_parser("checkpoints", help=text, description=text)
    parser.add_argument("folder", metavar="DIR", help="The output_dir of a run.")
    parser.add_argument("--json", action="store_true", help="Print JSON instead of a table.")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the list; the exit code is 1 where there is nothing to resume from."""
    if not Path(options.folder).is_dir():
        raise ValueError(f"{options.folder!r} is no folder. Give the output_dir of a run.")
    entries = list_checkpoints(options.folder)
    if options.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
    elif entries:
        print(format_table(entries))
    else:
        print(f"There are no checkpoints in {options.folder}.")
    return 0 if any(entry.is_intact for entry in entries) else 1


def list_checkpoints(folder: str | Path) -> list[Entry]:
    """Every checkpoint of a folder, oldest first, each held against its manifest."""
    entries, states = [], {}
    for path in find_checkpoint_folders(folder):
        verdict = verify_checkpoint(path)
        states[path.name] = state = _read_state(path)
        metric_name, metric = _find_metric(path, state)
        entries.append(
            Entry(
                name=path.name,
                step=int(path.name.rpartition("-")[2]),
                is_best=False,
                is_last=False,
                size_bytes=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
                metric_name=metric_name,
                metric=metric,
                is_intact=verdict.is_intact,
                has_manifest=verdict.has_manifest,
                reason=verdict.reason,
            )
        )
    last = next((entry.name for entry in reversed(entries) if entry.is_intact), None)
    best = _find_best(states.get(last or "", {}))
    return [replace(entry, is_best=entry.name == best, is_last=entry.name == last) for entry in entries]


def format_table(entries: list[Entry]) -> str:
    """The list for people."""
    rows = [("checkpoint", "step", "", "size", "metric", "state")]
    for entry in entries:
        marks = " ".join(word for word, is_so in (("best", entry.is_best), ("last", entry.is_last)) if is_so)
        metric = "" if entry.metric is None else f"{entry.metric_name} {entry.metric:.6g}"
        state = "intact" if entry.is_intact else f"damaged: {entry.reason}"
        if entry.is_intact and not entry.has_manifest:
            state = "readable, without a manifest"
        rows.append((entry.name, str(entry.step), marks, format_size(entry.size_bytes), metric, state))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    is_number = (False, True, False, True, False, False)
    lines = []
    for row in rows:
        cells = zip(row, widths, is_number, strict=True)
        lines.append(
            "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in cells).rstrip()
        )
    return "\n".join(lines)


def format_size(num_bytes: int) -> str:
    """Bytes as people read them."""
    size = float(num_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _read_state(path: Path) -> dict[str, Any]:
    """The trainer state of a checkpoint, empty where it cannot be read: the verdict says why."""
    try:
        state = json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def _find_metric(path: Path, state: dict[str, Any]) -> tuple[str | None, float | None]:
    """What the evaluation at this checkpoint measured: the metric of the best model, or else the loss."""
    try:
        name = load_arguments(path).get("metric_for_best_model") or "loss"
    except (OSError, ValueError):
        name = "loss"
    key = str(name) if str(name).startswith("eval_") else f"eval_{name}"
    history = state.get("log_history")
    for entry in reversed(history if isinstance(history, list) else []):
        value = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(value, (int, float)) and entry.get("step") == state.get("global_step"):
            return key, float(value)
    return None, None


def _find_best(state: dict[str, Any]) -> str | None:
    """The name of the best checkpoint, as the last state tells it; by name, for folders move."""
    path, step = state.get("best_model_checkpoint"), state.get("best_global_step")
    if path:
        return Path(str(path)).name
    return None if step is None else f"checkpoint-{step}"
