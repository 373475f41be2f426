"""A copy of the training state in host memory, so that training goes on while it is written."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any, NamedTuple, TypeVar

import torch

from footplate.comm import map_nested

State = TypeVar("State")
Memory = tuple[torch.device, int]  # a piece of memory: where, and its address


class _Use(NamedTuple):
    """The part of a piece of memory that one tensor lies in, in bytes."""

    memory: Memory
    start: int
    end: int
    tensor: torch.Tensor


class _Block(NamedTuple):
    """The part that all tensors of a state together use of one piece of memory."""

    start: int
    num_bytes: int
    storage: torch.UntypedStorage

    def read(self) -> torch.Tensor:
        empty = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return empty.set_(self.storage, self.start, (self.num_bytes,), (1,))


class HostCopy:
    """Copies states into host buffers that the next copy uses again: at most one copy exists."""

    def __init__(self) -> None:
        self._buffers: list[torch.Tensor] = []

    def take(self, state: State) -> State:
        """The same structure, its tensors copied to the host; those that share memory share it there too.

        Args:
            state: Nested dictionaries, lists and tuples of tensors and plain values. What the last `take`
                returned is overwritten: whoever reads it must be done.
        """
        uses = _find_uses(state)
        blocks = _find_blocks(uses)
        self._resize(blocks)
        # whole pieces of memory, not tensors: views, ties and strides come along, and no element is converted
        for buffer, block in zip(self._buffers, blocks.values(), strict=True):
            buffer.copy_(block.read())
        homes = {
            memory: (block.start, buffer.untyped_storage())
            for (memory, block), buffer in zip(blocks.items(), self._buffers, strict=True)
        }
        next_use = iter(uses)

        def copy_leaf(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return copy.deepcopy(leaf)  # an array, say, would go on changing
            use = next(next_use)
            if use is None:
                return leaf.detach().to("cpu", copy=True)
            start, storage = homes[use.memory]
            offset = (use.start - start) // leaf.element_size()
            return torch.empty(0, dtype=leaf.dtype).set_(storage, offset, leaf.size(), leaf.stride())

        copied: State = map_nested(copy_leaf, state)
        return copied

    def prepare(self, state: Any) -> None:
        """Make the buffers that `take` will want, any time before it, on any thread.

        Args:
            state: What `take` will be given, or its like: only its sizes matter.
        """
        self._resize(_find_blocks(_find_uses(state)))
        for buffer in self._buffers:
            buffer.zero_()  # memory is handed out when first touched, which costs several times the copy

    def release(self) -> None:
        """Give the buffers back; the next `take` makes new ones."""
        self._buffers = []

    def _resize(self, blocks: dict[Memory, _Block]) -> None:
        """Have one buffer per block, in this order; what fits none is let go of before more is asked for."""
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
    uses = _find_uses(state)
    total = sum(block.num_bytes for block in _find_blocks(uses).values())
    others = iter(uses)

    def add_other(leaf: Any) -> None:
        nonlocal total
        if isinstance(leaf, torch.Tensor) and next(others) is None and leaf.layout is torch.strided:
            total += leaf.nbytes

    map_nested(add_other, state)
    return total


def _find_uses(state: Any) -> list[_Use | None]:
    """For each tensor, in order: the memory it uses, or None where that cannot be copied as bytes."""
    uses: list[_Use | None] = []
    map_nested(lambda leaf: uses.append(_find_use(leaf)) if isinstance(leaf, torch.Tensor) else None, state)
    return uses


def _find_use(leaf: torch.Tensor) -> _Use | None:
    tensor = leaf.detach()
    if (
        type(tensor) is not torch.Tensor  # subclasses lay out their memory as they like
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
    """One block per piece of memory that is used at all."""
    shared: dict[Memory, list[_Use]] = defaultdict(list)
    for use in uses:
        if use is not None:
            shared[use.memory].append(use)
    blocks = {}
    for memory, users in shared.items():
        widest = max(use.tensor.element_size() for use in users)
        start = (
            min(use.start for use in users) // widest * widest
        )  # or a view of the widest type would not fit
        last = max(users, key=lambda use: use.end)
        blocks[memory] = _Block(start, last.end - start, last.tensor.untyped_storage())
    return blocks
