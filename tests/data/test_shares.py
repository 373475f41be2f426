"""What each rank gets of a round, counted by hand: full rounds, and the three ways to end an epoch."""

from __future__ import annotations

import pytest

from footplate.data.shares import (
    DIVIDE,
    FILL,
    KEEP,
    Ranks,
    Turn,
    count_rounds,
    deal_last,
    deal_lists,
    deal_order,
    deal_samples,
)


def cut(num_rows, batch_size=2):
    """Index lists as one process cuts them, each with its own number."""
    lists = [
        list(range(start, min(start + batch_size, num_rows))) for start in range(0, num_rows, batch_size)
    ]
    return iter([(rows, f"list {number}") for number, rows in enumerate(lists)])


def dealt(num_rows, ending, num_ranks=3, **options):
    """The turns of every rank."""
    return [
        [turn for turn, _ in deal_lists(cut(num_rows), Ranks(rank, num_ranks, ending), 2, **options)]
        for rank in range(num_ranks)
    ]


@pytest.mark.parametrize("ending", [FILL, DIVIDE, KEEP])
def test_a_full_round_gives_each_rank_the_next_list(ending):
    assert dealt(12, ending) == [
        [Turn([0, 1], 2, 6, 0), Turn([6, 7], 2, 6, 0)],
        [Turn([2, 3], 2, 6, 2), Turn([8, 9], 2, 6, 2)],
        [Turn([4, 5], 2, 6, 4), Turn([10, 11], 2, 6, 4)],
    ]


LAST_ROUNDS = {
    # rows left: the last turn of each rank
    (7, FILL): [Turn([6, 0], 1, 1, 0), Turn([1, 2], 0, 1, 1), Turn([3, 4], 0, 1, 1)],
    (10, FILL): [Turn([6, 7], 2, 4, 0), Turn([8, 9], 2, 4, 2), Turn([0, 1], 0, 4, 4)],
    (11, FILL): [Turn([6, 7], 2, 5, 0), Turn([8, 9], 2, 5, 2), Turn([10, 0], 1, 5, 4)],
    (7, DIVIDE): [Turn([6], 1, 1, 0, 3.0), Turn([6], 0, 1, 1, 0.0), Turn([6], 0, 1, 1, 0.0)],
    (10, DIVIDE): [Turn([6, 7], 2, 4, 0, 1.5), Turn([8], 1, 4, 2, 0.75), Turn([9], 1, 4, 3, 0.75)],
    (11, DIVIDE): [Turn([6, 7], 2, 5, 0, 1.2), Turn([8, 9], 2, 5, 2, 1.2), Turn([10], 1, 5, 4, 0.6)],
    (7, KEEP): [Turn([6], 1, 1, 0), Turn([6], 0, 1, 1), Turn([6], 0, 1, 1)],
    (10, KEEP): [Turn([6, 7], 2, 4, 0), Turn([8, 9], 2, 4, 2), Turn([6], 0, 4, 4)],
    (11, KEEP): [Turn([6, 7], 2, 5, 0), Turn([8, 9], 2, 5, 2), Turn([10], 1, 5, 4)],
}


@pytest.mark.parametrize(("num_rows", "ending"), LAST_ROUNDS)
def test_the_last_round_ends_as_asked(num_rows, ending):
    turns = dealt(num_rows, ending)
    assert [len(own) for own in turns] == [2, 2, 2]
    assert [own[-1] for own in turns] == LAST_ROUNDS[num_rows, ending]


@pytest.mark.parametrize(("num_rows", "ending"), LAST_ROUNDS)
def test_weights_make_the_mean_over_ranks_the_mean_over_rows(num_rows, ending):
    last = LAST_ROUNDS[num_rows, ending]
    assert sum(turn.weight for turn in last) == pytest.approx(3)
    if ending != FILL:
        assert [row for turn in last for row in turn.rows[: turn.num_own]] == list(range(6, num_rows))


def test_a_short_round_can_be_left_out():
    for ending in (FILL, DIVIDE, KEEP):
        assert [len(own) for own in dealt(11, ending, drop_last=True)] == [1, 1, 1]


def test_an_epoch_shorter_than_a_round_is_filled_with_its_own_rows_again_and_again():
    assert [own[0].rows for own in dealt(2, FILL)] == [[0, 1], [0, 1], [0, 1]]
    assert [own[0].rows for own in dealt(3, FILL)] == [[0, 1], [2, 0], [1, 2]]


def test_a_resumed_epoch_is_filled_from_its_start():
    rest = iter([([6, 7], None), ([8], None)])
    turns = [turn for turn, _ in deal_lists(rest, Ranks(1, 2, FILL), 2, head=[0, 1, 2, 3])]
    assert turns == [Turn([8, 0], 1, 3, 2)]


def test_what_came_with_the_last_list_of_a_round_is_handed_on():
    assert [mark for _, mark in deal_lists(cut(7), Ranks(0, 3), 2)] == ["list 2", "list 3"]


def test_lists_of_any_size_are_full_if_no_size_is_set():
    lists = [[0, 1, 2], [3], [4, 5], [6]]
    turns = [
        [turn for turn, _ in deal_lists(iter([(rows, None) for rows in lists]), Ranks(rank, 2), None)]
        for rank in range(2)
    ]
    assert turns == [
        [Turn([0, 1, 2], 3, 4, 0), Turn([4, 5], 2, 3, 0)],
        [Turn([3], 1, 4, 3), Turn([6], 1, 3, 2)],
    ]


def test_a_lone_list_of_any_size_is_dealt_as_a_short_round():
    turn = next(deal_lists(iter([([0, 1, 2], None)]), Ranks(1, 2, DIVIDE), None))[0]
    assert turn == Turn([2], 1, 3, 2, 2 / 3)


@pytest.mark.parametrize("ending", [FILL, DIVIDE, KEEP])
@pytest.mark.parametrize("num_rows", [1, 5, 6, 7, 10, 11, 12, 13])
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_order_that_can_be_sliced_is_dealt_like_its_lists(ending, num_rows, drop_last):
    for rank in range(3):
        ranks = Ranks(rank, 3, ending)
        expected = [turn for turn, _ in deal_lists(cut(num_rows), ranks, 2, drop_last)]
        assert [turn for turn, _ in deal_order(range(num_rows), 0, ranks, 2, drop_last)] == expected
        later = (
            [turn for turn, _ in deal_order(range(num_rows), 6, ranks, 2, drop_last)] if num_rows > 6 else []
        )
        assert later == expected[1:]


def test_a_full_round_of_a_stream_is_cut_into_batches():
    rows = list("abcdef")
    assert [deal_samples(rows, Ranks(rank, 3), 2, head=rows) for rank in range(3)] == [
        Turn(["a", "b"], 2, 6, 0),
        Turn(["c", "d"], 2, 6, 2),
        Turn(["e", "f"], 2, 6, 4),
    ]


SHORT_STREAMS = {
    FILL: [Turn(["v", "w", "x"], 3, 7, 0), Turn(["y", "z", "1"], 3, 7, 3), Turn(["2", "a", "b"], 1, 7, 6)],
    DIVIDE: [
        Turn(["v", "w", "x"], 3, 7, 0, 9 / 7),
        Turn(["y", "z"], 2, 7, 3, 6 / 7),
        Turn(["1", "2"], 2, 7, 5, 6 / 7),
    ],
    KEEP: [Turn(["v", "w", "x", "y"], 4, 7, 0), Turn(["z", "1", "2"], 3, 7, 4), Turn(["v"], 0, 7, 7)],
}


@pytest.mark.parametrize("ending", SHORT_STREAMS)
def test_the_end_of_a_stream_makes_smaller_batches(ending):
    rows = list("vwxyz12")
    turns = [deal_samples(rows, Ranks(rank, 3, ending), 4, head=list("abcd")) for rank in range(3)]
    assert turns == SHORT_STREAMS[ending]


def test_a_stream_without_a_head_is_filled_with_its_last_rows():
    assert deal_last(["a"], Ranks(1, 2), 4, 1, head=[]) == Turn(["a"], 0, 1, 1)


@pytest.mark.parametrize(("num_lists", "drop_last", "expected"), [(6, False, 2), (7, False, 3), (7, True, 2)])
def test_rounds_are_counted(num_lists, drop_last, expected):
    assert count_rounds(num_lists, Ranks(0, 3), drop_last) == expected
