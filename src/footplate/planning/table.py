"""A plan as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from footplate.planning.traffic import SHARDINGS
from footplate.words import format_bytes

if TYPE_CHECKING:
    from footplate.planning.memory import MemoryPlan
    from footplate.planning.run import RunPlan

WIDTH = 99  # no line is longer
PARTS = {
    "weights": "weights",
    "optimizer": "optimizer state",
    "gradients": "gradients",
    "activations": "activations",
    "weight_copies": "weights in half precision",
    "communication": "gathered and reduced",
    "step_temporaries": "temporaries of the step",
    "batch": "one batch",
    "order": "order of an epoch",
    "checkpoint_copy": "copy that is being saved",
}
PARTS_ON_HOST = (PARTS["order"], PARTS["checkpoint_copy"])
NAMES = {"none": "none (DDP)"}


def format_plan(plan: RunPlan) -> str:
    """The plan as a few short tables.

    Args:
        plan: What `plan_run` returned.
    """
    blocks = [_format_run(plan), _format_memory(plan), _format_traffic(plan), _format_table(plan)]
    verdict = _format_verdict(plan)
    notes = [_cut(f"note: {note}") for note in plan.notes]
    return "\n\n".join("\n".join(lines) for lines in [*blocks, [*verdict, *notes]] if lines)


def _format_run(plan: RunPlan) -> list[str]:
    duration, schedule, saved = plan.duration, plan.schedule, plan.checkpoints
    trained = "" if plan.num_trained == plan.num_parameters else f", {plan.num_trained:,} trained"
    factors = [f"{duration.micro_batch:,}"]
    factors += [f"{duration.accumulation} accumulated"] if duration.accumulation > 1 else []
    factors += [f"{plan.memory.world_size} ranks"] if plan.memory.world_size > 1 else []
    product = f" = {' x '.join(factors)}" if len(factors) > 1 else ""
    tokens = "" if duration.tokens is None else f", {duration.tokens:,} tokens"
    warmup = f"{schedule.warmup_steps:,}"
    end = "end unknown" if schedule.end is None else f"end {schedule.end:.3g}"
    room = "" if saved.disk_needed <= saved.disk_free else ": DOES NOT FIT"
    lines = {
        "model": f"{plan.model}, {plan.num_parameters:,} parameters{trained}",
        "updates": f"{duration.updates:,} of {duration.rows_per_update:,} rows{product}",
        "data": f"{duration.epochs:g} epochs, {duration.samples:,} samples{tokens}",
        "rate": f"{schedule.name}, warm-up {warmup} updates, peak {schedule.peak:.3g}, {end}",
        "saves": f"{saved.num_written} of {format_bytes(saved.num_bytes)}, {saved.num_kept} kept",
        "disk": f"{format_bytes(saved.disk_needed)} needed, {format_bytes(saved.disk_free)} free{room}",
    }
    return [_cut(f"{name:<9}{text}") for name, text in lines.items()]


def _format_memory(plan: RunPlan) -> list[str]:
    memory = plan.memory
    parts = {text: getattr(memory, name) for name, text in PARTS.items()}
    if not memory.is_on_host:
        parts = {text: size for text, size in parts.items() if text not in PARTS_ON_HOST}
    lines = [f"memory of each rank: {_describe(memory)}, highest in {memory.moment}"]
    lines += [_row(text, size, _explain(plan, text)) for text, size in parts.items() if size]
    fits = "fits" if plan.fits else "DOES NOT FIT"
    lines.append(_row("peak", memory.peak, f"  of {format_bytes(plan.memory_limit)}: {fits}"))
    if memory.host and not memory.is_on_host:
        lines.append(_row("host memory", memory.host))
    return lines


def _explain(plan: RunPlan, part: str) -> str:
    if part == PARTS["optimizer"]:
        return f"  {plan.optimizer}"
    if part == PARTS["activations"] and plan.largest.num_bytes:
        shape = " x ".join(map(str, plan.largest.shape))
        return f"  largest {format_bytes(plan.largest.num_bytes)}: {shape} {plan.largest.dtype}"
    return ""


def _format_traffic(plan: RunPlan) -> list[str]:
    if not plan.transfers:
        return []
    lines = ["sent by each rank in one update"]
    return lines + [_row(transfer.name, transfer.num_bytes) for transfer in plan.transfers]


def _format_table(plan: RunPlan) -> list[str]:
    ways = [way for way in SHARDINGS if any(row.sharding == way for row in plan.table)]
    lines = [f"peak of each rank by ranks and sharding, * fits into {format_bytes(plan.memory_limit)}"]
    lines.append("  " + f"{'ranks':>6}" + "".join(f"{NAMES.get(way, way):>16}" for way in ways))
    for ranks in dict.fromkeys(row.world_size for row in plan.table):
        rows = {row.sharding: row for row in plan.table if row.world_size == ranks}
        cells = [_cell(rows.get(way), plan.memory_limit) for way in ways]
        lines.append(f"  {ranks:>6}" + "".join(cells).rstrip())
    return lines


def _cell(plan: MemoryPlan | None, limit: int) -> str:
    if plan is None:
        return f"{'-':>14}  "
    return f"{format_bytes(plan.peak):>14}" + (" *" if plan.peak <= limit else "  ")


def _format_verdict(plan: RunPlan) -> Sequence[str]:
    found, limit = plan.recommended, format_bytes(plan.memory_limit)
    unknown = "" if plan.memory.is_measured else ", without activations"
    if found is None:
        return [
            f"nothing in the table fits into {limit}{unknown}: lower per_device_train_batch_size,",
            "set activation_checkpointing=True or bf16=True, or use devices with more memory",
        ]
    verdict = "" if plan.fits else f"{_describe(plan.memory)} does not fit into {limit}; "
    return [f"{verdict}the smallest that fits{unknown}: {_describe(found)}, {format_bytes(found.peak)}"]


def _describe(plan: MemoryPlan) -> str:
    if plan.world_size == 1:
        return "1 rank"
    return f"{plan.world_size} ranks, {'DDP' if plan.sharding == 'none' else plan.sharding}"


def _row(name: str, num_bytes: int, more: str = "") -> str:
    return _cut(f"  {name:<34}{format_bytes(num_bytes):>10}{more}")


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
