"""Takes over logging, evaluating and saving, to evaluate two sets and to keep a table of its own."""

import torch
from torch import nn

from footplate import Trainer, TrainingArguments, set_seed


class TwoSetsTrainer(Trainer):
    def __init__(self, *args, second_eval_dataset=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.second_eval_dataset = second_eval_dataset
        self.table = []

    def _maybe_log_save_evaluate(self, tr_loss, model, trial, epoch, ignore_keys_for_eval):
        if self.control.should_log:
            logs = {}
            tr_loss_scalar = self._nested_gather(tr_loss).mean().item()
            # back to zero, in place: the loop goes on adding to it
            tr_loss -= tr_loss

            logs["loss"] = round(tr_loss_scalar / (self.state.global_step - self._globalstep_last_logged), 4)
            logs["learning_rate"] = self._get_learning_rate()
            self._total_loss_scalar += tr_loss_scalar
            self._globalstep_last_logged = self.state.global_step
            self.store_flos()
            self.log(logs)

        metrics = None
        if self.control.should_evaluate:
            metrics = self.evaluate(ignore_keys=ignore_keys_for_eval)
            second = self.evaluate(
                self.second_eval_dataset, ignore_keys=ignore_keys_for_eval, metric_key_prefix="eval_far"
            )
            self._report_to_hp_search(trial, epoch, metrics)
            self.table.append((self.state.global_step, metrics["eval_loss"], second["eval_far_loss"]))

        if self.control.should_save:
            self._save_checkpoint(model, trial, metrics=metrics)
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope, self.offset = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))

    def forward(self, x, labels=None):
        prediction = self.slope * x + self.offset
        return (nn.functional.mse_loss(prediction, labels), prediction)


def points(low, high):
    return [{"x": float(x), "labels": float(2 * x - 1)} for x in torch.linspace(low, high, 40)]


args = TrainingArguments(
    output_dir="two_sets",
    evaluation_strategy="steps",
    eval_steps=10,
    logging_steps=5,
    save_steps=10,
    save_total_limit=2,
    load_best_model_at_end=True,
    per_device_train_batch_size=8,
    num_train_epochs=8,
    learning_rate=0.1,
    lr_scheduler_type="constant",
    no_cuda=True,
)
set_seed(args.seed)
trainer = TwoSetsTrainer(
    model=Line(),
    args=args,
    train_dataset=points(-1, 1),
    eval_dataset=points(-0.5, 0.5),
    second_eval_dataset=points(2, 3),
)
result = trainer.train()
