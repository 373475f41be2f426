"""The memory of one rank, for a number of ranks and a way of sharding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from footplate.planning.basis import DEFAULT_OPTIMIZER, Basis, measure_basis
from footplate.planning.meter import Place
from footplate.planning.traffic import Group, choose_group
from footplate.planning.trial import Step, call_for_loss

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


@dataclass(frozen=True)
class MemoryPlan:
    """The bytes of one rank at the moment of an update when it needs most."""

    sharding: str
    world_size: int
    moment: str  # "forward", "backward" or "step"
    weights: int  # and buffers
    optimizer: int
    gradients: int
    activations: int  # and temporary results of forward and backward
    weight_copies: int  # in the precision of autocast
    communication: int  # weights that FSDP has gathered, gradients that it reduces, buckets of DDP
    step_temporaries: int
    batch: int
    order: int  # of an epoch's rows; in host memory
    checkpoint_copy: int  # what is written while training goes on; in host memory
    is_on_host: bool  # the run is on the CPU, so that host memory counts too
    is_measured: bool = True  # whether activations are known

    @property
    def host(self) -> int:
        """What lies in host memory wherever the run is."""
        return self.order + self.checkpoint_copy

    @property
    def peak(self) -> int:
        """The highest number of bytes on the device."""
        on_device = (
            *(self.weights, self.optimizer, self.gradients, self.activations, self.weight_copies),
            *(self.communication, self.step_temporaries, self.batch),
        )
        return sum(on_device) + (self.host if self.is_on_host else 0)

    def to_dict(self) -> dict[str, Any]:
        """All fields, and the peak."""
        return {**asdict(self), "peak": self.peak}


def plan_memory(
    model: nn.Module,
    args: TrainingArguments,
    batch: Any,
    *,
    world_size: int = 1,
    sharding: str = "none",
    step: Step = call_for_loss,
    optimizer: tuple[Any, Mapping[str, Any]] = DEFAULT_OPTIMIZER,
    units: Collection[nn.Module] | None = None,
    ranks_per_node: int = 8,
    bucket_view: bool = True,
    num_rows: int = 0,
) -> MemoryPlan:
    """The memory of one rank of a run; the model is not allocated, and stays as it is.

    Args:
        model: The model; it may be on the meta device.
        args: The settings of the run.
        batch: One micro-batch of one rank.
        world_size: The number of ranks.
        sharding: "none" for DDP, "full_shard", "shard_grad_op" or "hybrid" for FSDP2.
        step: Gives the loss of a batch, or the loss and the model's outputs.
        optimizer: The class of the optimizer, and its arguments besides the parameters.
        units: Parts of the model that FSDP shards one by one; default: its repeated layers.
        ranks_per_node: Ranks of one machine; "hybrid" shards inside it.
        bucket_view: Whether gradients are views of DDP's buckets; else they are there twice.
        num_rows: Rows of the training data, whose order takes memory.
    """
    basis = measure_basis(model, args, batch, step=step, optimizer=optimizer, units=units, num_rows=num_rows)
    return combine(basis, sharding, world_size, ranks_per_node, bucket_view)


def combine(
    basis: Basis, sharding: str, world_size: int, ranks_per_node: int = 8, bucket_view: bool = True
) -> MemoryPlan:
    """The memory of one rank, from what was measured."""
    group = choose_group(sharding, world_size, ranks_per_node)
    shards = group.num_shards
    moments = _moments(basis, sharding, group, bucket_view)
    highest = max(
        moments, key=lambda moment: sum(value for value in moment.values() if isinstance(value, int))
    )
    state = basis.optimizer_bytes(shards)
    weights = basis.weight_bytes(shards)
    return MemoryPlan(
        sharding=sharding,
        world_size=world_size,
        weights=weights,
        optimizer=state,
        batch=basis.trial.batch_bytes,
        order=basis.order_bytes,
        checkpoint_copy=weights + state if basis.keeps_copy else 0,
        is_on_host=basis.device.type == "cpu",
        is_measured=not basis.trial.problem,
        **highest,
    )


def _moments(basis: Basis, sharding: str, group: Group, bucket_view: bool) -> Iterator[dict[str, Any]]:
    """What changes during an update, at each moment that may be the highest."""
    shards = group.num_shards
    gradients = basis.gradient_bytes(shards)
    if shards == 1:
        buckets = gradients if group.num_copies > 1 and not bucket_view else 0
        yield _moment("step", gradients, communication=buckets, temporaries=basis.temporary_bytes())
        yield from _whole_moments(basis, gradients, group.num_copies > 1, buckets)
        return
    yield _moment("step", gradients, temporaries=basis.temporary_bytes(shards))
    are_whole = basis.accumulation > 1 and not basis.reduces_each_batch
    for place, peaks in basis.trial.peaks.items():
        held = _gathered(basis, place, sharding == "shard_grad_op")
        if are_whole:
            kept = basis.gradient_bytes()  # of the earlier micro-batches
        else:
            kept = gradients if basis.accumulation > 1 else _finished(basis, place) // shards
        # FSDP casts what it gathers, so there are no copies for autocast
        yield _moment(place[0], kept, peaks.by_activations.activations, communication=held)
    root = basis.root  # it is reduced last
    at_end = root.weights + root.gradients + root.reduced
    yield _moment("backward", gradients, communication=at_end)


def _whole_moments(basis: Basis, gradients: int, has_buckets: bool, buckets: int) -> Iterator[dict[str, Any]]:
    """The moments of a model that is whole on each rank."""
    # buckets stay from update to update; gradients of an earlier micro-batch are all there
    are_kept = has_buckets or basis.accumulation > 1
    for (phase, _), peaks in basis.trial.peaks.items():
        moment = peaks.by_activations if are_kept else peaks.by_total
        kept = gradients if are_kept else moment.gradients
        yield _moment(phase, kept, moment.activations, moment.copies, buckets)


def _moment(
    name: str,
    gradients: int,
    activations: int = 0,
    weight_copies: int = 0,
    communication: int = 0,
    temporaries: int = 0,
) -> dict[str, Any]:
    return {
        "moment": name,
        "gradients": gradients,
        "activations": activations,
        "weight_copies": weight_copies,
        "communication": communication,
        "step_temporaries": temporaries,
    }


def _finished(basis: Basis, place: Place) -> int:
    """Gradients of the units after this one, whose backward is over, on all ranks together."""
    phase, number = place
    if phase == "forward" or number is None:
        return 0
    share = sum(unit.gradients for unit in basis.units[number + 1 :])
    total = basis.root.gradients + sum(unit.gradients for unit in basis.units)
    return int(basis.gradient_bytes() * share / max(total, 1))


def _gathered(basis: Basis, place: Place, stays_gathered: bool) -> int:
    """Whole weights and gradients that FSDP2 holds while a unit is at work; the next one is fetched early."""
    (phase, number), units, root = place, basis.units, basis.root
    is_forward = phase == "forward"
    if stays_gathered:  # weights of all units up to this one, in forward and in backward
        last = len(units) if number is None else number + 1
        held = sum(unit.weights for unit in units[: last + 1 if is_forward else last])
    elif number is None:
        held = units[-1].weights if units and not is_forward else 0
    else:
        following = number + 1 if is_forward else number - 1
        next_one = units[following].weights if 0 <= following < len(units) else 0
        held = units[number].weights + next_one
    if is_forward:
        return root.weights + held
    if number is not None:  # gradients as backward made them, and as they are sent
        held += units[number].gradients + units[number].reduced
    return root.weights + root.gradients + held
