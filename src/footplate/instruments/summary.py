"""What a model consists of, and what training it takes in memory: `footplate.summarize(model)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate.instruments.outline import MAX_LINES, ModuleLine, Outline
from footplate.optim.names import find_optimizer
from footplate.planning.optimizer import measure_optimizer
from footplate.words import format_bytes
from footplate.wrappers import unwrap_model

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

WIDTH = 99  # no line is longer
_NAME, _KIND, _DTYPE = 40, 26, 9  # the widest these columns become
_MOST_TIED = 3


@dataclass(frozen=True)
class ModelSummary:
    """A model in numbers; `print` shows it.

    Args:
        model: The name of its class.
        lines: Its modules as a tree; equal blocks are one line.
        num_modules: All modules, the model itself among them.
        parameters: Numbers in it; what is shared counts once.
        trainable: Those of them that training changes.
        tied: What is shared: the second name and the first one.
        buffers: Numbers that are no parameters.
        weight_bytes: Memory of the parameters.
        buffer_bytes: Memory of the buffers.
        gradient_bytes: Memory of the gradients.
        optimizer_bytes: Memory of what the optimizer keeps.
        optimizer: The name of its class.
        bytes_by_dtype: Memory of the parameters by type.
        notes: What else is to be known.
    """

    model: str
    lines: list[ModuleLine]
    num_modules: int
    parameters: int
    trainable: int
    tied: list[tuple[str, str]]
    buffers: int
    weight_bytes: int
    buffer_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    optimizer: str
    bytes_by_dtype: dict[str, int]
    notes: list[str] = field(default_factory=list)

    @property
    def training_bytes(self) -> int:
        """Weights, buffers, gradients and the optimizer's state; activations come on top."""
        return self.weight_bytes + self.buffer_bytes + self.gradient_bytes + self.optimizer_bytes

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        lines = [line.to_dict() for line in self.lines]
        tied = [list(pair) for pair in self.tied]
        return {**vars(self), "lines": lines, "tied": tied, "training_bytes": self.training_bytes}

    def __str__(self) -> str:
        return format_summary(self)


def summarize(
    model: nn.Module,
    args: TrainingArguments | None = None,
    *,
    depth: int | None = None,
    limit: int = MAX_LINES,
) -> ModelSummary:
    """The modules of a model, its parameters and the memory that training it takes; nothing is computed.

    Args:
        model: The model; it may be on the meta device, quantised, wrapped or have adapters.
        args: The settings of a run, for its optimizer; default: AdamW.
        depth: How deep the tree goes; default: as deep as `limit` lines allow.
        limit: The most lines of the tree.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"summarize() takes a torch.nn.Module, not {type(model).__name__}.")
    inner = unwrap_model(model)
    outline = Outline(inner)
    root, notes = outline.root, _describe_values(outline)
    name, state = _measure_state(inner, args, notes)
    return ModelSummary(
        model=root.kind,
        lines=outline.lines(depth, limit),
        num_modules=root.num_modules,
        parameters=root.parameters,
        trainable=root.trainable,
        tied=outline.tied,
        buffers=outline.buffers,
        weight_bytes=root.num_bytes,
        buffer_bytes=outline.buffer_bytes,
        gradient_bytes=outline.trained_bytes,
        optimizer_bytes=state,
        optimizer=name,
        bytes_by_dtype=dict(outline.bytes_by_dtype),
        notes=notes,
    )


def _describe_values(outline: Outline) -> list[str]:
    notes = []
    if outline.has_meta:
        notes.append("on the meta device: no memory is taken yet")
    if outline.has_lazy:
        notes.append("some parameters get their shape with the first batch and are not counted")
    return notes


def _measure_state(model: nn.Module, args: TrainingArguments | None, notes: list[str]) -> tuple[str, int]:
    """The name of the optimizer, and the memory of its state."""
    trained = [one for one in model.parameters() if one.requires_grad and not nn.parameter.is_lazy(one)]
    try:
        kind: Any = torch.optim.AdamW
        options: Mapping[str, Any] = {}
        if args is not None:
            kind, options = find_optimizer(args, model)
        name = getattr(kind, "__name__", str(kind))
        cost = measure_optimizer(kind, options, trained)
        return name, sum(cost.state_bytes(tuple(one.shape), one.dtype) for one in trained)
    except Exception as error:  # a package that is missing, or an optimizer that needs the whole model
        notes.append(f"the optimizer could not be tried and is counted as Adam: {error}")
    return "Adam", sum(2 * one.nbytes for one in trained)


# ---- as text ----


def format_summary(summary: ModelSummary) -> str:
    """The table of modules, and the totals."""
    return "\n".join([*_format_table(summary), "", *_format_totals(summary)])


def _format_table(summary: ModelSummary) -> list[str]:
    rows: list[tuple[str, ...]] = [("module", "class", "parameters", "trained", "type", "memory")]
    rows += [_format_line(line) for line in summary.lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths = [min(widths[0], _NAME), min(widths[1], _KIND), *widths[2:4], min(widths[4], _DTYPE), widths[5]]
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - 10)
    return [
        "  ".join(
            f"{_cut(cell, width):{'<' if column in (0, 1, 4) else '>'}{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _format_line(line: ModuleLine) -> tuple[str, ...]:
    kind = f"{line.copies} x {line.kind}" if line.copies > 1 else line.kind
    name = f"{' ' * line.depth}{line.name}"
    if line.num_below:
        name += f" (+{line.num_below})"
    if not line.parameters:
        shared = "shared" if line.tied else "-"
        return name, kind, shared, "", "", ""
    share = share_of(line.trainable, line.parameters)
    return name, kind, f"{line.parameters:,}", share, line.dtype, format_bytes(line.num_bytes)


def share_of(part: float, whole: float) -> str:
    """A share in percent; what is not all is never shown as all, nor something as nothing."""
    if not part or not whole:
        return "-"
    percent = 100 * part / whole
    if percent < 10:
        return f"{percent:.2g}%" if percent >= 0.01 else "<0.01%"
    return f"{min(round(percent), 100 if part == whole else 99)}%"


def _format_totals(summary: ModelSummary) -> list[str]:
    trained = "all trained"
    modules = "1 module" if summary.num_modules == 1 else f"{summary.num_modules:,} modules"
    if summary.trainable != summary.parameters:
        trained = f"{summary.trainable:,} trained ({share_of(summary.trainable, summary.parameters)})"
    lines = [("parameters", f"{summary.parameters:,}, {trained}, in {modules}")]
    for own, other in summary.tied[:_MOST_TIED]:
        lines.append(("shared", f"{own} is {other}, counted once"))
    if len(summary.tied) > _MOST_TIED:
        lines.append(("", f"and {len(summary.tied) - _MOST_TIED} more"))
    types = ", ".join(f"{format_bytes(size)} {name}" for name, size in summary.bytes_by_dtype.items())
    lines.append(("weights", f"{types or '0 B'}{_format_buffers(summary)}"))
    lines.append(
        (
            "training",
            f"{format_bytes(summary.training_bytes)}: weights and buffers "
            f"{format_bytes(summary.weight_bytes + summary.buffer_bytes)}, gradients "
            f"{format_bytes(summary.gradient_bytes)}, {summary.optimizer} "
            f"{format_bytes(summary.optimizer_bytes)}",
        )
    )
    lines += [("", "activations come on top: `trainer.plan()` measures them")]
    lines += [("note", note) for note in summary.notes]
    return [_cut(f"{name:<12}{text}", WIDTH) for name, text in lines]


def _format_buffers(summary: ModelSummary) -> str:
    if not summary.buffers:
        return ""
    numbers = f"{summary.buffers:,} number{'' if summary.buffers == 1 else 's'}"
    return f"; {numbers} in buffers, {format_bytes(summary.buffer_bytes)}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
