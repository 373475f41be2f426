"""What the first batch of a stream tells: whether reading draws random numbers that no resume can repeat."""

from __future__ import annotations

import functools
import logging
import re
import threading
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from footplate import rng
from footplate.comm import map_nested
from footplate.data.generators import is_users, names_in
from footplate.data.saved_state import has_state

logger = logging.getLogger(__name__)

_MAPS = ("MappedExamplesIterable", "FilteredExamplesIterable")
_READ_AHEAD = {
    "BufferShuffledExamplesIterable": "shuffle() reads ahead from",
    "InterleavedShardsExamplesIterable": "shuffle() reads ahead from",
    "CyclingMultiSourcesExamplesIterable": "interleave_datasets() reads ahead from, in threads",
    "RandomlyCyclingMultiSourcesExamplesIterable": "interleave_datasets() reads ahead from, in threads",
}
_DRAWS = re.compile(
    r"rand\w*|uniform|(standard_)?normal|gauss|choices?|shuffle|sample|integers|permut(ation|ed)|bernoulli|"
    r"multinomial|poisson|exponential|beta|dropout|getrandbits"
)
_QUIET_THREADS = ("fsspec", "tqdm", "asyncio")  # started by libraries to wait for something


class FirstBatch:
    """Watches how the samples of the first batch of a pass are read.

    Args:
        dataset: The stream.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._states, self._threads = snapshot(), set(threading.enumerate())

    def report(self) -> None:
        """Say what a resumed run cannot repeat."""
        draws = snapshot() != self._states
        name = type(self._dataset).__name__
        if is_from_datasets(self._dataset):
            stage = find_stage_above_map(self._dataset)
            if draws and stage is not None:
                _warn(
                    f"The stream draws random numbers in a map() that {stage}: what it draws for a sample "
                    "differs after a resume, and with threads from run to run. Apply the random map() last, "
                    "and without batched=True."
                )
            return
        threads = [one.name for one in set(threading.enumerate()) - self._threads if not _is_quiet(one)]
        if threads and draws:
            names = ", ".join(sorted(threads))
            _warn(
                f"{name} draws random numbers and reads in threads of its own ({names}): "
                "which draw comes first is a matter of chance, so neither a resumed run nor a second one "
                "repeats this run. Draw in __iter__, after a sample was taken from the thread."
            )
        elif threads and has_state(self._dataset):
            _warn(
                f"{name} reads ahead in threads of its own ({', '.join(sorted(threads))}). A resumed run is "
                "the same run only if state_dict() tells the place of the sample that was given last, not of "
                "the one that was read last."
            )


def snapshot() -> Any:
    """The random states, in a form that can be compared."""
    states = rng.to_plain(rng.capture())
    return map_nested(lambda leaf: leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else leaf, states)


def find_stage_above_map(dataset: Any) -> str | None:
    """What makes a stream of `datasets` call a map() for samples that it gives later; None if nothing."""
    waiting: list[tuple[Any, str | None]] = [(getattr(dataset, "_ex_iterable", None), None)]
    while waiting:
        part, stage = waiting.pop()
        kind = type(part).__name__
        if kind in _MAPS:
            if stage is None and getattr(part, "batched", False) and part.batch_size != 1:
                stage = "works on batches of its own (batched=True)"
            if stage is not None and may_draw(part.function):
                return stage
        stage = _READ_AHEAD.get(kind, stage)
        waiting.extend((inner, stage) for inner in getattr(part, "ex_iterables", ()))
        if hasattr(part, "ex_iterable"):
            waiting.append((part.ex_iterable, stage))
    return None


def may_draw(function: Any, depth: int = 3) -> bool:
    """Whether a function may draw random numbers, by the names that it and what it calls use."""
    function = getattr(function, "func", function)  # of a partial
    if isinstance(function, (type, BuiltinFunctionType)):
        return False
    if not isinstance(function, FunctionType) or not is_users(function.__code__):
        return True  # an object, or a library's function: nobody knows
    names = names_in(function.__code__)
    called = (function.__globals__.get(name) for name in names)
    inner = [one for one in called if isinstance(one, FunctionType) and is_users(one.__code__)]
    return any(map(_DRAWS.fullmatch, names)) or any(may_draw(one, depth - 1) for one in inner if depth)


def is_from_datasets(dataset: Any) -> bool:
    """Whether this is a stream of the `datasets` library."""
    return type(dataset).__module__.partition(".")[0] == "datasets"


@functools.cache  # an epoch starts a pass: once per process is enough
def _warn(text: str) -> None:
    logger.warning(text)


def _is_quiet(thread: threading.Thread) -> bool:
    return thread.name.startswith(_QUIET_THREADS) or type(thread).__name__ == "TMonitor"
