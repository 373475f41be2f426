"""Evaluation by `Trainer.evaluate`; for transformers and for footplate it differs in the import line."""

from __future__ import annotations

from typing import Any

from footplate import Trainer, TrainingArguments

from evaluation.workload import Weight, collate, mean_accuracy, now, print_result, read_settings

settings, model, rows = read_settings()
sizes: list[int] = []


def compute_metrics(prediction: Any) -> dict[str, float]:
    """The accuracy, and on the way the size of what it is given."""
    sizes.append(prediction.predictions.nbytes + prediction.label_ids.nbytes)
    return {"accuracy": mean_accuracy(prediction.predictions, prediction.label_ids)}


args = TrainingArguments(
    output_dir=settings.output_dir,
    per_device_eval_batch_size=settings.batch_size,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    eval_memory_limit=settings.memory_limit,
)
trainer = Trainer(
    model=model, args=args, data_collator=collate, eval_dataset=rows, compute_metrics=compute_metrics
)
weight, start = Weight(), now()
metrics = trainer.evaluate()
print_result(settings, now() - start, weight.stop(), metrics["eval_accuracy"], sizes[0])
