"""Files of predictions: a line for each row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from footplate.tasks.common.recipe import Row


def save_numbered(answers: Sequence[Row], path: Path) -> None:
    """Write a line for each answer: its number and what it says first."""
    lines = ["index\tprediction"]
    for index, answer in enumerate(answers):
        value = next(iter(answer.values()))
        lines.append(f"{index}\t{f'{value:3.3f}' if isinstance(value, float) else value}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def save_json_lines(answers: Sequence[Row], folder: Path) -> None:
    """Write a JSON value for each answer to `predictions.jsonl`."""
    lines = [json.dumps(answer, ensure_ascii=False) for answer in answers]
    (folder / "predictions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
