"""What to say of what a rehearsal found, and which settings would mend it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from footplate.directions import seems_to_fall, seems_to_rise
from footplate.words import format_bytes


class BatchFacts(NamedTuple):
    """What is known of the micro-batch that was tried."""

    num_rows: int
    shape: str = ""  # of one row
    width: int | None = None  # tokens of one row, where they are tokens
    is_largest: bool = False  # the longest rows of the data, as far as they were measured
    num_measured: int = 0
    num_in_data: int = 0

    def __str__(self) -> str:
        text = f"{self.num_rows} rows{f' of {self.shape}' if self.shape else ''}"
        if not self.is_largest:
            return f"the first micro-batch, {text}"
        is_sure = self.num_measured == self.num_in_data
        among = "" if is_sure else f", the longest of {self.num_measured} measured among {self.num_in_data}"
        return f"the largest micro-batch, {text}{among}"


def explain_memory(facts: BatchFacts, error: str, fitting: int | None) -> str:
    """That memory ran out, and how many rows fit."""
    text = f"out of memory with {facts} ({error.partition(chr(10))[0]})."
    if fitting is None:
        return f"{text} Not even one of these rows fits."
    return f"{text} {fitting} of them fit{'s' if fitting == 1 else ''}."


def mend_memory(facts: BatchFacts, fitting: int | None, args: Any) -> list[str]:
    """The settings that keep the largest batch in memory."""
    shorter = "max_length of your tokenizer or of your data, to cut the longest rows"
    recompute = "activation_checkpointing=True"
    if fitting is None:
        return [shorter, recompute]
    if args.per_device_train_tokens is not None:
        # the budget counts tokens, and what fits is a share of it
        budget = max(args.per_device_train_tokens * fitting // max(facts.num_rows, 1), 1)
        return [f"per_device_train_tokens={budget}", "auto_find_batch_size=True", recompute, shorter]
    pieces = -(-facts.num_rows // fitting) * args.gradient_accumulation_steps
    return [
        f"per_device_train_batch_size={fitting} with gradient_accumulation_steps={pieces}",
        "auto_find_batch_size=True",
        recompute,
        shorter,
    ]


def explain_positions(model: Any, width: int | None) -> str:
    """That a row is longer than the model has positions; empty where that is not known."""
    config = getattr(model, "config", None)
    names = ("max_position_embeddings", "n_positions", "max_seq_len")
    limit = next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)
    if limit is None or width is None or width <= limit:
        return ""
    return f" The batch is {width} tokens wide, and the model has {limit} positions."


def check_direction(name: str, is_greater: bool | None, value: Any) -> str:
    """What is odd about the metric that decides on the best model; empty if nothing is."""
    if not isinstance(value, (int, float)) or value != value:
        return f"metric_for_best_model={name!r} was {value!r} on the rows that were tried: nothing is better"
    if is_greater and seems_to_fall(name):
        return f"greater_is_better=True, and {name!r} looks like a metric that should fall"
    if is_greater is False and seems_to_rise(name):
        return f"greater_is_better=False, and {name!r} looks like a metric that should rise"
    return ""


def explain_room(needed: int, free: int, each: int, num_kept: int, folder: str) -> str:
    """What the checkpoints of the run take of the disk, and what is free."""
    word = "checkpoint" if num_kept == 1 else "checkpoints"
    return (
        f"the run will keep up to {num_kept} {word} of {format_bytes(each)}, which takes "
        f"{format_bytes(needed)} more, and {format_bytes(free)} are free in {folder!r}"
    )


def mend_room(free: int, each: int, num_kept: int, args: Any, num_present: int = 0) -> list[str]:
    """The settings that make checkpoints fit on the disk, where some of the run are there already."""
    fitting = num_present + free // max(each, 1) - 1  # while one is written, the oldest is still there
    settings = [] if fitting < 1 or num_kept <= 1 else [f"save_total_limit={min(fitting, num_kept - 1)}"]
    if not args.save_only_model:
        settings.append("save_only_model=True")
    return [*settings, "output_dir on a larger disk"]


def join_names(names: Sequence[str], most: int = 5) -> str:
    """Some names, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
