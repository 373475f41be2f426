"""The Trainer's optimizer and schedule."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from footplate.arguments import TrainingArguments
from footplate.optim import groups, schedules
from footplate.optim.names import find_optimizer
from footplate.trainer.api import TrainerApi
from footplate.training import traits


class Optimizing(TrainerApi):
    """Which parameters are updated how, and how fast."""

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Set `self.optimizer` and `self.lr_scheduler`."""
        self.create_optimizer()
        self.create_scheduler(num_training_steps=num_training_steps, optimizer=self.optimizer)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Set and return `self.optimizer`. Override to bring an optimizer of your own."""
        if self.optimizer is None:
            model = model if model is not None else self.model
            optimizer_class, options = self.optimizer_cls_and_kwargs or traits.call_positional(
                self.get_optimizer_cls_and_kwargs, self.args, model
            )
            self.optimizer = groups.build_optimizer(
                optimizer_class, options, model, self.args, self.get_decay_parameter_names(model)
            )
        optimizer: torch.optim.Optimizer = self.optimizer
        return optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any:
        """Set and return `self.lr_scheduler`. Override to bring a schedule of your own."""
        if self.lr_scheduler is None:
            self.lr_scheduler = schedules.build_schedule(
                self.args, optimizer or self.optimizer, num_training_steps
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    @staticmethod
    def get_optimizer_cls_and_kwargs(
        args: TrainingArguments, model: nn.Module | None = None
    ) -> tuple[Any, Any]:
        """The optimizer class that `args.optim` names, and its arguments."""
        return find_optimizer(args, model)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Names of the parameters that weight decay applies to: neither biases nor norms."""
        return groups.decay_parameter_names(model)
