"""Many names in few words."""

from __future__ import annotations

from footplate.distributed.naming import join_names, name_ranks


def test_neighbours_are_joined():
    assert name_ranks([3]) == "rank 3"
    assert name_ranks([2, 0, 1]) == "ranks 0-2"
    assert name_ranks([7, 0, 2, 3, 4]) == "ranks 0, 2-4 and 7"


def test_long_lists_end_with_a_number():
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b"]) == "a and b"
    assert join_names(list("abcdefghij"), most=3) == "a, b, c and 7 more"
