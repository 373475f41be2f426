"""Trains half of a run, then goes on from the last checkpoint with `resume_from_checkpoint=True`."""

import torch
from torch import nn

from footplate import Trainer, TrainerCallback, TrainingArguments, set_seed


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_save = True
            control.should_training_stop = True
        return control


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))

    def forward(self, features, labels=None):
        logits = self.layers(features).squeeze(-1)
        return {"loss": nn.functional.mse_loss(logits, labels), "logits": logits}


generator = torch.Generator().manual_seed(0)
features = torch.randn(90, 4, generator=generator)
rows = [{"features": row, "labels": row[0] * row[1]} for row in features]


def build(output_dir, callbacks=None):
    args = TrainingArguments(
        output_dir=output_dir,
        num_train_epochs=6,
        per_device_train_batch_size=8,
        learning_rate=2e-2,
        logging_steps=3,
        eval_strategy="epoch",
        save_steps=1000,
        report_to="none",
        use_cpu=True,
    )
    set_seed(args.seed)
    return Trainer(
        model=Net(), args=args, train_dataset=rows[:80], eval_dataset=rows[80:], callbacks=callbacks
    )


whole = build("whole")
whole.train()

halted = build("halves", callbacks=[StopAt(27)])
halted.train()
trainer = build("halves")
trainer.train(resume_from_checkpoint=True)

states = zip(whole.model.state_dict().values(), trainer.model.state_dict().values(), strict=True)
same_weights = all(torch.equal(one, other) for one, other in states)
