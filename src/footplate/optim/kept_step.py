"""Step torch's fused Adam and AdamW with lists that are kept from one step to the next."""

from __future__ import annotations

import os
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW
from torch.optim import optimizer as torch_optimizer

_TORCH_FOLDER = os.path.dirname(torch_optimizer.__file__)
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_moments = itemgetter(*_MOMENTS)
_gradient, _is_sparse = attrgetter("grad"), attrgetter("is_sparse")


class KeptStep:
    """Makes the steps of an optimizer: the kernels and the bits of its own `step`, on lists that are kept.

    torch collects parameters, gradients, moments and counters of each group anew in every step and sorts them
    by device and dtype, which takes longer than the kernels of a small model. As soon as anything is out of
    the ordinary (another class, hooks, a replaced `step`, a profiler, a loss scaler, other parameters, states
    or settings, sparse gradients), the optimizer's own `step` is called.
    """

    def __init__(self) -> None:
        self._optimizer: Any = None
        self._methods: tuple[Any, Any] = (None, None)  # the `step` of the class and of the instance
        self._groups: list[_Group] = []  # empty: the lists must be made first
        self._settings: list[dict[str, Any]] = []  # of the groups
        self._states: list[dict[str, Any]] = []  # of all parameters
        self._counters = torch.empty(0)  # those of all parameters side by side

    def __call__(self, optimizer: Any) -> None:
        """Make one step."""
        gradients = self._find_gradients(optimizer) if optimizer is self._optimizer else None
        if gradients is None:
            optimizer.step()
            self._keep(optimizer)
            return
        with torch.no_grad():
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
        if type(optimizer) not in (Adam, AdamW) or not is_ordinary(optimizer):
            return
        self._methods = _methods_of(optimizer)
        groups = [_Group(settings, optimizer.state) for settings in optimizer.param_groups]
        states = [state for group in groups for state in group.states]
        if states and all(group.is_plain for group in groups) and all(map(_is_torchs, self._methods)):
            self._counters = torch.stack([state["step"] for state in states])
            for state, counter in zip(states, self._counters, strict=True):
                state["step"] = counter  # a view: one addition counts for all of them
            for group in groups:
                group.make_lists()
            self._groups, self._settings = groups, list(optimizer.param_groups)
            self._states = list(optimizer.state.values())


class _Group:
    """A parameter group, and the lists that its kernel takes, of the parameters that have a gradient now."""

    __slots__ = (
        "_kept",
        "_kernel",
        "_kinds",
        "_listed",
        "_lists",
        "_params",
        "is_plain",
        "settings",
        "states",
    )

    def __init__(self, settings: dict[str, Any], states: Any) -> None:
        self.settings = settings
        self._listed = list(settings["params"])
        self._kinds = [type(param.grad) for param in self._listed]
        self._params = [param for param in self._listed if param.grad is not None]
        self.states = [states.get(param, {}) for param in self._params]
        self._lists: tuple[list[Tensor], ...] = ()
        self._kept: list[Tensor] = []  # those in the lists, state by state
        self._kernel: Any = torch._fused_adam_
        if settings.get("decoupled_weight_decay", True):
            self._kernel = torch._fused_adamw_
        params = {(type(param), param.device, param.dtype) for param in self._params}
        self.is_plain = (
            len(params) <= 1
            and all(kind is nn.Parameter and dtype.is_floating_point for kind, _, dtype in params)
            and {*self._kinds} <= {Tensor, type(None)}
            and all(isinstance(state.get(name), Tensor) for state in self.states for name in _MOMENTS)
        )

    def make_lists(self) -> None:
        """Collect the moments and counters."""
        self._lists = tuple([state[name] for state in self.states] for name in _MOMENTS)
        self._kept = [tensor for state in self.states for tensor in _moments(state)]

    def find_gradients(self) -> list[Any] | None:
        """The gradients, if nothing has changed but them, the rate and other numbers."""
        settings = self.settings
        is_usual = type(settings["lr"]) is float and settings["fused"] and not settings["amsgrad"]
        if not is_usual or settings["capturable"] or settings["differentiable"]:
            return None
        if not _are_same(settings["params"], self._listed):
            return None
        gradients = list(map(_gradient, self._listed))
        if list(map(type, gradients)) != self._kinds or not self._has_kept_moments():
            return None
        if len(gradients) > len(self._params):
            gradients = [gradient for gradient in gradients if gradient is not None]
        return None if any(map(_is_sparse, gradients)) else gradients

    def _has_kept_moments(self) -> bool:
        """Whether the states still hold the tensors that are in the lists."""
        try:
            return all(map(is_, chain.from_iterable(map(_moments, self.states)), self._kept))
        except KeyError:  # something was taken out of a state
            return False

    def step(self, gradients: list[Tensor]) -> None:
        """Call the kernel; the counters are already those of this step."""
        if not gradients:
            return
        settings, (averages, squares, counters) = self.settings, self._lists
        beta1, beta2 = settings["betas"]
        self._kernel(
            self._params,
            gradients,
            averages,
            squares,
            [],
            counters,
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
