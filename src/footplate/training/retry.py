"""Use smaller micro-batches after memory ran out, in the same update and with the same samples."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from footplate.comm import find_batch_size, gather_objects, world_size
from footplate.training.batches import is_out_of_memory, split_batch

logger = logging.getLogger(__name__)


class MicroBatches:
    """Splits the batches of an update into pieces that fit in memory; if not enabled, leaves them whole."""

    def __init__(self, enabled: bool, max_rows: int | None = None) -> None:
        self.enabled = enabled
        self.max_rows = max_rows  # in a piece; None until memory runs out
        self._has_failed = False

    def cut(self, batches: list[Any]) -> list[Any]:
        """The batches in pieces that fit."""
        if not self.enabled or self.max_rows is None:
            return batches
        return [piece for batch in batches for piece in split_batch(batch, self.max_rows)]

    def shrink(self, error: BaseException, pieces: list[Any]) -> bool:
        """Make pieces smaller after an error; False if that cannot help."""
        rows = max((find_batch_size(piece) or 1 for piece in pieces), default=1)
        if not self.enabled or not is_out_of_memory(error) or rows <= 1:
            return False
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.max_rows, self._has_failed = rows // 2, True
        logger.warning(
            "Out of memory with micro-batches of %d: continuing with %d, in the same update and with the "
            "same effective batch (auto_find_batch_size).",
            rows,
            self.max_rows,
        )
        return True

    def agree(self) -> bool:
        """Whether the pieces fitted, on every rank; if not, all go on with the smallest size."""
        if not self.enabled:
            return True
        has_failed, self._has_failed = self._has_failed, False
        if world_size() == 1:
            return not has_failed
        failed_sizes = [size for size in gather_objects(self.max_rows if has_failed else None) if size]
        if failed_sizes:
            self.max_rows = min(failed_sizes)
        return not failed_sizes


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    auto_find_batch_size: bool = False,
) -> Any:
    """Call `function(batch_size, ...)`, with a smaller batch size each time it runs out of memory.

    Args:
        function: Takes the batch size first; without it, a decorator is returned.
        starting_batch_size: The first size to try; each further one is nine tenths of the last.
        auto_find_batch_size: False calls once, with the first size.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            auto_find_batch_size=auto_find_batch_size,
        )
    if not auto_find_batch_size:
        return functools.partial(function, batch_size=starting_batch_size)

    size = starting_batch_size  # kept between calls: the next call starts with the size that fitted

    @functools.wraps(function)
    def call_until_it_fits(*args: Any, **kwargs: Any) -> Any:
        nonlocal size
        while size > 0:
            try:
                return function(size, *args, **kwargs)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                size = size * 9 // 10
        raise RuntimeError("No executable batch size found: even a batch of one ran out of memory.")

    return call_until_it_fits
