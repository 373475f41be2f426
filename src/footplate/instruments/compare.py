"""The same update in two runs: where they begin to differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from footplate.instruments.measures import ModuleMeasure, UpdateMeasure


@dataclass(frozen=True)
class Difference:
    """The first thing that differs between two runs, in the order of an update.

    Args:
        what: "weights", "rows", "batch", "output", "gradient" or "update".
        module: The module; empty for rows and batch.
        text: What was found, in a sentence.
    """

    what: str
    module: str
    text: str


# in the order of an update: what each part is called, and which number says how far apart two of them are
_PARTS = {
    "weights": ("The weights before the update differ", "weight_norm"),
    "output": ("Outputs differ", "high"),
    "gradient": ("Gradients differ", "grad_norm"),
    "update": ("The updated weights differ", "update_norm"),
}


def find_differences(own: UpdateMeasure, other: UpdateMeasure) -> list[Difference]:
    """What differs, in the order of an update: weights, rows, outputs, gradients, the update.

    Only the first is a cause; what follows from it is there too. Empty if all bits are the same.
    """
    found = [_compare_modules("weights", own.modules, other.modules), _compare_rows(own, other)]
    found += [_compare_modules(part, own.modules, other.modules) for part in ("output", "gradient", "update")]
    return [difference for difference in found if difference is not None]


def _compare_rows(own: UpdateMeasure, other: UpdateMeasure) -> Difference | None:
    numbers = [[row.number for row in measure.rows] for measure in (own, other)]
    if numbers[0] != numbers[1]:
        shown = [", ".join(map(str, part[:6])) + (", ..." if len(part) > 6 else "") for part in numbers]
        return Difference(
            "rows", "", f"The update was made of other rows: {shown[0]} here, {shown[1]} there."
        )
    if own.batch_marks != other.batch_marks:
        text = (
            "The rows have the same numbers, and other content: the data, its augmentation or the collator "
            "differs."
        )
        return Difference("batch", "", text)
    return None


def _compare_modules(
    part: str, own: Sequence[ModuleMeasure], other: Sequence[ModuleMeasure]
) -> Difference | None:
    """The first module that differs in one part; of gradients, the first that backward came to."""
    others = {module.name: module for module in other}
    text, number = _PARTS[part]
    ordered = reversed(own) if part == "gradient" else own
    different = []
    for module in ordered:
        there = others.get(module.name)
        if there is None:
            return Difference(part, module.name, f"Only one of the runs has a module {module.name}.")
        if module.marks.get(part) != there.marks.get(part):
            different.append((module, there))
    if not different:
        return None
    module, there = different[0]
    num_compared = sum(part in entry.marks for entry in own)
    values = [getattr(entry, number) for entry in (module, there)]
    shown = "" if None in values else f" ({_NAMES[number]} {values[0]:.6g} here, {values[1]:.6g} there)"
    place = f"first in {module.name} ({module.kind}){shown}"
    return Difference(part, module.name, f"{text}, {place}; in {len(different)} of {num_compared} modules.")


_NAMES = {
    "weight_norm": "norm",
    "high": "largest value",
    "grad_norm": "norm",
    "update_norm": "norm of the update",
}
