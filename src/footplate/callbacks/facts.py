"""What a run says of itself when it begins and when it ends: facts, and their form for people."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from footplate.batch import find_length
from footplate.state import TrainerState
from footplate.wrappers import unwrap_model

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

REPORT_NAME = "report.html"
PRECISIONS = {"no": "float32", "bf16": "bf16 mixed", "fp16": "fp16 mixed", "fp8": "fp8 mixed"}

# ---- the beginning ----


def describe_start(
    args: TrainingArguments, state: TrainerState, model: Any, plan: Any, loader: Any, resumed_from: Any
) -> dict[str, Any]:
    """The facts of a run before its first update.

    Args:
        args: Its settings.
        state: Its state, with the step that it resumes from.
        model: The model.
        plan: Its numbers: a `TrainingPlan`.
        loader: What its batches come from.
        resumed_from: The checkpoint's folder, or None.
    """
    parameters = list(model.parameters()) if model is not None else []
    facts: dict[str, Any] = {
        "model": type(unwrap_model(model)).__name__,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    }
    if find_length(loader) is not None:  # how many rows a stream has is not known
        facts["rows"] = plan.num_examples
    processes = max(args.world_size, 1)
    facts |= {
        "micro_batch": plan.micro_batch_size,
        "accumulation": plan.accumulation,
        "processes": processes,
        "batch": plan.micro_batch_size * plan.accumulation * processes,
        "updates": plan.max_steps,
    }
    if "rows" in facts:
        by_steps = round(plan.max_steps / max(plan.updates_per_epoch, 1), 2)
        facts["epochs"] = args.num_train_epochs if args.max_steps <= 0 else by_steps
    facts |= {"precision": _describe_precision(args, parameters), "device": str(args.device)}
    facts["output_dir"] = str(args.output_dir)
    if resumed_from is not None:
        facts |= {"resumed_from": as_given(resumed_from, args.output_dir), "resumed_step": state.global_step}
        facts |= {"resumed_epoch": plan.start.epoch, "resumed_sample": plan.start.samples_done}
    return facts


def _describe_precision(args: TrainingArguments, parameters: list[Any]) -> str:
    mixed = str(args.mixed_precision)
    if mixed != "no":
        return PRECISIONS.get(mixed, mixed)
    dtypes = dict.fromkeys(str(parameter.dtype).removeprefix("torch.") for parameter in parameters)
    return "+".join(dtypes) or "float32"


def format_start(facts: Mapping[str, Any]) -> str:
    """The beginning of a run for people: a few lines, each with its name."""
    parameters, trainable = facts["parameters"], facts["trainable"]
    share = "" if parameters == trainable else f", {trainable:,} of them trained"
    factors = [f"{facts['micro_batch']:,}"]
    factors += [f"{facts['accumulation']} accumulated"] if facts["accumulation"] > 1 else []
    factors += [f"{facts['processes']} processes"] if facts["processes"] > 1 else []
    batch = f"{facts['batch']:,} rows per update"
    lines = {"model": f"{facts['model']}, {parameters:,} parameters{share}"}
    lines["data"] = f"{facts['rows']:,} rows" if "rows" in facts else "a stream"
    lines["batch"] = batch + (f" = {' x '.join(factors)}" if len(factors) > 1 else "")
    updates = f"{facts['updates']:,} updates"
    lines["run"] = updates + (f", {_count(facts['epochs'], 'epoch')}" if "epochs" in facts else "")
    lines["precision"] = f"{facts['precision']} on {facts['device']}"
    lines["writes to"] = facts["output_dir"]
    if "resumed_from" in facts:
        lines["resumes"] = (
            f"{facts['resumed_from']}, after update {facts['resumed_step']:,}, "
            f"at row {facts['resumed_sample']:,} of epoch {facts['resumed_epoch'] + 1}"
        )
    return format_block(lines)


# ---- the end ----


def describe_end(
    args: TrainingArguments, state: TrainerState, seconds: float, last_checkpoint: str | None
) -> dict[str, Any]:
    """The facts of a run that is over.

    Args:
        args: Its settings.
        state: Its state, with the log history.
        seconds: How long this `train()` took.
        last_checkpoint: The checkpoint that was sealed last by it.
    """
    facts: dict[str, Any] = {
        "updates": state.global_step,
        "max_steps": state.max_steps,
        "seconds": round(seconds, 1),
    }
    best = find_best(args, state)
    last = find_last(state, best[0] if best else None)
    if best is not None:
        facts |= {"best_metric": best[0], "best": best[1], "best_step": best[2]}
    if last is not None:
        facts |= {"last_metric": last[0], "last": last[1], "last_step": last[2]}
    if last_checkpoint is not None:
        facts["checkpoint"] = as_given(last_checkpoint, args.output_dir)
    if state.best_model_checkpoint:
        facts["best_checkpoint"] = as_given(state.best_model_checkpoint, args.output_dir)
    if args.report and args.output_dir is not None:
        facts["report"] = os.path.join(args.output_dir, REPORT_NAME)
    return facts


Found = tuple[str, float, int]  # name, value and step of a metric


def find_best(args: TrainingArguments, state: TrainerState) -> Found | None:
    """The best value of the metric that decides; without one, the lowest evaluation loss."""
    name = args.metric_for_best_model
    if state.best_metric is not None and state.best_global_step is not None and name is not None:
        name = name if name.startswith("eval_") else f"eval_{name}"
        return name, float(state.best_metric), int(state.best_global_step)
    found = _values(state, "eval_loss")
    return min(found, key=lambda entry: entry[1]) if found else None


def find_last(state: TrainerState, name: str | None) -> Found | None:
    """The last value of the metric `name`, else of the training loss."""
    found = (_values(state, name) if name else []) or _values(state, "loss")
    return found[-1] if found else None


def _values(state: TrainerState, name: str) -> list[Found]:
    entries = [entry for entry in state.log_history if isinstance(entry.get(name), (int, float))]
    return [(name, float(entry[name]), int(entry.get("step", 0))) for entry in entries]


def format_end(facts: Mapping[str, Any]) -> str:
    """The end of a run for people: a few lines, each with its name."""
    done, planned = facts["updates"], facts["max_steps"]
    time = format_duration(facts["seconds"])
    is_whole = done >= planned
    how_far = f"{done:,} updates in {time}" if is_whole else f"after {done:,} of {planned:,} updates, {time}"
    lines = {"finished" if is_whole else "stopped": how_far}
    for word in ("best", "last"):
        if word in facts:
            value = f"{facts[f'{word}_metric']} {facts[word]:.4g}"
            lines[word] = f"{value} at step {facts[f'{word}_step']:,}"
    if "checkpoint" in facts:
        lines["saved"] = facts["checkpoint"]
        best = facts.get("best_checkpoint")
        if best and best != facts["checkpoint"]:
            lines["saved"] += f", the best is {os.path.basename(best)}"
    if "report" in facts:
        lines["report"] = facts["report"]
    return format_block(lines)


# ---- words ----


def as_given(path: str, output_dir: str | None) -> str:
    """A folder directly inside `output_dir` as its user wrote it, relative or not; any other as it is."""
    parent, name = os.path.split(os.path.abspath(path))
    is_inside = output_dir is not None and parent == os.path.abspath(output_dir)
    return os.path.join(output_dir, name) if is_inside and output_dir is not None else str(path)


def format_block(lines: Mapping[str, str]) -> str:
    """Lines with their names in a column of their own."""
    width = max(map(len, lines))
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in lines.items())


def format_duration(seconds: float) -> str:
    """Seconds in the two largest units that they have."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _count(number: float, word: str) -> str:
    return f"{number:g} {word}{'' if number == 1 else 's'}"
