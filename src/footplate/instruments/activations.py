"""What the modules of a model give in forward and get in backward, while somebody watches."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn

from footplate.comm import find_batch_size
from footplate.instruments.measures import WHOLE_MODEL, ModuleMeasure, largest, smallest


class ActivationWatch:
    """Notes ranges and non-finite values of every module's output, until `detach`.

    Hooks only read: they return nothing and leave no node in the graph, so that forward and backward compute
    the same bits.

    Args:
        model: The model without wrappers of several processes.
        keeps_marks: Hash each output, to compare two runs.
        sees_outputs: Put hooks on the modules; else only what others note in `measures` is known.
    """

    def __init__(self, model: nn.Module, keeps_marks: bool = False, sees_outputs: bool = True) -> None:
        self.measures: dict[str, ModuleMeasure] = {}  # in the order in which modules finished
        self.first_nonfinite_gradient: str | None = None
        self._keeps_marks = keeps_marks
        self._digests: dict[str, Any] = {}
        self._row_names: dict[int, str] = {}
        self._first_row = self._num_rows = 0
        self._handles: list[Any] = []
        for name, module in model.named_modules() if sees_outputs else ():
            if isinstance(module, torch.jit.ScriptModule):  # it takes no hooks of Python
                continue
            hook = functools.partial(self._note, name or WHOLE_MODEL)
            self._handles.append(module.register_forward_hook(hook))

    def begin_batch(self, batch: Any) -> None:
        """A micro-batch comes: its rows follow those before it."""
        self._first_row += self._num_rows
        self._num_rows = find_batch_size(batch) or 0

    def detach(self) -> None:
        """Watch no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for name, digest in self._digests.items():
            self.measures[name].marks["output"] = digest.hexdigest()[:16]

    def first_module_of(self, row: int) -> str | None:
        """The first module whose output for a row is not finite."""
        return self._row_names.get(row)

    @torch.no_grad()
    def _note(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        if is_in_backward():  # the output is computed again, to save memory
            return
        measure = self.measures.get(name)
        if measure is None:
            measure = self.measures[name] = ModuleMeasure(name, type(module).__name__)
        for value in tensors_in(output):
            if not value.is_floating_point() or not value.numel():
                continue
            seen = whole(value)
            self._note_range(measure, seen)
            if self._keeps_marks:
                self._digests.setdefault(name, hashlib.sha256()).update(bytes_of(seen))
            if value.requires_grad:
                value.register_hook(functools.partial(self._note_gradient, name))  # type: ignore[no-untyped-call]

    def _note_range(self, measure: ModuleMeasure, value: torch.Tensor) -> None:
        is_finite = value.isfinite()
        num_bad = int(is_finite.logical_not().sum())  # host sync, in the one update that is looked at
        finite = value[is_finite] if num_bad else value
        if finite.numel():
            measure.low = smallest((measure.low, float(finite.min())))
            measure.high = largest((measure.high, float(finite.max())))
        measure.num_nonfinite += num_bad
        if num_bad and value.ndim and len(value) == self._num_rows:
            bad = is_finite.reshape(self._num_rows, -1).all(1).logical_not().nonzero().flatten()
            rows = [self._first_row + place for place in bad.tolist()]
            measure.rows += [row for row in rows if row not in measure.rows]
            for row in rows:
                self._row_names.setdefault(row, measure.name)

    def _note_gradient(self, name: str, gradient: torch.Tensor) -> None:
        if self.first_nonfinite_gradient is None and not bool(whole(gradient).isfinite().all()):
            self.first_nonfinite_gradient = name


def is_in_backward() -> bool:
    """Whether autograd is running, in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors inside nested containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from tensors_in(inner)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name, None))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without its graph; of one that is divided over processes, the whole: all of them call this."""
    tensor = tensor.detach()
    gather = getattr(tensor, "full_tensor", None)
    full: torch.Tensor = gather() if callable(gather) else tensor
    return full.to_dense() if full.layout != torch.strided else full


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Kind, shape and bits of a tensor."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return f"{plain.dtype}{tuple(tensor.shape)}".encode() + plain.view(torch.uint8).numpy().tobytes()


def mark_of(value: Any) -> str:
    """A hash of the tensors in a batch or a module: equal only if all bits are."""
    digest = hashlib.sha256()
    for tensor in tensors_in(value):
        digest.update(bytes_of(whole(tensor)))
    return digest.hexdigest()[:16]
