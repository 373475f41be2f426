"""Whole evaluations, or predictions, by the expert's loop and by a Trainer, in turn."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from beside import expert
from evaluation.workload import Rows, build_parts, describe

WARM_UP_ROWS = 256
BATCH_SIZE = 8
Prediction = tuple[np.ndarray, np.ndarray, float]


def read_clock(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and what it returned."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def build_expert(kind: str) -> Callable[[Rows], Any]:
    """The expert's way: rows of one width are evaluated, with the accuracy; ragged ones are predicted."""
    model, collate = build_parts(kind)

    def evaluate(rows: Rows) -> dict[str, float]:
        predictions, labels, loss = expert.evaluate(model, rows, collate, BATCH_SIZE)
        return describe(predictions, labels) | {"loss": loss}

    def predict(rows: Rows) -> Prediction:
        return expert.predict_ragged(model, rows, collate, BATCH_SIZE)

    return evaluate if kind == "fixed" else predict


def build_trainer(library: str, kind: str, output_dir: str) -> Callable[[Rows], Any]:
    """The same by the Trainer of a library."""
    api = importlib.import_module(library)
    model, collate = build_parts(kind)

    def compute_metrics(prediction: Any) -> dict[str, float]:
        return describe(prediction.predictions, prediction.label_ids)

    def evaluate(rows: Rows) -> dict[str, float]:
        metrics = trainer.evaluate(rows)
        return {name: metrics[f"eval_{name}"] for name in ("accuracy", "array_bytes", "loss")}

    def predict(rows: Rows) -> Prediction:
        found = trainer.predict(rows)
        return found.predictions, found.label_ids, found.metrics["test_loss"]

    args = api.TrainingArguments(
        output_dir, per_device_eval_batch_size=BATCH_SIZE, report_to="none", disable_tqdm=True, use_cpu=True
    )
    metrics = compute_metrics if kind == "fixed" else None
    trainer = api.Trainer(model=model, args=args, data_collator=collate, compute_metrics=metrics)
    return evaluate if kind == "fixed" else predict


def check_same(kind: str, ours: Any, others: Any) -> None:
    """Both sides must have done the same work."""
    if kind == "fixed":
        np.testing.assert_allclose(list(ours.values()), [others[name] for name in ours], rtol=1e-5)
        return
    for mine, other in zip(ours[:2], others[:2], strict=True):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_allclose(ours[2], others[2], rtol=1e-5)


def take_turns(library: str, kind: str, num_rows: int, num_turns: int, output_dir: str) -> dict[str, Any]:
    """CPU seconds of each whole pass, the first side changing from turn to turn."""
    ways = {"expert": build_expert(kind), "footplate": build_trainer(library, kind, output_dir)}
    warm_up, rows = Rows(kind, WARM_UP_ROWS), Rows(kind, num_rows)
    check_same(kind, *(way(warm_up) for way in ways.values()))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(num_turns):
        for name in sorted(ways, reverse=turn % 2 == 1):
            times[name].append(read_clock(lambda name=name: ways[name](rows))[0])
    ratios = [own / other for own, other in zip(times["footplate"], times["expert"], strict=True)]
    return times | {"ratio": ratios}


if __name__ == "__main__":
    choices = json.loads(sys.argv[1])
    names = ("library", "kind", "rows", "turns", "output_dir")
    print(json.dumps(take_turns(*(choices[name] for name in names))))
