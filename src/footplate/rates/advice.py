"""Why a sweep ended, and why its curve shows no rate: in words, with what to try."""

from __future__ import annotations

import math

from footplate.rates.curve import Findings

COMPLETE, EXPLODED, NO_DATA = "complete", "exploded", "no more data"
LOSS_NOT_FINITE, GRADIENTS_NOT_FINITE = "loss not finite", "gradients not finite"
ENDS = {
    COMPLETE: "up to the highest",
    EXPLODED: "then the loss exploded",
    NO_DATA: "then the data gave no batch any more",
    LOSS_NOT_FINITE: "then the loss was not finite",
    GRADIENTS_NOT_FINITE: "then the gradients were not finite",
}
DAMAGED_ROWS = "If a row of the data is damaged, on_nonfinite='skip' leaves its update out."
MORE_ROWS = "more rows in each (gradient_accumulation_steps, per_device_train_batch_size)"


def explain_end(stopped: str) -> str:
    """How the sweep ended."""
    return ENDS.get(stopped, stopped)


def explain_problem(
    found: Findings, rates: list[float], losses: list[float], stopped: str, planned: tuple[float, float, int]
) -> str:
    """Why there is no suggestion, and what to try.

    Args:
        found: What the curve shows.
        rates: The rates that were tried.
        losses: Their losses; the last may not be finite.
        stopped: Why the sweep ended.
        planned: Lowest rate, highest rate, number of updates.
    """
    lowest, highest, num_updates = planned
    if found.problem == "few":
        return explain_few(rates, losses, stopped, lowest)
    if found.problem == "rises":
        return f"the loss rises from the lowest rates on. Try lower ones: lowest={lowest / 1000:g}."
    if found.problem == "falls on":
        return f"the loss falls fastest at the highest rates. Try higher ones: highest={highest * 100:g}."
    if stopped in (LOSS_NOT_FINITE, GRADIENTS_NOT_FINITE) and found.diverges is None:
        what = explain_end(stopped).removeprefix("then ")
        return f"{what} at {rates[-1]:.3g}, though the loss had not risen before. {DAMAGED_ROWS}"
    goes_up = found.diverges is not None or stopped not in (COMPLETE, NO_DATA)
    ends = f"from {found.start:.4g} to {min(found.smoothed):.4g}"
    if found.problem == "noisy":
        higher = "" if goes_up else f", or higher rates (highest={highest * 100:g})"
        return (
            f"the loss differs more from batch to batch than it falls ({ends}). Try more updates "
            f"(num_updates={num_updates * 4}) or {MORE_ROWS}{higher}."
        )
    if not goes_up:
        return (
            f"the loss hardly changes ({ends}). Try higher rates (highest={highest * 100:g}) and more "
            f"updates (num_updates={num_updates * 4}); if that shows no more, the model does not learn."
        )
    return (
        f"the loss hardly falls before it rises ({ends}): the model is trained already, or learns too slowly "
        f"to be seen. Try more updates (num_updates={num_updates * 4})."
    )


def explain_few(rates: list[float], losses: list[float], stopped: str, lowest: float) -> str:
    """Why there are too few points."""
    count = f"there were only {len(losses)} updates"
    if stopped == NO_DATA:
        return f"{count}: {explain_end(stopped)}. Use data that can be read again from the start."
    if len(losses) == 1 and not math.isfinite(losses[0]):
        return (
            f"the first loss is {losses[0]}, before any step: the rate is not the reason. "
            "`footplate check script.py` looks for it."
        )
    if len(losses) == 1:
        return (
            "the gradients of the first update are not finite, before any step: the rate is not the reason. "
            "`footplate check script.py` looks for it."
        )
    said = f"{count}: {explain_end(stopped)}, at {rates[-1]:.3g}. Try lower rates: lowest={lowest / 1000:g}."
    return said if stopped == EXPLODED else f"{said} {DAMAGED_ROWS}"
