"""For your tests: check that an interrupted and resumed run equals a run without interruption."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from footplate import comm, rng
from footplate.callbacks import TrainerCallback
from footplate.state import TrainerControl, TrainerState
from footplate.trainer import Trainer

# Times and memory differ between two equal runs.
MEASURED = ("_runtime", "_per_second", "_preparation_time")
Outcome = dict[str, Any]


def assert_resume_is_exact(
    build_trainer: Callable[[str], Trainer], tmp_path: str | os.PathLike[str], stop_at: int | None = None
) -> None:
    """Train without interruption, then interrupted and resumed; AssertionError at the first difference.

    Args:
        build_trainer: Makes a new Trainer, with a new model and data, for the given `output_dir`.
        tmp_path: An empty folder.
        stop_at: The update after which to interrupt; by default the middle of the run.
    """
    generators = rng.capture()  # so that all three models start from the same weights
    straight = build_trainer(str(Path(tmp_path, "straight")))
    straight.train()
    expected = read_outcome(straight)

    if stop_at is None:
        stop_at = max(1, expected["global_step"] // 2)
    if not 0 < stop_at < expected["global_step"]:
        raise ValueError(f"stop_at={stop_at} is not inside the run of {expected['global_step']} updates.")
    folder = str(Path(tmp_path, "interrupted"))
    rng.restore(generators)
    interrupted = build_trainer(folder)
    interrupted.add_callback(_Interruption(stop_at))
    try:
        interrupted.train()
    except _Interrupted:
        pass
    else:
        raise AssertionError(f"The run was not interrupted: nothing was saved at update {stop_at} or later.")

    rng.restore(generators)
    resumed = build_trainer(folder)
    resumed.train(resume_from_checkpoint=True)
    difference = find_difference(expected, read_outcome(resumed))
    if difference is not None:
        raise AssertionError(f"Interrupted after update {stop_at} and resumed, {difference}")


class _Interrupted(BaseException):
    """Ends a run as Ctrl-C does; not an Exception, so that no handler of errors catches it."""


class _Interruption(TrainerCallback):
    """Saves after an update and ends the run there."""

    wants_step_data = False

    def __init__(self, stop_at: int) -> None:
        self.stop_at = stop_at

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        control.should_save |= state.global_step == self.stop_at
        return control

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step >= self.stop_at:
            raise _Interrupted


# ---- compare the results of two runs ----


def read_outcome(trainer: Trainer) -> Outcome:
    """The results of a run: logs, weights, states; copied, so that nothing changes them later."""
    return {
        "global_step": trainer.state.global_step,
        "log_history": [dict(entry) for entry in trainer.state.log_history],
        "weights": _copied(trainer.model.state_dict()),
        "optimizer": _copied(trainer.optimizer.state_dict()),
        "schedule": _copied(trainer.lr_scheduler.state_dict()),
        "generators": rng.to_plain(rng.capture()),
    }


def find_difference(straight: Outcome, resumed: Outcome) -> str | None:
    """A description of the first difference; None if both runs are equal to the last bit, except in times."""
    return (
        _compare_logs(straight["log_history"], resumed["log_history"])
        or _compare("global_step", straight["global_step"], resumed["global_step"])
        or _compare("the weights", straight["weights"], resumed["weights"])
        or _compare("the optimizer's state", straight["optimizer"], resumed["optimizer"])
        or _compare("the schedule's state", straight["schedule"], resumed["schedule"])
        or _compare("the state of the random generators", straight["generators"], resumed["generators"])
    )


def _compare_logs(straight: Sequence[Mapping[str, Any]], resumed: Sequence[Mapping[str, Any]]) -> str | None:
    for number, (expected, found) in enumerate(zip(straight, resumed, strict=False)):
        place = f"log entry {number} (update {expected.get('step')})"
        difference = _compare(place, _without_measures(expected), _without_measures(found))
        if difference is not None:
            return difference
    if len(straight) == len(resumed):
        return None
    longer = max(straight, resumed, key=len)
    return (
        f"the log has {len(resumed)} entries, and {len(straight)} in the straight run; the first that only "
        f"one run has: {dict(longer[min(len(straight), len(resumed))])}."
    )


def _without_measures(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if not key.endswith(MEASURED) and "_mem_" not in key}


def _compare(place: str, expected: Any, found: Any) -> str | None:
    """A description of the first difference between two nested values."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        if expected.keys() != found.keys():
            odd = sorted(map(str, expected.keys() ^ found.keys()))
            return f"{place}: only one of the runs has {odd[0]!r}."
        pairs: Any = ((key, expected[key], found[key]) for key in expected)
    elif isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return f"{place}: it has {len(found)} items, and {len(expected)} in the straight run."
        pairs = zip(range(len(expected)), expected, found, strict=True)
    elif isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        return _compare_tensors(place, expected, found)
    else:
        is_equal = repr(expected) == repr(found)  # exact for numbers, and NaN equals NaN
        return None if is_equal else f"{place}: it is {found!r}, and {expected!r} in the straight run."
    return next(filter(None, (_compare(f"{place}, {key}", *values) for key, *values in pairs)), None)


def _compare_tensors(place: str, expected: torch.Tensor, found: torch.Tensor) -> str | None:
    if (expected.dtype, expected.shape) != (found.dtype, found.shape):
        kinds = [f"{tensor.dtype} of shape {tuple(tensor.shape)}" for tensor in (found, expected)]
        return f"{place}: it is {kinds[0]}, and {kinds[1]} in the straight run."
    expected, found = expected.reshape(-1), found.reshape(-1)
    if torch.equal(expected.view(torch.uint8), found.view(torch.uint8)):
        return None
    is_other = expected != found
    largest = (expected.double() - found.double()).abs().max().item()
    return f"{place}: {int(is_other.sum())} of {is_other.numel()} values differ, by up to {largest:.3g}."


def _copied(value: Any) -> Any:
    """Nested values with copies of their tensors, on the host."""
    return comm.map_nested(
        lambda leaf: leaf.detach().cpu().clone() if isinstance(leaf, torch.Tensor) else leaf, value
    )
