"""A trainer with a `train()` of its own, to have the model's output at hand in the loop."""

import math

import torch
from torch import nn

from footplate import Trainer, TrainerState, TrainingArguments, TrainOutput, set_seed


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x, labels=None):
        logits = self.linear(x)
        return {"loss": nn.functional.mse_loss(logits, labels), "logits": logits}


class LoopTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=True):
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def training_step(self, model, inputs):
        model.train()
        inputs = self._prepare_inputs(inputs)
        loss, outputs = self.compute_loss(model, inputs)
        loss.backward()
        return loss.detach(), outputs

    def train(self, resume_from_checkpoint=None, trial=None, **kwargs):
        self._hp_search_setup(trial)
        train_dataloader = self.get_train_dataloader()
        num_train_epochs = math.ceil(self.args.num_train_epochs)
        max_steps = len(train_dataloader) * num_train_epochs
        self.create_optimizer_and_scheduler(num_training_steps=max_steps)

        self.state = TrainerState()
        self.state.max_steps = max_steps
        self.state.num_train_epochs = num_train_epochs
        self.state.is_local_process_zero = self.is_local_process_zero()
        self.state.is_world_process_zero = self.is_world_process_zero()
        self.callback_handler.model = self.model
        self.callback_handler.optimizer = self.optimizer
        self.callback_handler.lr_scheduler = self.lr_scheduler
        self.callback_handler.train_dataloader = train_dataloader

        model = self._wrap_model(self.model_wrapped)
        tr_loss = torch.tensor(0.0).to(self.args.device)
        self._total_loss_scalar = 0.0
        self._globalstep_last_logged = self.state.global_step
        self._total_flos = self.state.total_flos
        self.shown = []
        model.zero_grad()

        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        for epoch in range(num_train_epochs):
            self.control = self.callback_handler.on_epoch_begin(self.args, self.state, self.control)
            for step, inputs in enumerate(train_dataloader):
                self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
                tr_loss_step, output_step = self.training_step(model, inputs)
                tr_loss += tr_loss_step
                self._total_flos += float(self.floating_point_ops(inputs))
                nn.utils.clip_grad_norm_(model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                self.lr_scheduler.step()
                model.zero_grad()
                self.state.global_step += 1
                self.state.epoch = epoch + (step + 1) / len(train_dataloader)
                self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
                self._maybe_log_save_evaluate(tr_loss, model, trial, epoch)
                if step % 4 == 0:
                    error = (output_step["logits"] - inputs["labels"]).abs().mean().item()
                    print("mean error of the batch:", error)
                    self.shown.append(error)
            self.control = self.callback_handler.on_epoch_end(self.args, self.state, self.control)
            self._maybe_log_save_evaluate(tr_loss, model, trial, epoch)

        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        self._total_loss_scalar += tr_loss.item()
        return TrainOutput(self.state.global_step, self._total_loss_scalar / self.state.global_step, {})


set_seed(0)
points = [{"x": torch.tensor([i / 32]), "labels": torch.tensor([3 * i / 32 - 1])} for i in range(64)]
trainer = LoopTrainer(
    model=Line(),
    args=TrainingArguments(
        output_dir="loop",
        per_device_train_batch_size=8,
        num_train_epochs=5,
        learning_rate=0.1,
        logging_steps=8,
        evaluation_strategy="epoch",
        save_steps=20,
        no_cuda=True,
    ),
    train_dataset=points,
    eval_dataset=points[:16],
)
result = trainer.train()
