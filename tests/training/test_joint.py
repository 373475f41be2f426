"""Wishes of one rank become those of all, at the same turn, without an exchange at every turn."""

from __future__ import annotations

import time

import ranks
from footplate import comm
from footplate.training import joint
from footplate.training.joint import JointDecisions


def test_one_process_decides_alone_and_at_once():
    decisions = JointDecisions()
    assert [decisions.decide([0, 1]) for _ in range(3)] == [[0, 1]] * 3


def count_exchanges(monkeypatch):
    """A list that grows by one with each exchange of this process."""
    exchanges, plain = [], comm.sum_integers
    monkeypatch.setattr(comm, "sum_integers", lambda values: exchanges.append(1) or plain(values))
    return exchanges


def test_a_wish_of_one_rank_reaches_all_at_the_same_turn(tmp_path, monkeypatch):
    exchanges = count_exchanges(monkeypatch)
    monkeypatch.setattr(joint, "CHECK_SECONDS", 0.1)

    def work(rank):
        decisions, seen = JointDecisions(), []
        for turn in range(40):
            seen.append(decisions.decide([int(rank == 1 and turn >= 10), 0]))
            time.sleep(0.01)
        return seen, len(exchanges)

    (first, num_exchanges), (second, _) = ranks.fork(work, tmp_path)
    assert first == second
    heard = [turn for turn, (wishes, _) in enumerate(first) if wishes]
    assert all(wishes in (0, 1) and other == 0 for wishes, other in first)
    assert heard[0] >= 10
    assert 2 <= num_exchanges <= 30  # about one in ten turns, and fewer turns where the machine is slow


def test_quick_turns_are_not_asked_about_until_it_must_be(tmp_path, monkeypatch):
    exchanges = count_exchanges(monkeypatch)
    monkeypatch.setattr(joint, "CHECK_SECONDS", 1000.0)

    def work(rank):
        decisions = JointDecisions()
        seen = [decisions.decide([1, rank]) for _ in range(100)]
        asked = [turn for turn, totals in enumerate(seen) if totals == [2, 1]]
        assert seen.count([0, 0]) == 100 - len(asked)
        return asked, decisions.decide([1, rank], at_once=True), len(exchanges)

    # the time between doubles, since the first turns say little about the others
    assert ranks.fork(work, tmp_path) == [([0, 2, 6, 14, 30, 62], [2, 1], 7)] * 2


def test_after_many_turns_ranks_ask_in_any_case(tmp_path, monkeypatch):
    monkeypatch.setattr(joint, "CHECK_SECONDS", 1000.0)
    monkeypatch.setattr(joint, "MAX_TURNS", 5)

    def work(rank):
        decisions = JointDecisions()
        return [turn for turn in range(20) if decisions.decide([1]) == [2]]

    assert ranks.fork(work, tmp_path) == [[0, 2, 6, 11, 16]] * 2


def test_an_exchange_right_after_another_does_not_make_ranks_deaf(tmp_path, monkeypatch):
    monkeypatch.setattr(joint, "CHECK_SECONDS", 0.02)

    def work(rank):
        decisions, asked = JointDecisions(), []
        for turn in range(6):
            time.sleep(0.03)  # longer than the time between exchanges: there is one at each turn
            asked.append(decisions.decide([1])[0])
            if turn == 2:
                decisions.decide([1], at_once=True)  # such as at the end of an epoch
        return asked

    assert ranks.fork(work, tmp_path) == [[2, 2, 2, 0, 2, 2]] * 2
