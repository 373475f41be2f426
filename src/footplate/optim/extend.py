"""Train beyond the planned end of a run: which learning rate the added updates get."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from footplate.optim.refresh import recompute_rates

logger = logging.getLogger(__name__)

EXTEND_POLICIES = ("stretch", "hold", "restart")
NEGLIGIBLE = 0.01  # of the highest rate; a lower rate hardly changes the model

Curve = Callable[[int], float]
Extension = tuple[str, int, int]  # policy, planned end before, planned end after


def extend_schedule(
    scheduler: LRScheduler,
    policy: str,
    old_steps: int,
    new_steps: int,
    build: Callable[[int], LRScheduler] | None = None,
) -> None:
    """Change a schedule, its saved state loaded, so that it ends at `new_steps`; set the next update's rates.

    The schedule's state lists its extensions, so that an extended run can be resumed and extended again.

    Args:
        scheduler: The schedule, its state loaded.
        policy: "stretch": from here on, the curve of a run that was planned with `new_steps` updates.
            "hold": the rate of the last planned update until the new end. "restart": the whole curve, with
            its warm-up, once more over the added updates.
        old_steps: Updates that the saved run had planned.
        new_steps: Updates to make in all.
        build: Makes the run's schedule for a number of updates. None if the user made the schedule: then
            only "stretch" is possible, and the user must have made it for `new_steps` updates.
    """
    extensions = plan_extensions(getattr(scheduler, "extensions", ()), policy, old_steps, new_steps)
    if build is None or not isinstance(scheduler, LambdaLR):
        _check_stretches(scheduler, extensions)
    else:
        num_groups = len(scheduler.lr_lambdas)
        curves = [join_curves(extensions, partial(_build_curve, build, group)) for group in range(num_groups)]
        scheduler.lr_lambdas = curves
        if policy == "hold":
            _warn_if_negligible(curves[0], old_steps)
    scheduler.extensions = [list(extension) for extension in extensions]  # type: ignore[attr-defined]
    recompute_rates(scheduler)


def plan_extensions(
    saved: Sequence[Sequence[Any]], policy: str, old_steps: int, new_steps: int
) -> list[Extension]:
    """All extensions of a run; adds the new one unless the run is already being extended to `new_steps`."""
    if policy not in EXTEND_POLICIES:
        raise ValueError(f"extend_policy={policy!r} is not known. Use one of {EXTEND_POLICIES}.")
    extensions: list[Extension] = [(str(name), int(old), int(new)) for name, old, new in saved]
    if extensions and extensions[-1][2] == new_steps:
        if extensions[-1][0] != policy:
            raise ValueError(
                f"This run is already being extended to {new_steps} updates, with extend_policy="
                f"{extensions[-1][0]!r}; {policy!r} would change its curve half-way. Keep "
                f"{extensions[-1][0]!r}, or resume from a checkpoint that was saved before the extension."
            )
        return extensions
    end = extensions[-1][2] if extensions else old_steps
    if new_steps <= end:
        raise ValueError(
            f"train() was asked to extend the run to {new_steps} updates, and {end} are planned already. "
            "Give a larger extend_to_epochs or extend_to_steps, or leave it out to finish the run as planned."
        )
    return [*extensions, (policy, end, new_steps)]


def join_curves(extensions: Sequence[Extension], build_curve: Callable[[int], Curve]) -> Curve:
    """One curve over all updates: the curve of the first plan, changed by each extension in turn."""
    curve = build_curve(extensions[0][1])
    for policy, old_steps, new_steps in extensions:
        if policy == "stretch":
            curve = build_curve(new_steps)
        elif policy == "hold":
            curve = partial(_hold_after, curve=curve, last_step=old_steps - 1)
        else:
            added = build_curve(new_steps - old_steps)
            curve = partial(_switch_curves, first=curve, then=added, switch_step=old_steps)
    return curve


# Used as `partial` objects, because a schedule saves nothing of those: its state may hold only plain values.


def _hold_after(step: int, curve: Curve, last_step: int) -> float:
    return curve(min(step, last_step))


def _switch_curves(step: int, first: Curve, then: Curve, switch_step: int) -> float:
    return first(step) if step < switch_step else then(step - switch_step)


def _build_curve(build: Callable[[int], LRScheduler], group: int, num_steps: int) -> Curve:
    built = build(num_steps)
    assert isinstance(built, LambdaLR)
    return built.lr_lambdas[group]


def _check_stretches(scheduler: LRScheduler, extensions: Sequence[Extension]) -> None:
    """Refuse to hold or restart a schedule that footplate did not build from a curve."""
    for policy, _, _ in extensions:
        if policy != "stretch":
            raise ValueError(
                f"extend_policy={policy!r} needs a schedule that footplate built from a curve, "
                f"but this is {type(scheduler).__name__}. Use extend_policy='stretch'."
            )


def _warn_if_negligible(curve: Curve, old_steps: int) -> None:
    """Warn if the rate to hold is almost 0, as at the end of a curve that falls to 0."""
    held = curve(old_steps)
    highest = max(curve(step) for step in range(0, old_steps, max(1, old_steps // 100)))
    if held < NEGLIGIBLE * highest:
        logger.warning(
            "extend_policy='hold' keeps the rate of the last planned update, which is %.2g of the highest: "
            "the added updates will hardly change the model. Use 'stretch' or 'restart' instead.",
            held / highest if highest else 0.0,
        )
