"""Going on past the planned end of a run: what the learning rate does there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from footplate.optim.refresh import recompute_rates

logger = logging.getLogger(__name__)

EXTEND_POLICIES = ("stretch", "hold", "restart")
NEGLIGIBLE = 0.01  # of the highest rate: holding less than that hardly trains

Curve = Callable[[int], float]
Extension = tuple[str, int, int]  # policy, planned end before, planned end after


def extend_schedule(
    scheduler: LRScheduler,
    policy: str,
    old_steps: int,
    new_steps: int,
    build: Callable[[int], LRScheduler] | None = None,
) -> None:
    """Let a schedule in its saved state run to `new_steps`, and set the rates of the next update.

    Extensions are kept in the schedule's state, so that an extended run can be resumed and extended again.

    Args:
        scheduler: The schedule, its state loaded.
        policy: "stretch": the curve of the longer run, from here on. "hold": the rate of the last planned
            update, to the new end. "restart": warm-up and curve anew over the added updates.
        old_steps: Updates that the saved run had planned.
        new_steps: Updates to make in all.
        build: Makes the run's schedule for a number of updates; without it the schedule is one of the user's
            own, which can only be stretched, by being built for `new_steps`.
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
    """The extensions of a run with this one at the end, unless it is the one under way already."""
    if policy not in EXTEND_POLICIES:
        raise ValueError(f"extend_policy={policy!r} is not known. Use one of {EXTEND_POLICIES}.")
    extensions: list[Extension] = [(str(name), int(old), int(new)) for name, old, new in saved]
    if extensions and extensions[-1][2] == new_steps:
        if extensions[-1][0] != policy:
            raise ValueError(
                f"This run is already being extended to {new_steps} updates, with extend_policy="
                f"{extensions[-1][0]!r}; {policy!r} would change its curve half-way. Go on with "
                f"{extensions[-1][0]!r}, or resume from a checkpoint of before the extension."
            )
        return extensions
    end = extensions[-1][2] if extensions else old_steps
    if new_steps <= end:
        raise ValueError(
            f"extend_to comes to {new_steps} updates, and the run was planned for {end} already. Give a "
            "larger extend_to, or leave it out to finish the run as planned."
        )
    return [*extensions, (policy, end, new_steps)]


def join_curves(extensions: Sequence[Extension], build_curve: Callable[[int], Curve]) -> Curve:
    """One curve over all updates, from that of the first plan and what each extension makes of it."""
    curve = build_curve(extensions[0][1])
    for policy, old_steps, new_steps in extensions:
        if policy == "stretch":
            curve = build_curve(new_steps)
        elif policy == "hold":
            curve = partial(_held, curve=curve, last_step=old_steps - 1)
        else:
            curve = partial(_chained, first=curve, then=build_curve(new_steps - old_steps), switch=old_steps)
    return curve


# These become `partial` objects, which leave nothing in a schedule's state: only plain values may be there.


def _held(step: int, curve: Curve, last_step: int) -> float:
    return curve(min(step, last_step))


def _chained(step: int, first: Curve, then: Curve, switch: int) -> float:
    return first(step) if step < switch else then(step - switch)


def _build_curve(build: Callable[[int], LRScheduler], group: int, num_steps: int) -> Curve:
    built = build(num_steps)
    assert isinstance(built, LambdaLR)
    return built.lr_lambdas[group]


def _check_stretches(scheduler: LRScheduler, extensions: Sequence[Extension]) -> None:
    """Raise if a schedule that is no curve of ours should be held or restarted."""
    for policy, _, _ in extensions:
        if policy != "stretch":
            raise ValueError(
                f"extend_policy={policy!r} needs a schedule that is a curve over the run's updates, and "
                f"{type(scheduler).__name__} is none that footplate built. Use extend_policy='stretch'."
            )


def _warn_if_negligible(curve: Curve, old_steps: int) -> None:
    """Say it if the rate that is held is next to nothing: a curve that falls to 0 ends there."""
    held, highest = (
        curve(old_steps),
        max(curve(step) for step in range(0, old_steps, max(1, old_steps // 100))),
    )
    if held < NEGLIGIBLE * highest:
        logger.warning(
            "extend_policy='hold' keeps the rate of the last planned update, which is %.2g of the highest: "
            "the added updates will hardly change the model. Use 'stretch' or 'restart' to train on.",
            held / highest if highest else 0.0,
        )
