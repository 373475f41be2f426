"""Adversarial training: a second backward on perturbed embeddings inside `training_step`."""

from typing import Any, Dict, Union

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from footplate import Trainer, TrainingArguments


class AdversarialTrainer(Trainer):
    def __init__(self, *args, epsilon=0.05, **kwargs):
        super().__init__(*args, **kwargs)
        self.epsilon = epsilon
        self.num_attacks = 0

    def attack(self, model):
        weight = model.get_input_embeddings().weight
        norm = torch.norm(weight.grad)
        if norm != 0:
            self.backup = weight.data.clone()
            weight.data.add_(self.epsilon * weight.grad / norm)
            self.num_attacks += 1

    def restore(self, model):
        model.get_input_embeddings().weight.data = self.backup

    def training_step(self, model: nn.Module, inputs: Dict[str, Union[torch.Tensor, Any]]) -> torch.Tensor:
        model.train()
        inputs = self._prepare_inputs(inputs)

        with self.compute_loss_context_manager():
            loss = self.compute_loss(model, inputs)
        if self.args.n_gpu > 1:
            loss = loss.mean()
        if self.do_grad_scaling:
            self.scaler.scale(loss).backward()
        elif self.use_apex:
            raise NotImplementedError
        else:
            self.accelerator.backward(loss)

        if self.epsilon > 0:
            self.attack(model)
            with self.compute_loss_context_manager():
                attacked = self.compute_loss(model, inputs)
            self.accelerator.backward(attacked)
            self.restore(model)

        return loss.detach() / self.args.gradient_accumulation_steps


def model_init():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=20,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def train(batch_size, accumulation, epsilon):
    rows = torch.randint(1, 20, (64, 6), generator=torch.Generator().manual_seed(0)).tolist()
    trainer = AdversarialTrainer(
        model_init=model_init,
        args=TrainingArguments(
            output_dir="adversarial",
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            num_train_epochs=10,
            learning_rate=1e-2,
            max_grad_norm=100.0,
            optim="adamw_torch",
            logging_steps=1,
            save_strategy="no",
            save_safetensors=False,
            half_precision_backend="auto",
            use_mps_device=False,
            torchdynamo=None,
            fsdp="",
            report_to="none",
            no_cuda=True,
        ),
        train_dataset=[{"input_ids": row, "labels": int(row[0] > 9)} for row in rows],
        epsilon=epsilon,
    )
    trainer.train()
    return trainer


plain_whole = train(16, accumulation=1, epsilon=0.0)
plain_split = train(4, accumulation=4, epsilon=0.0)
trainer = train(4, accumulation=4, epsilon=0.05)
