"""Reads what W&B's offline mode writes: a LevelDB log of protocol-buffer records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE_HEADER_SIZE = 7
BLOCK_SIZE = 32 * 1024
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class OfflineRun:
    """One leg of a run, as its file tells it."""

    run_id: str = ""
    project: str = ""
    name: str = ""
    group: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: list[Any] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)


def read_offline_runs(folder: str | Path) -> list[OfflineRun]:
    """Every leg below a folder, the oldest first."""
    return [read_offline_run(path) for path in sorted(Path(folder).rglob("offline-run-*/run-*.wandb"))]


def read_offline_run(path: str | Path) -> OfflineRun:
    """What one `.wandb` file holds."""
    from wandb.proto.wandb_internal_pb2 import Record

    run = OfflineRun()
    for fragment in _read_records(Path(path).read_bytes()[FILE_HEADER_SIZE:]):
        record = Record()
        record.ParseFromString(fragment)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.run_id, run.project, run.name = record.run.run_id, record.run.project, record.run.display_name
            run.group = record.run.run_group
            run.config.update(_items(record.run.config.update))
        elif kind == "config":
            run.config.update(_items(record.config.update))
        elif kind == "history":
            run.history.append(_items(record.history.item))
        elif kind == "summary":
            run.summary.update(_items(record.summary.update))
        elif kind == "metric":
            run.metrics.append(record.metric)
        elif kind == "artifact":
            run.artifacts.append(record.artifact)
    return run


def series(runs: list[OfflineRun], key: str) -> list[tuple[int, Any]]:
    """The points of one key over all legs, by W&B's own step."""
    return [(row["_step"], row[key]) for run in runs for row in run.history if key in row]


def _items(items: Any) -> dict[str, Any]:
    """Names and values; a name stands in `key`, or as a path into dictionaries in `nested_key`."""
    values: dict[str, Any] = {}
    for item in items:
        *path, name = [item.key] if item.key else item.nested_key
        inner = values
        for part in path:
            inner = inner.setdefault(part, {})
        inner[name] = json.loads(item.value_json)
    return values


def _read_records(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, their fragments joined; one that a kill cut short ends it."""
    # the blocks are counted from the start of the file, the file's own header included
    position, pieces = FILE_HEADER_SIZE, b""
    data = b"\0" * FILE_HEADER_SIZE + data
    while position + 7 <= len(data):
        left = BLOCK_SIZE - position % BLOCK_SIZE
        if left < 7:  # too little for a header: padding
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        position += 7
        if kind not in (FULL, FIRST, MIDDLE, LAST) or position + length > len(data):
            return
        piece = data[position : position + length]
        pieces = piece if kind in (FULL, FIRST) else pieces + piece
        if kind in (FULL, LAST):
            yield pieces
        position += length
