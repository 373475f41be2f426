"""The functions by which optimizers of torch step, and what of a parameter's state each of them takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch.optim import SGD, Adagrad, Adam, AdamW, NAdam, RAdam, RMSprop
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.nadam import nadam
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd


class Formula(NamedTuple):
    """How an optimizer's `step` calls its function for one group."""

    function: Callable[..., None]
    # the states that it takes lists of, in its order: the setting that turns each on, None if it is always on
    states: Mapping[str, str | None]
    settings: tuple[str, ...]  # what it takes of the group by name, besides the betas

    def names(self, settings: Mapping[str, Any]) -> list[str]:
        """The states that every parameter of a group has."""
        return [name for name, switch in self.states.items() if switch is None or settings[switch]]

    def call(self, params: list[Any], gradients: list[Any], lists: Mapping[str, Any], group: Any) -> None:
        """Step the parameters of a group.

        Args:
            params: Those that have a gradient.
            gradients: Their gradients.
            lists: Their states by name; those that are off are left out.
            group: The settings.
        """
        # a version of torch without a setting does not have it in the group either
        options = {name: group[name] for name in self.settings if name in group}
        if "betas" in group:
            options["beta1"], options["beta2"] = group["betas"]
        self.function(params, gradients, *(lists.get(name, []) for name in self.states), **options)


_ALWAYS = ("foreach", "maximize", "lr", "weight_decay")
_KINDS = (*_ALWAYS, "capturable", "differentiable", "eps")
_AVERAGES: dict[str, str | None] = {"exp_avg": None, "exp_avg_sq": None}
_ADAM: dict[str, str | None] = {**_AVERAGES, "max_exp_avg_sq": "amsgrad", "step": None}

FORMULAS: dict[type, Formula] = {
    Adam: Formula(adam, _ADAM, (*_KINDS, "amsgrad", "fused", "decoupled_weight_decay")),
    AdamW: Formula(adamw, _ADAM, (*_KINDS, "amsgrad", "fused")),
    NAdam: Formula(
        nadam,
        {**_AVERAGES, "mu_product": None, "step": None},
        (*_KINDS, "momentum_decay", "decoupled_weight_decay"),
    ),
    RAdam: Formula(radam, {**_AVERAGES, "step": None}, (*_KINDS, "decoupled_weight_decay")),
    SGD: Formula(
        sgd, {"momentum_buffer": "momentum"}, (*_ALWAYS, "momentum", "dampening", "nesterov", "fused")
    ),
    Adagrad: Formula(
        adagrad, {"sum": None, "step": None}, (*_ALWAYS, "differentiable", "eps", "lr_decay", "fused")
    ),
    RMSprop: Formula(
        rmsprop,
        {"square_avg": None, "grad_avg": "centered", "momentum_buffer": "momentum", "step": None},
        (*_KINDS, "alpha", "momentum", "centered"),
    ),
}
