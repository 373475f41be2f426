"""Step optimizers of torch with lists that are kept from one step to the next."""

from __future__ import annotations

import os
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from footplate.no_graph import NoGraph
from footplate.optim.formulas import FORMULAS, Formula

_TORCH_FOLDER = os.path.dirname(torch_optimizer.__file__)
_gradient, _is_sparse = attrgetter("grad"), attrgetter("is_sparse")


class KeptStep:
    """Makes the steps of an optimizer: the kernels and the bits of its own `step`, on lists that are kept.

    torch collects parameters, gradients, moments and counters of each group anew in every step. For the fused
    kernel of Adam and AdamW it also sorts them by device and dtype, which takes longer than the kernel of a
    small model; that kernel is called directly here, other functions with the kept lists. As soon as anything
    is out of the ordinary (another class, hooks, a replaced `step`, a profiler, a loss scaler, other
    parameters, states or settings, sparse gradients), the optimizer's own `step` is called.
    """

    def __init__(self) -> None:
        self._optimizer: Any = None
        self._methods: tuple[Any, Any] = (None, None)  # the `step` of the class and of the instance
        self._groups: list[_Group] = []  # empty: the lists must be made first
        self._settings: list[dict[str, Any]] = []  # of the groups
        self._states: list[dict[str, Any]] = []  # of all parameters
        self._counters = torch.empty(0)  # those of all parameters side by side, for the fused kernel
        self._is_counting = False

    def __call__(self, optimizer: Any) -> None:
        """Make one step."""
        gradients = self._find_gradients(optimizer) if optimizer is self._optimizer else None
        if gradients is None:
            optimizer.step()
            self._keep(optimizer)
            return
        with NoGraph():
            if self._is_counting:
                self._counters += 1
            for group, of_group in zip(self._groups, gradients, strict=True):
                group.step(of_group)

    def _find_gradients(self, optimizer: Any) -> list[list[Any]] | None:
        """The gradients of each group; None if the kept lists do not fit this step."""
        if not self._groups or _methods_of(optimizer) != self._methods or not is_ordinary(optimizer):
            return None
        if not _are_same(optimizer.param_groups, self._settings):
            return None
        if not _are_same(list(optimizer.state.values()), self._states):
            return None
        gradients = []
        for group in self._groups:
            found = group.find_gradients()
            if found is None:
                return None
            gradients.append(found)
        return gradients

    def _keep(self, optimizer: Any) -> None:
        """Make the lists for the next step; none if the kernels cannot be called for this optimizer."""
        self._optimizer, self._groups = optimizer, []
        formula = FORMULAS.get(type(optimizer))
        if formula is None or not is_ordinary(optimizer):
            return
        self._methods = _methods_of(optimizer)
        groups = [_Group(formula, settings, optimizer.state) for settings in optimizer.param_groups]
        has_params = any(group.has_params for group in groups)
        if not (
            has_params and all(group.is_plain for group in groups) and all(map(_is_torchs, self._methods))
        ):
            return
        self._is_counting = all(group.is_fused for group in groups)
        if self._is_counting:
            self._join_counters([state for group in groups for state in group.states])
        for group in groups:
            group.is_fused = self._is_counting
            group.make_lists()
        self._groups, self._settings = groups, list(optimizer.param_groups)
        self._states = list(optimizer.state.values())

    def _join_counters(self, states: list[dict[str, Any]]) -> None:
        """Let the counters be views of one tensor: one addition counts for all of them."""
        self._counters = torch.stack([state["step"] for state in states])
        for state, counter in zip(states, self._counters, strict=True):
            state["step"] = counter


class _Group:
    """A parameter group, and the lists that its function takes, of parameters that have a gradient now."""

    def __init__(self, formula: Formula, settings: dict[str, Any], states: Any) -> None:
        self.settings = settings
        self._formula = formula
        self._listed = list(settings["params"])
        self._kinds = [type(param.grad) for param in self._listed]
        self._params = [param for param in self._listed if param.grad is not None]
        self.states = [states.get(param, {}) for param in self._params]
        self._names = formula.names(settings)
        self._lists: dict[str, list[Tensor]] = {}
        self._kept: list[Tensor] = []  # those in the lists, state by state
        kinds = {(type(param), param.device, param.dtype) for param in self._params}
        self.is_plain = (
            all(kind is nn.Parameter and dtype.is_floating_point for kind, _, dtype in kinds)
            and {*self._kinds} <= {Tensor, type(None)}
            and all(isinstance(state.get(name), Tensor) for state in self.states for name in self._names)
        )
        self.is_fused = len(kinds) <= 1 and _is_fused(formula, settings)
        is_decoupled = settings.get("decoupled_weight_decay", True)
        self._kernel: Any = torch._fused_adamw_ if is_decoupled else torch._fused_adam_

    @property
    def has_params(self) -> bool:
        """Whether any parameter has a gradient."""
        return bool(self._params)

    def make_lists(self) -> None:
        """Collect the states."""
        self._lists = {name: [state[name] for state in self.states] for name in self._names}
        self._kept = [state[name] for state in self.states for name in self._names]

    def find_gradients(self) -> list[Any] | None:
        """The gradients, if nothing has changed but them, the rate and other numbers."""
        settings = self.settings
        if type(settings["lr"]) is not float or settings.get("capturable") or settings.get("differentiable"):
            return None
        if self.is_fused and not _is_fused(self._formula, settings):
            return None
        if not _are_same(settings["params"], self._listed):
            return None
        gradients = list(map(_gradient, self._listed))
        if list(map(type, gradients)) != self._kinds or not self._has_kept_states():
            return None
        if len(gradients) > len(self._params):
            gradients = [gradient for gradient in gradients if gradient is not None]
        return None if any(map(_is_sparse, gradients)) else gradients

    def _has_kept_states(self) -> bool:
        """Whether the states are those in the lists, and the settings ask for no others."""
        names = self._names
        if names != self._formula.names(self.settings):
            return False
        try:
            found = (state[name] for state in self.states for name in names)
            return all(map(is_, found, self._kept))
        except KeyError:  # something was taken out of a state
            return False

    def step(self, gradients: list[Tensor]) -> None:
        """Step the parameters; counters of the fused kernel are already those of this step."""
        if not gradients:
            return
        settings, lists = self.settings, self._lists
        if not self.is_fused:
            self._formula.call(self._params, gradients, lists, settings)
            return
        beta1, beta2 = settings["betas"]
        self._kernel(
            self._params,
            gradients,
            lists["exp_avg"],
            lists["exp_avg_sq"],
            [],
            lists["step"],
            amsgrad=False,
            lr=settings["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=settings["weight_decay"],
            eps=settings["eps"],
            maximize=settings["maximize"],
            grad_scale=None,
            found_inf=None,
        )


def _is_fused(formula: Formula, settings: dict[str, Any]) -> bool:
    """Whether the step is torch's fused kernel for Adam, which needs nothing of the function around it."""
    return bool(formula.function in (adam, adamw) and settings.get("fused") and not settings["amsgrad"])


def is_ordinary(optimizer: Any) -> bool:
    """Whether nothing but the optimizer itself takes part in its step."""
    attributes = optimizer.__dict__
    return not (
        torch._C._autograd._profiler_enabled()
        or torch_optimizer._global_optimizer_pre_hooks
        or torch_optimizer._global_optimizer_post_hooks
        or attributes["_optimizer_step_pre_hooks"]
        or attributes["_optimizer_step_post_hooks"]
        or "grad_scale" in attributes  # a loss scaler was here
        or "found_inf" in attributes
    )


def _methods_of(optimizer: Any) -> tuple[Any, Any]:
    """The `step` of the class, and the one on the instance: a schedule sets one that notes the call."""
    return type(optimizer).step, optimizer.__dict__.get("step")


def _is_torchs(step: Any) -> bool:
    """Whether a method and all that it wraps are defined in torch's own files."""
    while step is not None:
        code = getattr(step, "__code__", None)
        if code is None or os.path.dirname(code.co_filename) != _TORCH_FOLDER:
            return False
        step = getattr(step, "__wrapped__", None)
    return True


def _are_same(first: list[Any], second: list[Any]) -> bool:
    """Whether two lists have the same objects."""
    return len(first) == len(second) and all(map(is_, first, second))
