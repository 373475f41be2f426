"""What is measured once of a model, and from which the memory of any number of ranks follows."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from footplate.planning.optimizer import OptimizerCost, StateTensor, measure_optimizer, rule_key
from footplate.planning.trial import Step, Trial, call_for_loss, try_micro_batch
from footplate.planning.units import count_units, find_units, read_layer_names, sort_units

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
ORDER_BYTES_PER_ROW = (
    48  # a random order: a tensor of 8 bytes per row, and 40 for the list that is made of it
)
DEFAULT_OPTIMIZER: tuple[Any, dict[str, Any]] = (torch.optim.AdamW, {"fused": True})


class Weight(NamedTuple):
    """One parameter of a model."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    is_trained: bool

    def num_bytes(self, num_shards: int = 1) -> int:
        """Its bytes on one rank."""
        return math.prod(self.local_shape(num_shards)) * self.dtype.itemsize

    def local_shape(self, num_shards: int) -> tuple[int, ...]:
        """Its shape on the rank with most of it: FSDP cuts the first dimension."""
        if not self.shape:
            return self.shape
        return (math.ceil(self.shape[0] / num_shards), *self.shape[1:])


class Unit(NamedTuple):
    """Bytes of a part of the model while it is whole: as FSDP gathers it, and as it reduces its gradients."""

    weights: int = 0
    gradients: int = 0  # as backward makes them
    reduced: int = 0  # in the precision in which they are summed


@dataclass(frozen=True)
class Basis:
    """The measured facts."""

    weights: list[Weight]
    buffer_bytes: int
    root: Unit
    units: list[Unit]
    trial: Trial
    optimizer: OptimizerCost
    optimizer_name: str
    accumulation: int
    device: torch.device
    reduces_each_batch: bool = False  # FSDP: else gradients stay whole until the last micro-batch
    order_bytes: int = 0
    keeps_copy: bool = False  # a copy of model and optimizer in host memory is written while training goes on
    notes: list[str] = field(default_factory=list)

    @property
    def num_parameters(self) -> int:
        """Numbers in the model."""
        return sum(math.prod(weight.shape) for weight in self.weights)

    @property
    def num_trained(self) -> int:
        """Numbers that training changes."""
        return sum(math.prod(weight.shape) for weight in self.weights if weight.is_trained)

    def weight_bytes(self, num_shards: int = 1) -> int:
        """Weights and buffers on one rank; buffers are whole everywhere."""
        return sum(weight.num_bytes(num_shards) for weight in self.weights) + self.buffer_bytes

    def gradient_bytes(self, num_shards: int = 1) -> int:
        """Gradients on one rank."""
        return sum(weight.num_bytes(num_shards) for weight in self.weights if weight.is_trained)

    def optimizer_bytes(self, num_shards: int = 1) -> int:
        """State of the optimizer on one rank."""
        trained = [weight for weight in self.weights if weight.is_trained]
        return sum(
            self.optimizer.state_bytes(weight.local_shape(num_shards), weight.dtype) for weight in trained
        )

    def temporary_bytes(self, num_shards: int = 1) -> int:
        """Temporary results of a step of the optimizer on one rank."""
        return self.optimizer.temporary_bytes(
            [weight.num_bytes(num_shards) for weight in self.weights if weight.is_trained]
        )


def measure_basis(
    model: nn.Module,
    args: TrainingArguments,
    batch: Any,
    *,
    step: Step = call_for_loss,
    optimizer: tuple[Any, Mapping[str, Any]] = DEFAULT_OPTIMIZER,
    units: Collection[nn.Module] | None = None,
    num_rows: int = 0,
    target: str | None = None,
) -> Basis:
    """Measure a model, its optimizer and one micro-batch, without allocating them.

    Args:
        model: The model, on any device.
        args: The settings of the run.
        batch: One micro-batch.
        step: Gives the loss of a batch.
        optimizer: The class of the optimizer, and its arguments besides the parameters.
        units: Parts of the model that FSDP shards one by one; default: its repeated layers.
        num_rows: Rows of the training data.
        target: The kind of device that the plan is for, such as "cuda"; default: this machine's.
    """
    precision = PRECISIONS.get(args.mixed_precision)
    found = find_units(model, read_layer_names(args)) if units is None else sort_units(model, units)
    # a model on the meta device is planned for this machine's own
    device = torch.device("cpu") if args.device.type == "meta" else args.device
    trial = try_micro_batch(model, batch, step, device, found, precision)
    notes = [f"activations are not known: {trial.problem}"] if trial.problem else []
    parameters = list(model.parameters())
    planned = torch.device(target) if target is not None else device
    trained = [value for value in parameters if value.requires_grad]
    cost = _measure_optimizer(optimizer, trained, planned, notes)
    width = sum(value.nbytes for value in parameters) / max(sum(value.numel() for value in parameters), 1)
    cast = precision.itemsize if precision is not None else width
    root, sizes = count_units(model, found)
    root_unit, *others = (
        Unit(
            *(
                int(value)
                for value in (size.num_values * cast, size.num_trained * cast, size.num_trained * width)
            )
        )
        for size in (root, *sizes)
    )
    is_ordered = args.train_sampling_strategy in ("keyed", "sequential")
    return Basis(
        weights=[Weight(tuple(value.shape), value.dtype, value.requires_grad) for value in parameters],
        buffer_bytes=sum(value.nbytes for value in model.buffers()),
        root=root_unit,
        units=others,
        trial=trial,
        optimizer=cost,
        optimizer_name=getattr(optimizer[0], "__name__", str(optimizer[0])),
        accumulation=args.gradient_accumulation_steps,
        device=planned,
        reduces_each_batch=args.accelerator_config.syncs_each_batch,
        order_bytes=0 if is_ordered else ORDER_BYTES_PER_ROW * num_rows,
        keeps_copy=args.save_in_background and args.save_strategy != "no",
        notes=notes,
    )


def _measure_optimizer(
    optimizer: tuple[Any, Mapping[str, Any]],
    trained: list[nn.Parameter],
    device: torch.device,
    notes: list[str],
) -> OptimizerCost:
    """The cost of an optimizer; that of Adam, with a note, where it cannot be tried."""
    try:
        return measure_optimizer(*optimizer, trained, device)
    except Exception as error:  # one for other hardware, or one that needs the whole model
        notes.append(f"the optimizer could not be tried and is counted as Adam: {error}")
    keys = {rule_key(value.shape, value.dtype) for value in trained}
    return OptimizerCost({key: 2 * [StateTensor(None, key[1].itemsize)] for key in keys}, 0.0, 0.0)
