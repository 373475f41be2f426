"""A copy of the training state in host memory, so that training continues while it is written."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any, NamedTuple, TypeVar

import torch

from footplate.comm import map_nested

State = TypeVar("State")
Memory = tuple[torch.device, int]  # one allocation: its device and its address


class _Use(NamedTuple):
    """The part of an allocation that one tensor uses, in bytes."""

    memory: Memory
    start: int
    end: int
    tensor: torch.Tensor


class _Block(NamedTuple):
    """The part of an allocation that all tensors of a state together use."""

    start: int
    num_bytes: int
    storage: torch.UntypedStorage

    def read(self) -> torch.Tensor:
        empty = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return empty.set_(self.storage, self.start, (self.num_bytes,), (1,))


class HostCopy:
    """Copies states into host buffers, which the next copy uses again: at most one copy exists."""

    def __init__(self) -> None:
        self._buffers: list[torch.Tensor] = []

    def take(self, state: State) -> State:
        """Copy a state to the host; tensors that share memory share it in the copy too.

        Args:
            state: Nested dictionaries, lists and tuples of tensors and plain values. The previous copy is
                overwritten, so it must not be in use any more.
        """
        uses = [_find_use(tensor) for tensor in _find_tensors(state)]
        blocks = _find_blocks(uses)
        self._resize(blocks)
        copies: dict[Memory, tuple[int, torch.UntypedStorage]] = {}
        # bytes of allocations instead of tensors: views, ties and strides stay, and nothing is converted
        for (memory, block), buffer in zip(blocks.items(), self._buffers, strict=True):
            buffer.copy_(block.read())
            copies[memory] = (block.start, buffer.untyped_storage())
        next_use = iter(uses)

        def copy_leaf(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return copy.deepcopy(leaf)  # training may change it, if it is an array
            use = next(next_use)
            if use is None:
                return leaf.detach().to("cpu", copy=True)
            start, storage = copies[use.memory]
            offset = (use.start - start) // leaf.element_size()
            return torch.empty(0, dtype=leaf.dtype).set_(storage, offset, leaf.size(), leaf.stride())

        copied: State = map_nested(copy_leaf, state)
        return copied

    def prepare(self, state: Any) -> None:
        """Allocate the buffers that `take` will need, before it is called, on any thread.

        Args:
            state: A state like the one that `take` will get: only the sizes of its tensors matter.
        """
        self._resize(_find_blocks([_find_use(tensor) for tensor in _find_tensors(state)]))
        for buffer in self._buffers:
            buffer.zero_()  # the first write to new memory takes several times as long as the copy

    def _resize(self, blocks: dict[Memory, _Block]) -> None:
        """Have one buffer per block, in this order; free those that fit none before allocating others."""
        sizes = [block.num_bytes for block in blocks.values()]
        spare: dict[int, list[torch.Tensor]] = defaultdict(list)
        while self._buffers:
            spare[len(self._buffers[-1])].append(self._buffers.pop())
        found = [spare[size].pop() if spare[size] else None for size in sizes]
        spare.clear()
        self._buffers = [
            torch.empty(size, dtype=torch.uint8) if buffer is None else buffer
            for size, buffer in zip(sizes, found, strict=True)
        ]


def num_bytes(state: Any) -> int:
    """How many bytes a copy of the state's tensors takes; shared memory counts once."""
    tensors = _find_tensors(state)
    uses = [_find_use(tensor) for tensor in tensors]
    in_blocks = sum(block.num_bytes for block in _find_blocks(uses).values())
    others = (tensor for tensor, use in zip(tensors, uses, strict=True) if use is None)
    return in_blocks + sum(tensor.nbytes for tensor in others if tensor.layout is torch.strided)


def _find_tensors(state: Any) -> list[torch.Tensor]:
    """All tensors of a state, in order; one that occurs twice is listed twice."""
    tensors: list[torch.Tensor] = []
    map_nested(lambda leaf: tensors.append(leaf) if isinstance(leaf, torch.Tensor) else None, state)
    return tensors


def _find_use(leaf: torch.Tensor) -> _Use | None:
    """The memory that a tensor uses; None if it cannot be copied as bytes."""
    tensor = leaf.detach()
    if (
        type(tensor) is not torch.Tensor  # a subclass may arrange its memory in its own way
        or tensor.layout is not torch.strided
        or tensor.device.type in ("meta", "xla")
        or tensor.numel() == 0
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return None
    width = tensor.element_size()
    start = int(tensor.storage_offset()) * width
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    memory = (tensor.device, tensor.untyped_storage().data_ptr())
    return _Use(memory, start, start + (last + 1) * width, tensor)


def _find_blocks(uses: list[_Use | None]) -> dict[Memory, _Block]:
    """One block for each allocation that is used."""
    shared: dict[Memory, list[_Use]] = defaultdict(list)
    for use in uses:
        if use is not None:
            shared[use.memory].append(use)
    blocks = {}
    for memory, users in shared.items():
        widest = max(use.tensor.element_size() for use in users)
        # a multiple of the widest element, as a view of that type needs
        start = min(use.start for use in users) // widest * widest
        last = max(users, key=lambda use: use.end)
        blocks[memory] = _Block(start, last.end - start, last.tensor.untyped_storage())
    return blocks
