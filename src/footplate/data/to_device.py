"""Batches on their way to a device: when they are asked for, or while the one before them is used."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Any

import torch

from footplate.comm import move_to_device
from footplate.data.read_ahead import InTurn, ReadAhead

logger = logging.getLogger(__name__)


class Moved:
    """Batches on a device, moved there when they are handed out.

    Args:
        batches: Where they come from.
        device: Where they go.
        non_blocking: Do not wait for it.
    """

    def __init__(self, batches: Iterator[Any], device: torch.device, non_blocking: bool = False) -> None:
        self._batches, self._device, self._non_blocking = batches, device, non_blocking

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._move(next(self._batches))

    def _move(self, batch: Any) -> Any:
        return move_to_device(batch, self._device, self._non_blocking)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class Prefetched(Moved):
    """Batches on a device, each copied there on a stream of its own while the one before it is used.

    A copy waits for the work that the device was given before it, so that it never writes into memory that a
    batch in use has just given back. That holds for whatever a batch is made of, and keeps the memory that
    copies take at two batches. `Tensor.record_stream` would see tensors alone, and would hold memory back
    until the device has caught up with this process.

    Args:
        batches: Where they come from: what has read the batch after the one that it hands out.
        device: Where they go.
        non_blocking: Do not wait for it.
    """

    _batches: ReadAhead | InTurn

    def __init__(self, batches: ReadAhead | InTurn, device: torch.device, non_blocking: bool = False) -> None:
        super().__init__(batches, device, non_blocking)
        self._streams: Any = torch.get_device_module(device)
        self._stream = copy_stream(device)
        self._copies: list[Any] = []  # the next batch on the device, if its copy was begun

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self._copies:
            self._streams.current_stream(self._device).wait_stream(self._stream)
            moved = self._copies.pop()
        else:
            moved = self._move(batch)
        if not self._batches.is_last:
            self._copy_next()
        return moved

    def _copy_next(self) -> None:
        """Begin to copy the next batch; where memory is short, it is moved when it is asked for."""
        self._stream.wait_stream(self._streams.current_stream(self._device))
        try:
            with self._streams.stream(self._stream):
                self._copies.append(self._move(self._batches.peek()))
        except torch.OutOfMemoryError:
            self._copies.clear()


def can_prefetch(device: torch.device | None, is_wanted: bool | None) -> bool:
    """Whether batches are copied to a device ahead.

    Args:
        device: Where batches go; None where they are not moved.
        is_wanted: What the user says; None for yes, unless the device is the CPU.
    """
    if device is None or is_wanted is False or (is_wanted is None and device.type == "cpu"):
        return False
    has_streams = _has_streams(device.type)
    if is_wanted and not has_streams:
        _warn_no_streams(device.type)
    return has_streams


@functools.cache
def copy_stream(device: torch.device) -> Any:
    """The stream for all copies to a device: the memory of one pass over data serves the next one."""
    module: Any = torch.get_device_module(device)
    return module.Stream() if device.type == "cpu" else module.Stream(device=device)


def _has_streams(device_type: str) -> bool:
    """Whether work for a device can go on beside other work; not on an Apple GPU."""
    try:
        module = torch.get_device_module(device_type)
    except RuntimeError:
        return False
    return all(hasattr(module, name) for name in ("Stream", "stream", "current_stream"))


@functools.cache
def _warn_no_streams(device_type: str) -> None:
    """Said once per process."""
    logger.warning(
        "dataloader_prefetch_to_device=True: no effect on a device of type %r, to which torch copies in one "
        "order with all other work. Leave it unset.",
        device_type,
    )
