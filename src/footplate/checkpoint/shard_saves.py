"""Let every rank write its shards into the folder that the first rank stages and seals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from footplate import comm
from footplate.checkpoint.sharded import ShardCopies, copy_shards, write_shards


class ShardedSave:
    """One checkpoint of a sharded model: copied on every rank, then written by all of them together.

    The first rank stages a folder, perhaps several times if the disk is full; the others wait for its name,
    write their part, and wait again until the first says that it is over. All of that uses a group of its
    own, so that training goes on with its exchanges meanwhile.

    Args:
        model: The sharded model.
        optimizer: Its optimizer; None to save weights alone.
        group: A process group that nothing else uses.
        write_rest: On the first rank, writes what is not in shards into the folder.
    """

    def __init__(
        self, model: nn.Module, optimizer: Any, group: Any, write_rest: Callable[[str], None]
    ) -> None:
        self._copies: ShardCopies | None = copy_shards(model, optimizer)
        self._group, self._write_rest = group, write_rest

    def lead(self, staging: str) -> None:
        """Write into `staging` with all ranks; for the first one."""
        assert self._copies is not None
        comm.broadcast_object(staging, self._group)
        error = self._write(staging)
        errors = comm.gather_objects(error, self._group)
        for rank, text in enumerate(errors):
            if text is not None:
                raise OSError(f"Rank {rank} could not write its shards: {text}")
        self._write_rest(staging)

    def finish(self) -> None:
        """Let the other ranks go on: the first one has sealed the folder, or has given up."""
        comm.broadcast_object(None, self._group)
        self._copies = None

    def follow(self) -> None:
        """Write into each folder that the first rank names, until it says that it is over."""
        while (staging := comm.broadcast_object(None, self._group)) is not None:
            comm.gather_objects(self._write(staging), self._group)
        self._copies = None

    def _write(self, staging: str) -> str | None:
        """Write this rank's part; what went wrong, if anything did: the others must not wait for ever."""
        assert self._copies is not None
        try:
            write_shards(staging, self._copies, self._group)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None
