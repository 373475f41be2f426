"""Two losses in one model, each logged under its own name: `log` and `_maybe_log_save_evaluate` extended."""

import math

import torch
from torch import nn

from footplate import Trainer, TrainingArguments, set_seed


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.head = nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(4, 2)

    def forward(self, values, labels=None):
        code = torch.tanh(self.encoder(values))
        reconstruction = nn.functional.mse_loss(self.decoder(code), values)
        logits = self.head(code)
        classification = nn.functional.cross_entropy(logits, labels)
        return {
            "loss": reconstruction + classification,
            "logits": logits,
            "reconstruction": reconstruction,
            "classification": classification,
        }


class MultiLossTrainer(Trainer):
    extra = None

    def compute_loss(self, model, inputs, return_outputs=False):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        if model.training:
            if self.extra is None:
                self.extra = {name: torch.tensor(0.0).to(loss.device) for name in ("reconstruction", "classification")}
            for name in self.extra:
                self.extra[name] += outputs[name].detach() / self.args.gradient_accumulation_steps
        return (loss, {"logits": outputs["logits"]}) if return_outputs else loss

    def _maybe_log_save_evaluate(self, tr_loss, model, trial, epoch, ignore_keys_for_eval):
        if self.control.should_log:
            logs = {}
            steps = self.state.global_step - self._globalstep_last_logged
            for name, value in self.extra.items():
                scalar = self._nested_gather(value).mean().item()
                value -= value
                logs[name] = scalar / max(steps, 1)
            self.log(logs)
            self.control.should_log = True
        super()._maybe_log_save_evaluate(tr_loss, model, trial, epoch, ignore_keys_for_eval)

    def log(self, logs):
        if "eval_loss" in logs:
            logs["eval_perplexity"] = math.exp(logs["eval_loss"])
        super().log(logs)


args = TrainingArguments(
    output_dir="multi",
    evaluation_strategy="steps",
    eval_steps=10,
    logging_steps=5,
    max_steps=40,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=1e-2,
    save_strategy="no",
    report_to="none",
    no_cuda=True,
)
set_seed(args.seed)
values = torch.randn(64, 8)
rows = [{"values": row, "labels": int(row[0] + row[1] > 0)} for row in values]
trainer = MultiLossTrainer(model=Autoencoder(), args=args, train_dataset=rows, eval_dataset=rows[:20])
trainer.train()
