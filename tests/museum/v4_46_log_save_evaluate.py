"""Logs, evaluates and saves in its own way; evaluates only where the training loss has fallen since."""

import time

import torch
from transformers import BertConfig, BertForSequenceClassification

from footplate import SaveStrategy, Trainer, TrainingArguments, set_seed


class ThriftyTrainer(Trainer):
    last_loss = float("inf")
    num_skipped = 0
    seconds = 0.0

    def _maybe_log_save_evaluate(self, tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval, start_time):
        if self.control.should_log and self.state.global_step > self._globalstep_last_logged:
            logs = {}
            tr_loss_scalar = self._nested_gather(tr_loss).mean().item()
            tr_loss -= tr_loss
            logs["loss"] = round(tr_loss_scalar / (self.state.global_step - self._globalstep_last_logged), 4)
            if grad_norm is not None:
                logs["grad_norm"] = grad_norm.detach().item() if isinstance(grad_norm, torch.Tensor) else grad_norm
            logs["learning_rate"] = self._get_learning_rate()

            self._total_loss_scalar += tr_loss_scalar
            self._globalstep_last_logged = self.state.global_step
            self.store_flos()
            self.log(logs, start_time)
            self.seconds = time.time() - start_time
            if logs["loss"] >= self.last_loss and self.control.should_evaluate:
                self.control.should_evaluate = False
                self.num_skipped += 1
            self.last_loss = logs["loss"]

        metrics = None
        if self.control.should_evaluate:
            metrics = self._evaluate(trial, ignore_keys_for_eval)
            is_new_best_metric = self._determine_best_metric(metrics=metrics, trial=trial)
            if self.args.save_strategy == SaveStrategy.BEST:
                self.control.should_save = is_new_best_metric

        if self.control.should_save:
            self._save_checkpoint(model, trial)
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)


args = TrainingArguments(
    output_dir="thrifty",
    eval_strategy="steps",
    eval_steps=5,
    logging_steps=5,
    save_strategy="best",
    metric_for_best_model="loss",
    greater_is_better=False,
    max_steps=40,
    per_device_train_batch_size=16,
    learning_rate=5e-3,
    max_grad_norm=0.5,
    report_to="none",
    use_cpu=True,
)
set_seed(args.seed)
ids = torch.randint(1, 20, (96, 5)).tolist()
rows = [{"input_ids": row, "labels": int(row[0] > 9)} for row in ids]
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
    )
)
trainer = ThriftyTrainer(model=model, args=args, train_dataset=rows[:64], eval_dataset=rows[64:])
result = trainer.train()
