"""The fast hash finds what happens to files, and is the same however the bytes come."""

import hashlib
import os
import random

import pytest

from footplate.checkpoint.hashing import hash_file
from footplate.checkpoint.sums import BLOCK_BYTES, PAGE_BYTES, PageSums

SIZE = 3 * BLOCK_BYTES + 3 * PAGE_BYTES + 13
DATA = random.Random(0).randbytes(SIZE)


def digest(data):
    sums = PageSums()
    sums.update(bytes(data))
    return sums.hexdigest()


def flip(positions, bit):
    changed = bytearray(DATA)
    for position in positions:
        changed[position] ^= 1 << bit
    return changed


def plain_digest(data):
    """The same hash, word by word, as its description says."""
    factors = hashlib.shake_256(b"footplate").digest(PAGE_BYTES)
    factors = [int.from_bytes(factors[at : at + 8], "little") | 1 for at in range(0, PAGE_BYTES, 8)]
    outer = hashlib.blake2b(digest_size=16)
    padded = data + bytes(-len(data) % PAGE_BYTES)
    for block in range(0, len(padded), BLOCK_BYTES):
        sums, parity = [], 0
        for page in range(block, min(block + BLOCK_BYTES, len(padded)), PAGE_BYTES):
            content = padded[page : page + PAGE_BYTES]
            words = [int.from_bytes(content[at : at + 8], "little") for at in range(0, PAGE_BYTES, 8)]
            total = sum(word * factor for word, factor in zip(words, factors, strict=True))
            sums.append((total % 2**64).to_bytes(8, "little"))
            parity ^= int.from_bytes(content, "little")
        outer.update(b"".join(sums) + parity.to_bytes(PAGE_BYTES, "little"))
    outer.update(len(data).to_bytes(8, "little"))
    return outer.hexdigest()


@pytest.mark.parametrize("size", [0, 1, 8, PAGE_BYTES, PAGE_BYTES + 1, BLOCK_BYTES, SIZE])
def test_the_hash_is_what_its_description_says(size):
    assert digest(DATA[:size]) == plain_digest(DATA[:size])


def test_the_hash_of_a_text_stays_the_same_in_all_versions():
    # manifests hold it: if this fails, the hash needs another name
    assert digest(b"footplate" * 1000) == "3df7bdc425c67c3ec94057037e056fbb"


def test_the_pieces_in_which_bytes_come_do_not_matter(tmp_path):
    expected, rng = digest(DATA), random.Random(1)
    for _ in range(5):
        sums, start = PageSums(), 0
        while start < SIZE:
            size = rng.choice([1, 3, 8, PAGE_BYTES, 100_001, BLOCK_BYTES, BLOCK_BYTES + 1])
            sums.update(memoryview(DATA)[start : start + size])
            start += size
        assert sums.hexdigest() == sums.hexdigest() == expected
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with open(path, "rb") as file:
        assert hash_file(file) == expected


def test_any_flipped_bit_is_found():
    expected, rng = digest(DATA), random.Random(2)
    edges = [0, 7, PAGE_BYTES - 1, PAGE_BYTES, BLOCK_BYTES - 1, BLOCK_BYTES, SIZE - 1]
    for position in [*edges, *(rng.randrange(SIZE) for _ in range(100))]:
        for bit in (0, 7):
            assert digest(flip([position], bit)) != expected


@pytest.mark.parametrize(
    "words",
    [
        (0, 1),
        (0, PAGE_BYTES // 8),
        (3, BLOCK_BYTES // 8),
        (5, 9, 12),
        tuple(range(512)),
        tuple(range(0, 900, 3)),
    ],
    ids=["beside", "page", "block", "three", "whole_page", "many"],
)
def test_the_highest_bit_of_several_words_is_found(words):
    # a sum alone would miss two of them: the factor is odd, and twice the highest bit is nothing
    assert digest(flip([8 * word + 7 for word in words], 7)) != digest(DATA)


@pytest.mark.parametrize("size", [4, 8, 512, PAGE_BYTES, 16 * PAGE_BYTES, BLOCK_BYTES])
def test_swapped_pieces_are_found(size):
    for first, second in ((0, size), (size, SIZE // size * size - size)):
        changed = bytearray(DATA)
        changed[first : first + size] = DATA[second : second + size]
        changed[second : second + size] = DATA[first : first + size]
        assert digest(changed) != digest(DATA)


@pytest.mark.parametrize("size", [1, 8, PAGE_BYTES, BLOCK_BYTES])
@pytest.mark.parametrize("filling", [b"\0", b"\xff"], ids=["zeros", "ones"])
def test_a_piece_that_was_never_written_is_found(size, filling):
    for start in (0, PAGE_BYTES, BLOCK_BYTES):
        changed = bytearray(DATA)
        changed[start : start + size] = filling * size
        assert changed != DATA
        assert digest(changed) != digest(DATA)


def test_a_page_in_the_place_of_another_is_found():
    changed = bytearray(DATA)
    changed[:PAGE_BYTES] = DATA[PAGE_BYTES : 2 * PAGE_BYTES]
    assert digest(changed) != digest(DATA)


def test_zeros_at_the_end_count():
    digests = {digest(DATA[:5000] + bytes(number)) for number in (0, 1, 8, 3192, PAGE_BYTES, 2 * PAGE_BYTES)}
    assert len(digests) == 6
    assert len({digest(bytes(number)) for number in (0, 1, PAGE_BYTES, BLOCK_BYTES, 2 * BLOCK_BYTES)}) == 5


def test_cut_files_are_found():
    expected = digest(DATA)
    assert all(digest(DATA[:-cut]) != expected for cut in (1, 13, PAGE_BYTES, BLOCK_BYTES, SIZE - 1))


def test_small_numbers_do_not_share_hashes():
    # a sum of few small words could be the same for many files
    assert len({digest(number.to_bytes(8, "little") * 3) for number in range(20_000)}) == 20_000


def test_random_changes_of_random_files_are_found():
    rng = random.Random(3)
    for _ in range(300):
        data = bytearray(os.urandom(rng.randrange(1, 40_000)))
        before, original = digest(data), bytes(data)
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        assert (digest(data) == before) == (data == original)
