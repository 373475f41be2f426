"""The callback that also evaluates the training set at the end of each epoch, so that both can be plotted."""

from copy import deepcopy

import numpy as np
import torch
from torch import nn

from footplate import Trainer, TrainerCallback, TrainingArguments, set_seed


class TrainSetCallback(TrainerCallback):
    def __init__(self, trainer) -> None:
        super().__init__()
        self._trainer = trainer

    def on_epoch_end(self, args, state, control, **kwargs):
        if control.should_evaluate:
            control_copy = deepcopy(control)
            self._trainer.evaluate(eval_dataset=self._trainer.train_dataset, metric_key_prefix="train")
            return control_copy


class TwoMoons(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, points, labels=None):
        logits = self.net(points)
        if labels is None:
            return (logits,)
        return (nn.functional.cross_entropy(logits, labels), logits)


def make_points(count, seed):
    rng = np.random.RandomState(seed)
    angles, side = rng.rand(count) * np.pi, rng.randint(0, 2, count)
    x = np.where(side, 1 - np.cos(angles), np.cos(angles)) + 0.1 * rng.randn(count)
    y = np.where(side, 0.5 - np.sin(angles), np.sin(angles)) + 0.1 * rng.randn(count)
    points = torch.tensor(np.stack([x, y], axis=1), dtype=torch.float)
    return [{"points": point, "labels": int(label)} for point, label in zip(points, side)]


def compute_metrics(eval_preds):
    logits, labels = eval_preds
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


args = TrainingArguments(
    output_dir="moons",
    num_train_epochs=5,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=64,
    learning_rate=2e-2,
    evaluation_strategy="epoch",
    save_strategy="epoch",
    logging_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="eval_accuracy",
    report_to="none",
    no_cuda=True,
)
set_seed(0)
trainer = Trainer(
    model=TwoMoons(),
    args=args,
    train_dataset=make_points(160, seed=0),
    eval_dataset=make_points(64, seed=1),
    compute_metrics=compute_metrics,
)
trainer.add_callback(TrainSetCallback(trainer))
trainer.train()
