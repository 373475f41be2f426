"""Gradient norm, weight norm and update ratio of each module, measured at every n-th update of a run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from footplate.instruments.entries import Entry, plan_entries
from footplate.instruments.weights import own_parameters

logger = logging.getLogger(__name__)

KIND = "modules"  # what a note of these values is called
_HALVES = (torch.float16, torch.bfloat16)

Join = Callable[[torch.Tensor], torch.Tensor]


class ModuleWatch:
    """Measures an update now and then: how large gradients, weights and the change of the weights are.

    It only reads. A measured update copies the trainable weights until its step is made, and asks the device
    once; the other updates are as they were.

    Args:
        model: The model, with the parameters that the optimizer has.
        every: Measure each update whose number this divides.
        note: Is called with the kind of the note and its values; None in processes that only take part.
        scaler: The loss scaler, whose factor is in the gradients.
        join: Makes norms of whole tensors of those of the parts that this process has; all of them call it.
    """

    def __init__(
        self,
        model: nn.Module,
        every: int,
        note: Callable[..., None] | None,
        scaler: Any = None,
        join: Join | None = None,
    ) -> None:
        self._model, self._every, self._note, self._scaler, self._join = model, every, note, scaler, join
        self._all = list(model.parameters())
        self._trained: list[bool] = []  # which of them were trainable when the entries were made
        self._parameters: list[nn.Parameter] = []
        self._entries: list[Entry] = []
        self._are_named = False  # whether a note has told the names of the entries
        self._norms: Norms | None = None  # of the update under way, if it is to be measured
        self._is_off = False

    def see_gradients(self, update: int) -> None:
        """Of an update whose gradients are complete and not clipped yet, measure these and the weights."""
        self._norms = None
        if self._is_off or update % self._every:
            return
        with self._guarded():
            self._find_entries()
            norms = Norms()
            norms.add("gradient", [parameter.grad for parameter in self._parameters], self._find_scale())
            norms.add("weight", self._parameters)
            self._norms = norms

    def around(self, step: Callable[[Any], None]) -> Callable[[Any], None]:
        """The function that steps an optimizer, with the change of the weights measured."""

        def measured_step(optimizer: Any) -> None:
            norms, before = self._norms, []
            if norms is not None:
                with self._guarded():
                    before = copy_all(self._parameters)
            step(optimizer)
            if norms is not None and before:
                with self._guarded():
                    torch._foreach_sub_(before, [_local(parameter) for parameter in self._parameters])
                    norms.add("update", before)

        return measured_step

    def tell(self) -> None:
        """Read what was measured of the update that is over, and note it."""
        norms, self._norms = self._norms, None
        if norms is None:
            return
        found: dict[str, list[float | None]] = {}
        with self._guarded():
            found = norms.read(self._join)
        if self._note is not None and found:
            names = {} if self._are_named else {"names": [entry.name for entry in self._entries]}
            self._are_named = True
            self._note(KIND, **names, **describe(self._entries, found))

    def _find_entries(self) -> None:
        """List the modules anew if other parameters are trained than before."""
        trained = [parameter.requires_grad for parameter in self._all]
        if trained == self._trained:
            return
        owned = [(name, [parameter for _, parameter in own]) for name, own in own_parameters(self._model)]
        self._trained, self._are_named = trained, False
        self._parameters = [parameter for _, own in owned for parameter in own]
        self._entries = plan_entries([(name, len(own)) for name, own in owned])

    def _find_scale(self) -> torch.Tensor | None:
        """What a loss scaler has multiplied the gradients by, where they are."""
        if self._scaler is None or not self._scaler.is_enabled() or not self._parameters:
            return None
        scale: torch.Tensor = self._scaler.scale(torch.ones((), device=self._parameters[0].device))
        return scale

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Measure without a graph; where that fails, such as for want of memory, training goes on without."""
        try:
            with torch.no_grad():
                yield
        except (RuntimeError, MemoryError) as error:
            if self._join is not None:  # other processes wait for what this one measures
                raise
            self._is_off, self._norms = True, None
            logger.warning(
                "module_stats_steps=%d: the modules could not be measured, and are not any more. Training "
                "continues without. %s: %s",
                self._every,
                type(error).__name__,
                str(error).strip(),
            )


class Norms:
    """Norms of many tensors, which stay on the device until all are read at once."""

    def __init__(self) -> None:
        self._chunks: list[torch.Tensor] = []
        self._places: list[tuple[str, list[int]]] = []  # of the norms in each chunk
        self._sizes: dict[str, int] = {}

    def add(
        self, kind: str, tensors: Sequence[torch.Tensor | None], scale: torch.Tensor | None = None
    ) -> None:
        """Measure tensors of one kind; None where there is none, and a `scale` is divided by."""
        self._sizes[kind] = len(tensors)
        alike: dict[Any, list[tuple[int, torch.Tensor]]] = {}  # tensors of one device and type are one call
        for place, tensor in enumerate(tensors):
            if tensor is not None:
                part = _local(tensor)
                alike.setdefault((part.device, part.dtype), []).append((place, part))
        for (_, dtype), parts in alike.items():
            exact = torch.float32 if dtype in _HALVES else None
            norms = torch.stack(torch._foreach_norm([part for _, part in parts], 2, exact))
            self._chunks.append(norms if scale is None else norms / scale.to(norms))
            self._places.append((kind, [place for place, _ in parts]))

    def read(self, join: Join | None = None) -> dict[str, list[float | None]]:
        """The norms by kind, in the order in which they were added."""
        found: dict[str, list[float | None]] = {kind: [None] * size for kind, size in self._sizes.items()}
        if not self._chunks:
            return found
        device = self._chunks[0].device
        exact = torch.float32 if device.type == "mps" else torch.float64
        together = torch.cat([chunk.to(device, exact) for chunk in self._chunks])
        values = iter((together if join is None else join(together)).tolist())  # host sync, the only one
        for kind, places in self._places:
            for place in places:
                found[kind][place] = next(values)
        return found


def copy_all(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies of what this process has of some parameters."""
    own = [_local(parameter) for parameter in parameters]
    copies = [torch.empty_like(part) for part in own]
    if copies:
        torch._foreach_copy_(copies, own)
    return copies


def describe(entries: Sequence[Entry], found: dict[str, list[float | None]]) -> dict[str, list[Any]]:
    """The measured values of some entries, in the form of strict JSON.

    Args:
        entries: Modules, and the places of their parameters.
        found: The norms of all parameters; without those of an update, there was none.
    """
    gradients, weights, ratios = [], [], []
    for entry in entries:
        gradient, weight = (_join(found[kind], entry) for kind in ("gradient", "weight"))
        update = _join(found["update"], entry) if "update" in found else 0.0
        gradients.append(to_json(gradient))
        weights.append(to_json(weight))
        ratios.append(to_json(update / weight if weight and update is not None else None))
    return {"grad_norm": gradients, "weight_norm": weights, "update_ratio": ratios}


def _join(norms: Sequence[float | None], entry: Entry) -> float | None:
    """The norm of all parameters of an entry together; None if none of them has one."""
    known: Iterable[float] = [norm for place in entry.places if (norm := norms[place]) is not None]
    return math.hypot(*known) if known else None


def to_json(value: float | None) -> float | str | None:
    """A number with three significant digits; one that is not finite is text, as strict JSON has none."""
    if value is None or math.isfinite(value):
        return None if value is None else float(f"{value:.3g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process has of a tensor, without its graph."""
    tensor = tensor.detach()
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part
