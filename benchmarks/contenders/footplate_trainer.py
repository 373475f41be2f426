"""A Hugging Face training script; for transformers and for footplate it differs in the import line alone."""

from __future__ import annotations

from footplate import Trainer, TrainingArguments

from workloads import print_result, read_settings

settings, model, rows, clock = read_settings()
args = TrainingArguments(
    output_dir=settings.output_dir,
    max_steps=settings.steps,
    per_device_train_batch_size=settings.batch_size,
    gradient_accumulation_steps=settings.accumulation,
    learning_rate=settings.learning_rate,
    weight_decay=settings.weight_decay,
    max_grad_norm=settings.max_grad_norm,
    lr_scheduler_type="linear",
    eval_strategy="no",
    logging_strategy="no",
    save_strategy="steps" if settings.save_steps else "no",
    save_steps=settings.save_steps or 500,
    save_total_limit=2,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    ddp_find_unused_parameters=settings.finds_unused,
)
trainer = Trainer(model=model, args=args, data_collator=clock, train_dataset=rows)
trainer.train()

print_result(clock, model, rows)
