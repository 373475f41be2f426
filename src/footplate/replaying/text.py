"""What a replay found, as text."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

from footplate.instruments.measures import ModuleMeasure, RowMeasure, UpdateMeasure
from footplate.samples.table import format_table
from footplate.words import keep_end

if TYPE_CHECKING:
    from footplate.replaying.result import Replay

LEAST_NAME = 32  # letters of a module's name: fewer do not tell which one it is
NUM_SHOWN = 5  # rows and modules of the short form
LEAST_RISE = 0.5  # an earlier update is named if its loss is this much larger, as a share
COMPARED = ("loss", "grad_norm", "learning_rate")  # with the log


def describe_origin(replay: Replay) -> str:
    """Where the update was made again from."""
    start = f"checkpoint-{replay.first_step}" if replay.checkpoint else "the start"
    updates = count(replay.step - 1 - replay.first_step, "update")
    return (
        f"Update {replay.step} of {replay.run}, made again from {start} ({updates} before it, "
        f"{replay.seconds:.1f} s)"
    )


def describe_verdict(replay: Replay) -> str:
    """Whether it came out as logged."""
    steps = replay.compared_steps
    if not steps:
        return "Nothing is logged between there and this update, so there is nothing to compare it with."
    if not replay.mismatches:
        if replay.step not in steps:
            return (
                f"This update was not logged; the {count(len(steps), 'log')} on the way to it, up to update "
                f"{steps[-1]}, came out the same to the last bit."
            )
        others = f", and {count(len(steps) - 1, 'log')} before it" if len(steps) > 1 else ""
        return f"It came out as logged, to the last bit: {', '.join(COMPARED)}{others}."
    lines = ["It did NOT come out as logged:"]
    lines += [
        f"  update {entry.step}: {entry.key} was {entry.logged!r}, and is {entry.found!r} now"
        for entry in replay.mismatches[:NUM_SHOWN]
    ]
    if replay.changed:
        lines.append(f"What has changed since the checkpoint: {', '.join(replay.changed)}.")
    elif replay.checkpoint is None:
        lines.append(
            "Made from the start, a run is the same only if its model begins with the same weights: let the "
            "script call set_seed(...) before it builds the model, or pass model_init to the Trainer."
        )
    else:
        lines.append(
            "No change of settings, data or code was noticed. Look for what draws random numbers from the "
            "time or from elsewhere, and for another kind of machine: `footplate verify-resume` tests that."
        )
    return "\n".join(lines)


def describe_update(update: UpdateMeasure) -> str:
    """The numbers of the whole update."""
    parts = [
        f"{name} {value:.6g}"
        for name, value in (
            ("loss", update.loss),
            ("gradient norm", update.grad_norm),
            ("learning rate", update.learning_rate),
        )
        if value is not None
    ]
    moved = [module for module in update.modules if module.update_norm is not None]
    if moved:
        size = math.sqrt(sum((module.update_norm or 0.0) ** 2 for module in moved))
        weights = math.sqrt(sum((module.weight_norm or 0.0) ** 2 for module in moved))
        parts.append(
            f"update {size:.3g} on weights of {weights:.4g}" + (f" ({size / weights:.2g})" if weights else "")
        )
    return ", ".join(parts) or "The update ended before anything of it was measured."


def describe_nonfinite(replay: Replay) -> list[str]:
    """What is not finite, beginning with its origin."""
    lines = []
    update, rows = replay.update, replay.nonfinite_rows
    if update.nonfinite_weights is not None:
        lines.append(
            f"NOT FINITE: the weights of {update.nonfinite_weights} were damaged before this update. Look at "
            "an earlier one."
        )
    for row in rows:
        if row.nonfinite_inputs:
            names = ", ".join(row.nonfinite_inputs)
            lines.append(f"NOT FINITE: the data of {row.name} holds NaN or infinity in {names}.")
    module = update.find_first_nonfinite()
    found = replay.first_nonfinite
    if module is not None:
        lines.append(
            f"NOT FINITE: {module.name} ({module.kind}) is the first module whose output is not: "
            f"{count(module.num_nonfinite, 'value')}{name_rows(replay, module)}."
        )
    elif found is not None:
        lines.append(
            f"NOT FINITE: all outputs are finite; the gradient is not, first at {found.name} ({found.kind}), "
            "in the order of backward."
        )
    elif update.loss is not None and not math.isfinite(update.loss):
        lines.append(f"NOT FINITE: the loss is {update.loss}, and every module that was watched is finite.")
    return lines


def name_rows(replay: Replay, module: ModuleMeasure) -> str:
    """The rows that a module's non-finite values belong to, as part of a sentence."""
    names = [replay.rows[row].name for row in module.rows if row < len(replay.rows)]
    if not names:
        return ""
    return (
        ", in "
        + ", ".join(names[:NUM_SHOWN])
        + (f" and {len(names) - NUM_SHOWN} more" if len(names) > NUM_SHOWN else "")
    )


def describe_way(replay: Replay) -> list[str]:
    """An update on the way that may be the one that was meant."""
    earlier = [entry for entry in replay.before if entry[0] < replay.step]
    damaged = [step for step, loss, norm in earlier if not math.isfinite(loss + norm)]
    if damaged:
        return [f"On the way here, update {damaged[0]} was the first that is not finite: --step {damaged[0]}"]
    if not earlier or replay.loss is None:
        return []
    step, loss, _ = max(earlier, key=lambda entry: entry[1])
    if loss - replay.loss <= LEAST_RISE * abs(replay.loss):
        return []
    return [f"On the way here, update {step} had the largest loss, {loss:.6g}: --step {step}"]


def describe_differences(replay: Replay) -> list[str]:
    """How it compares with the same update of another run."""
    differences = replay.differences or []
    if not differences:
        return [f"The same as in {replay.other}, to the last bit."]
    return [
        f"Compared with {replay.other}, in the order of an update:",
        *(f"  {number}. {difference.text}" for number, difference in enumerate(differences, start=1)),
    ]


def show_rows(rows: list[RowMeasure], shows_all: bool) -> str:
    """The rows as a table: all in their order, or those with the largest loss."""
    if not rows:
        return "No row was seen."
    chosen = rows if shows_all else sorted(rows, key=_badness, reverse=True)[:NUM_SHOWN]
    several = len({row.rank for row in rows}) > 1
    table = []
    for row in chosen:
        entry: dict[str, Any] = {
            "row": row.number if row.number is not None else f"{row.micro_batch}:{row.place}"
        }
        if several:
            entry["rank"] = row.rank
        if row.loss is not None:
            entry["loss alone"] = row.loss
        entry.update({name: value for name, value in row.shown.items() if name not in ("row", "correct")})
        table.append({**entry, **({"correct": False} if not row.is_finite else {})})
    title = (
        f"The {len(rows)} rows"
        if shows_all or len(rows) <= NUM_SHOWN
        else f"{NUM_SHOWN} of the {len(rows)} rows, by their loss"
    )
    return format_table(f"{title} (the loss of a row alone, without dropout; x: not finite)", table, _width())


def _badness(row: RowMeasure) -> float:
    if not row.is_finite:
        return math.inf
    return row.loss if row.loss is not None else -math.inf


def show_modules(modules: list[ModuleMeasure], shows_all: bool) -> str:
    """The modules as a table: all in the order in which they ran, or those with the largest gradients."""
    if not modules:
        return "No module was watched."
    chosen = modules
    if not shows_all:
        chosen = [module for module in modules if module.grad_norm is not None or not module.is_finite]
        chosen = sorted(chosen, key=_weight, reverse=True)[:NUM_SHOWN]
    table = [
        {
            "module": module.name,
            "kind": module.kind,
            "output": _range(module),
            "gradient": _short(module.grad_norm),
            "weights": _short(module.weight_norm),
            "update": _short(module.update_norm),
            "ratio": _short(module.update_ratio),
            **({"correct": False} if not module.is_finite else {}),
        }
        for module in chosen
    ]
    if table:
        leave_room_for_names(table, _width())
    title = (
        f"The {len(modules)} modules, as they ran"
        if shows_all
        else f"{len(chosen)} of {len(modules)} modules, by their gradient"
    )
    return format_table(f"{title} (norms; x: not finite)", table, _width())


def leave_room_for_names(table: list[dict[str, Any]], width: int) -> None:
    """Leave columns out, and cut names at their beginning, where a terminal is too narrow for all of them."""
    longest = max(len(row["module"]) for row in table)
    for name in ("", "kind", "weights", "update"):  # the ratio tells most of the last two
        for row in table:
            row.pop(name, None)
        others = [column for column in table[0] if column not in ("module", "correct")]
        taken = sum(2 + max(len(column), *(len(row[column]) for row in table)) for column in others)
        room = width - 3 - taken
        if room >= min(longest, LEAST_NAME):
            break
    for row in table:
        row["module"] = keep_end(row["module"], max(room, 8))


def _weight(module: ModuleMeasure) -> float:
    if not module.is_finite:
        return math.inf
    return module.grad_norm if module.grad_norm is not None else -math.inf


def _range(module: ModuleMeasure) -> str:
    values = "" if module.low is None else f"{module.low:.3g} to {module.high:.3g}"
    return f"{values} ({module.num_nonfinite} not finite)".strip() if module.num_nonfinite else values or "-"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _width() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def count(number: int, what: str) -> str:
    """A number with its word: "1 log", "3 logs"."""
    return f"{number} {what}{'' if number == 1 else 's'}"
