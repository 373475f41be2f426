"""The plan of a whole run: updates, schedule, checkpoints, memory and traffic."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate.checkpoint.planned import Checkpoints, plan_checkpoints
from footplate.planning.basis import DEFAULT_OPTIMIZER, Basis, measure_basis
from footplate.planning.duration import BuildSchedule, Duration, Schedule, plan_duration, plan_schedule
from footplate.planning.memory import MemoryPlan, combine
from footplate.planning.meter import Largest
from footplate.planning.traffic import SHARDINGS, Transfer, choose_group, plan_traffic
from footplate.planning.trial import Step, call_for_loss
from footplate.words import parse_bytes
from footplate.wrappers import bare_model

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # that the table may show
FEWEST_RANKS_SHOWN = 8


@dataclass(frozen=True)
class RunPlan:
    """What a run would take; `print` shows it."""

    model: str
    num_parameters: int
    num_trained: int
    optimizer: str
    device: str
    duration: Duration
    schedule: Schedule
    checkpoints: Checkpoints
    memory: MemoryPlan
    memory_limit: int
    transfers: list[Transfer]
    table: list[MemoryPlan]  # other numbers of ranks and ways of sharding
    largest: Largest = field(default_factory=Largest)
    notes: list[str] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether one rank has enough memory."""
        return self.memory.peak <= self.memory_limit

    @property
    def recommended(self) -> MemoryPlan | None:
        """The smallest number of ranks that fits, with the least traffic; None if none in the table fits."""
        fitting = [plan for plan in self.table if plan.peak <= self.memory_limit]
        return min(fitting, key=lambda plan: (plan.world_size, SHARDINGS.index(plan.sharding)), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        found = self.recommended
        return {
            **vars(self),
            "duration": self.duration._asdict(),
            "schedule": self.schedule._asdict(),
            "checkpoints": self.checkpoints._asdict(),
            "memory": self.memory.to_dict(),
            "transfers": [transfer._asdict() for transfer in self.transfers],
            "table": [plan.to_dict() for plan in self.table],
            "largest": self.largest._asdict(),
            "fits": self.fits,
            "recommended": None if found is None else found.to_dict(),
        }

    def __str__(self) -> str:
        from footplate.planning.table import format_plan

        return format_plan(self)

    __repr__ = __str__


def plan_run(
    model: nn.Module,
    args: TrainingArguments,
    batch: Any,
    *,
    num_rows: int | None = None,
    world_size: int | None = None,
    sharding: str | None = None,
    memory: int | str | None = None,
    step: Step = call_for_loss,
    optimizer: tuple[Any, Mapping[str, Any]] = DEFAULT_OPTIMIZER,
    units: Collection[nn.Module] | None = None,
    build_schedule: BuildSchedule | None = None,
    num_eval_rows: int = 0,
    ranks_per_node: int = 8,
    bucket_view: bool = True,
    device: str | None = None,
) -> RunPlan:
    """What a run would take, for the model and the settings as they are; nothing is allocated.

    Args:
        model: The model; it may be on the meta device.
        args: The settings of the run.
        batch: One micro-batch of one rank.
        num_rows: Rows of the training data; None for a stream, which needs `max_steps`.
        world_size: The number of ranks; default: as many as run now.
        sharding: "none", "full_shard", "shard_grad_op" or "hybrid"; default: what `args.fsdp` says.
        memory: Of one rank's device, such as "80GB"; default: that of this machine's.
        step: Gives the loss of a batch, or the loss and the model's outputs.
        optimizer: The class of the optimizer, and its arguments besides the parameters.
        units: Parts of the model that FSDP shards one by one; default: its repeated layers.
        build_schedule: Makes the learning-rate schedule of an optimizer for so many updates.
        num_eval_rows: Rows of the evaluation data.
        ranks_per_node: Ranks of one machine; "hybrid" shards inside it.
        bucket_view: Whether gradients are views of DDP's buckets; else they are there twice.
        device: The kind of device to plan for, such as "cuda"; default: this machine's.
    """
    world_size = max(args.world_size, 1) if world_size is None else world_size
    if world_size < 1:
        raise ValueError(f"world_size={world_size} is not a number of ranks. Give 1 or more.")
    sharding = read_sharding(args) if sharding is None else sharding
    choose_group(sharding, world_size, ranks_per_node)  # refused before anything is measured
    if memory is None and device is not None and device != args.device.type:
        raise ValueError(
            f'device="{device}" is not what this machine has. Say how much memory it has: memory="80GB".'
        )
    limit = read_memory(memory, args.device)
    basis = measure_basis(
        model, args, batch, step=step, optimizer=optimizer, units=units, num_rows=num_rows or 0, target=device
    )
    duration = plan_duration(args, batch, num_rows, world_size)
    chosen = combine(basis, sharding, world_size, ranks_per_node, bucket_view)
    saved = plan_checkpoints(
        model, args, basis.optimizer_bytes(), duration.updates, duration.updates_per_epoch
    )
    return RunPlan(
        model=type(bare_model(model)).__name__,
        num_parameters=basis.num_parameters,
        num_trained=basis.num_trained,
        optimizer=basis.optimizer_name,
        device=str(basis.device),
        duration=duration,
        schedule=plan_schedule(args, duration.updates, build_schedule),
        checkpoints=saved,
        memory=chosen,
        memory_limit=limit,
        transfers=list_transfers(basis, args, chosen, ranks_per_node, num_eval_rows),
        table=build_table(basis, world_size, limit, ranks_per_node, bucket_view),
        largest=basis.trial.largest,
        notes=[*basis.notes, *describe_assumptions(args, sharding)],
    )


# ---- parts ----


def list_transfers(
    basis: Basis, args: TrainingArguments, plan: MemoryPlan, ranks_per_node: int, num_eval_rows: int
) -> list[Transfer]:
    """What each rank sends in one update, and at one evaluation."""
    if plan.world_size == 1:
        return []
    units = [basis.root, *basis.units]
    found = plan_traffic(
        plan.sharding,
        choose_group(plan.sharding, plan.world_size, ranks_per_node),
        weight_bytes=sum(unit.weights for unit in units),
        root_bytes=basis.root.weights,
        gradient_bytes=basis.gradient_bytes(),
        accumulation=basis.accumulation,
        reduces_each_batch=basis.reduces_each_batch,
        buffer_bytes=0 if args.ddp_broadcast_buffers is False else basis.buffer_bytes,
    )
    if num_eval_rows and basis.trial.output_bytes and not args.prediction_loss_only:
        predictions = basis.trial.output_bytes / args.train_batch_size * num_eval_rows
        share = (plan.world_size - 1) / plan.world_size
        found.append(Transfer("predictions, at each evaluation", int(share * predictions)))
    return found


def build_table(
    basis: Basis, world_size: int, limit: int, ranks_per_node: int, bucket_view: bool
) -> list[MemoryPlan]:
    """The memory for more and more ranks, up to those asked for and until one way of sharding fits."""
    found: list[MemoryPlan] = []
    for ranks in sorted({*RANKS, world_size}):
        is_enough = ranks > max(FEWEST_RANKS_SHOWN, world_size)
        if is_enough and any(plan.peak <= limit for plan in found):
            break
        ways = ["none"] if ranks == 1 else [way for way in SHARDINGS if way != "hybrid"]
        if ranks > ranks_per_node and ranks % ranks_per_node == 0:
            ways.append("hybrid")  # on one machine it is the same as full_shard
        found += [combine(basis, way, ranks, ranks_per_node, bucket_view) for way in ways]
    return found


def read_sharding(args: TrainingArguments) -> str:
    """The way of sharding that `fsdp` and `fsdp_config` mean."""
    if not args.fsdp:
        return "none"
    words = args.fsdp if isinstance(args.fsdp, (list, tuple)) else str(args.fsdp).replace(",", " ").split()
    text = " ".join(str(getattr(word, "value", word)) for word in words).lower()
    config = args.fsdp_config if isinstance(args.fsdp_config, dict) else {}
    if "hybrid" in text:
        return "hybrid"
    keeps = "shard_grad_op" in text or config.get("reshard_after_forward") is False
    return "shard_grad_op" if keeps else "full_shard"


def read_memory(memory: int | str | None, device: torch.device) -> int:
    """The bytes that one rank may use."""
    if memory is None:
        if device.type == "cuda":
            return int(torch.cuda.get_device_properties(device).total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    num_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    if num_bytes is None or num_bytes <= 0:
        raise ValueError(f'memory={memory!r} is not an amount of memory. Give a size such as "80GB".')
    return num_bytes


def describe_assumptions(args: TrainingArguments, sharding: str) -> list[str]:
    """What the plan leaves out for these settings."""
    config = args.fsdp_config if isinstance(args.fsdp_config, dict) and sharding != "none" else {}
    notes = []
    if args.torch_compile:
        notes.append("torch_compile may need less memory for activations than is counted here")
    if config.get("activation_checkpointing"):
        notes.append("activations are counted without fsdp_config's activation_checkpointing")
    if config.get("cpu_offload") or "offload" in str(args.fsdp):
        notes.append("offloading is not counted: shards are planned on the device")
    return notes
