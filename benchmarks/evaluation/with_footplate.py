"""Evaluation by `Trainer.evaluate`, as transformers and footplate have it."""

from __future__ import annotations

from typing import Any

from footplate import Trainer, TrainingArguments

from evaluation.workload import Rows, describe, measure, read_settings

settings, model, collate = read_settings()


def compute_metrics(prediction: Any) -> dict[str, float]:
    """What all contenders report."""
    return describe(prediction.predictions, prediction.label_ids)


def evaluate(rows: Rows) -> dict[str, float]:
    """One evaluation."""
    metrics = trainer.evaluate(rows)
    return {name: metrics[f"eval_{name}"] for name in ("accuracy", "array_bytes", "loss")}


args = TrainingArguments(
    output_dir=settings.output_dir,
    per_device_eval_batch_size=settings.batch_size,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    eval_memory_limit=settings.memory_limit,
)
trainer = Trainer(model=model, args=args, data_collator=collate, compute_metrics=compute_metrics)
measure(settings, evaluate)
