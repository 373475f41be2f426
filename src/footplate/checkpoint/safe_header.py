"""The beginning of a safetensors file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Listed(NamedTuple):
    """A tensor as the header lists it."""

    name: str
    dtype: str
    shape: Iterable[int]
    num_bytes: int


def build_header(tensors: Iterable[Listed], metadata: Mapping[str, str]) -> bytes:
    """The bytes before those of the tensors, which follow one after another in the given order."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape, num_bytes in tensors:
        start, end = end, end + num_bytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # readers expect the tensors at a multiple of eight
    return len(text).to_bytes(8, "little") + text
