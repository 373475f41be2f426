"""The step of an evaluation in which nothing is out of the ordinary: it looks nothing up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import torch
from torch import nn

from footplate.batch import outputs_without_loss
from footplate.comm import nested_detach
from footplate.no_graph import NoGraph
from footplate.training.loss import read_loss

Result = tuple[torch.Tensor | None, Any, Any]  # as the joint has it


class PlainStep:
    """Loss, logits and labels of a batch, as `Trainer.prediction_step` gives them.

    For a batch that is a dict of tensors on the host with all labels. Any other batch is left to the joint.

    Args:
        label_names: The entries of a batch that are labels.
        held_back: Entries of a batch that forward must not get: a batch with one is left to the joint.
        ignored: Keys of the model's outputs to leave out.
        loss_only: Return None in the place of logits and labels.
        explain_error: Called with the batch and the error of a model that fails.
        explain_no_loss: Raises; called with the batch and the outputs of a model that returns no loss.
    """

    def __init__(
        self,
        label_names: Sequence[str],
        held_back: Collection[str],
        ignored: Collection[str],
        loss_only: bool,
        explain_error: Callable[[Any, Exception], None],
        explain_no_loss: Callable[[Any, Any], NoReturn],
    ) -> None:
        self._explain_error, self._explain_no_loss = explain_error, explain_no_loss
        self._label_names, self._ignored, self._loss_only = tuple(label_names), ignored, loss_only
        self._left = frozenset((*held_back, "return_loss"))

    def __call__(self, model: nn.Module, inputs: Any) -> Result | None:
        """None leaves the batch to the joint."""
        if type(inputs) is not dict or not self._left.isdisjoint(inputs):
            return None
        for value in inputs.values():
            if type(value) is not torch.Tensor or not value.is_cpu or value.requires_grad:
                return None
        labels = tuple([inputs.get(name) for name in self._label_names])
        if any(label is None for label in labels):
            return None
        try:
            with NoGraph():
                outputs = model(**inputs)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            self._explain_error(inputs, error)
            raise
        loss = read_loss(outputs)
        if loss is None:
            self._explain_no_loss(inputs, outputs)
        loss = nested_detach(loss.mean() if loss.dim() else loss)
        if self._loss_only:
            return loss, None, None
        logits = nested_detach(outputs_without_loss(outputs, self._ignored, has_loss=True))
        return loss, logits, labels[0] if len(labels) == 1 else labels


def leave_to_joint(model: nn.Module, inputs: Any) -> None:
    """What stands in the place of a `PlainStep` where a joint or a setting asks for more."""
