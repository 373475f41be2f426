"""Processes that meet at a store of earlier ones agree on a name that those did not have."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from footplate.meeting import choose_name

SOON = timedelta(seconds=5)


def meet(store, num_ranks):
    """The names that all ranks choose, each in a thread of its own."""
    names = {}

    def choose(rank):
        names[rank] = choose_name(store, rank, num_ranks, SOON)

    threads = [threading.Thread(target=choose, args=(rank,)) for rank in reversed(range(num_ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [names[rank] for rank in range(num_ranks)]


def test_all_have_one_name_and_those_started_again_have_another():
    store = HashStore()
    first, second = meet(store, 4), meet(store, 4)
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]


def test_a_question_of_a_process_that_is_gone_is_not_taken_for_an_answer():
    store = HashStore()
    store.set("meeting/asks/1", "gone")
    assert len(set(meet(store, 3))) == 1


def test_processes_that_do_not_come_are_named():
    with pytest.raises(TimeoutError, match="2 of 3 processes have not come, rank 1 first"):
        choose_name(HashStore(), 0, 3, timedelta(seconds=0.1))
