"""Weights before an update, its gradients, and how far it moved each module."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from footplate.instruments.activations import mark_of, whole
from footplate.instruments.measures import WHOLE_MODEL, ModuleMeasure


class WeightsBefore:
    """A copy of a model's parameters and buffers, to compare with later and to go back to.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # a state_dict may leave buffers out, and hooks may rename its keys
        self._copies = {name: value.detach().clone() for name, value in _values_of(model)}

    @torch.no_grad()
    def put_back(self) -> None:
        """Give the model the weights and buffers of then."""
        for name, value in _values_of(self._model):
            if name in self._copies and value.shape == self._copies[name].shape:
                value.detach().copy_(self._copies[name])

    @torch.no_grad()
    def find_nonfinite(self) -> str | None:
        """The first module whose weights were not finite then."""
        for module, parameters in own_parameters(self._model):
            for name, _ in parameters:
                copy = self._copies[name]
                if copy.is_floating_point() and not bool(whole(copy).isfinite().all()):
                    return module
        return None

    @torch.no_grad()
    def note_marks(self, measures: dict[str, ModuleMeasure]) -> None:
        """Hash the weights that each module had."""
        for module, parameters in own_parameters(self._model):
            copies = [self._copies[name] for name, _ in parameters]
            find(measures, module, self._model).marks["weights"] = mark_of(copies)

    @torch.no_grad()
    def note_update(self, measures: dict[str, ModuleMeasure], keeps_marks: bool = False) -> None:
        """Note the size of each module's weights then, and of what has changed since."""
        for module, parameters in own_parameters(self._model):
            measure = find(measures, module, self._model)
            copies = [whole(self._copies[name]) for name, _ in parameters]
            now = [whole(parameter) for _, parameter in parameters]
            measure.weight_norm = norm_of(copies)
            measure.update_norm = norm_of(
                [new.double() - old.double() for new, old in zip(now, copies, strict=True)]
            )
            if keeps_marks:
                measure.marks["update"] = mark_of(now)


@torch.no_grad()
def note_gradients(
    model: nn.Module, measures: dict[str, ModuleMeasure], scale: float = 1.0, keeps_marks: bool = False
) -> None:
    """Note the norm of the gradients of each module's own parameters.

    Args:
        model: The model, after backward.
        measures: Where to note it, by module.
        scale: What a loss scaler has multiplied them by.
        keeps_marks: Hash them too.
    """
    for module, parameters in own_parameters(model):
        gradients = [whole(value.grad) for _, value in parameters if value.grad is not None]
        if gradients:
            measure = find(measures, module, model)
            measure.grad_norm = norm_of(gradients) / scale
            if keeps_marks:
                measure.marks["gradient"] = mark_of(gradients)


def own_parameters(model: nn.Module) -> Iterator[tuple[str, list[tuple[str, nn.Parameter]]]]:
    """Each module with the trainable parameters that are its own, by their names in the model.

    A parameter that several modules share belongs to the first of them.
    """
    seen: set[int] = set()
    for module_name, module in model.named_modules():
        own = []
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                own.append((f"{module_name}.{name}" if module_name else name, parameter))
        if own:
            yield module_name or WHOLE_MODEL, own


def norm_of(tensors: list[torch.Tensor]) -> float:
    """The norm of several tensors together."""
    total = sum(
        (tensor.double().pow(2).sum().cpu() for tensor in tensors), torch.zeros((), dtype=torch.float64)
    )
    return float(total.sqrt())


def find(measures: dict[str, ModuleMeasure], name: str, model: nn.Module) -> ModuleMeasure:
    """The measure of a module; a new one for a module that did not run by itself."""
    if name not in measures:
        module = model if name == WHOLE_MODEL else model.get_submodule(name)
        measures[name] = ModuleMeasure(name, type(module).__name__)
    return measures[name]


def _values_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        for own, parameter in module.named_parameters(recurse=False):
            yield prefix + own, parameter
        for own, buffer in module.named_buffers(recurse=False):
            yield prefix + own, buffer
