"""A hash for integrity that is fast on any processor: sums of numpy, and a digest over the sums."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from footplate.checkpoint.hashing import Bytes

PAGE_BYTES = 4096
BLOCK_BYTES = 1 << 20  # stays in the cache of a core between the two sums
_WORD = np.dtype("<u8")
# odd, so that no change of a single word leaves a sum as it was; fixed, so that files of any version agree
_FACTORS = np.frombuffer(hashlib.shake_256(b"footplate").digest(PAGE_BYTES), _WORD) | _WORD.type(1)


class PageSums:
    """The hash of bytes that come one after another, used as those of `hashlib` are.

    Each page of 4 KiB gives the sum of its 64-bit words, each times a factor of its place. That finds every
    change of one word, and others with all but certainty, except changes of the highest bit in an even number
    of words, for which nothing is left of the factors. So each block of 1 MiB also gives the exclusive or of
    its pages. BLAKE2b over all these and the length finds pages and blocks in another order. It keeps no
    secrets: somebody who wants to can make two files with one hash.
    """

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._begun = np.empty(0, np.uint8)  # the block that is not full yet
        self._num_begun = 0
        self._num_bytes = 0

    def update(self, data: Bytes) -> None:
        """Add bytes."""
        rest = np.frombuffer(data, np.uint8)
        self._num_bytes += len(rest)
        while len(rest):
            if not self._num_begun and len(rest) >= BLOCK_BYTES:
                self._digest.update(_sum(rest[:BLOCK_BYTES]))
                rest = rest[BLOCK_BYTES:]
                continue
            rest = rest[self._begin(rest) :]
            if self._num_begun == BLOCK_BYTES:
                self._digest.update(_sum(self._begun))
                self._num_begun = 0

    def hexdigest(self) -> str:
        """The hash of all bytes so far, as text."""
        digest = self._digest.copy()
        if self._num_begun:
            end = -(-self._num_begun // PAGE_BYTES) * PAGE_BYTES
            self._begun[self._num_begun : end] = 0
            digest.update(_sum(self._begun[:end]))
        digest.update(self._num_bytes.to_bytes(8, "little"))
        return digest.hexdigest()

    def _begin(self, data: np.ndarray[Any, Any]) -> int:
        """Copy what fits into the block that is not full yet; returns the number of bytes."""
        if not len(self._begun):
            self._begun = np.empty(BLOCK_BYTES, np.uint8)
        num_bytes = min(BLOCK_BYTES - self._num_begun, len(data))
        self._begun[self._num_begun : self._num_begun + num_bytes] = data[:num_bytes]
        self._num_begun += num_bytes
        return num_bytes


def _sum(block: np.ndarray[Any, Any]) -> bytes:
    """The sums of whole pages; numpy releases the interpreter lock meanwhile."""
    pages = block.view(_WORD).reshape(-1, len(_FACTORS))
    # whole numbers, so all is modulo 2 to the 64, in any order
    sums: list[bytes] = [np.dot(pages, _FACTORS).tobytes(), np.bitwise_xor.reduce(pages, axis=0).tobytes()]
    return b"".join(sums)
