"""Under several ranks the first one asks for values, all follow, and a pruned trial ends on all of them."""

from __future__ import annotations

import pytest

from ranks_training import jobs


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searching")
    return jobs.together(folder, "searching.pruned", "searching.by_chance")


@pytest.mark.parametrize("job", ["searching.pruned", "searching.by_chance"])
def test_all_ranks_try_the_same_values_and_give_the_same_answer(two, job):
    first, second = two[job]
    assert first == second
    assert len({rate for _, rate, _, _ in first["seen"]}) == 5
    for (name, rate, seed, _), (number, _, params, _, _) in zip(first["seen"], first["trials"], strict=True):
        assert name == f"run-{number}"
        assert params == {"learning_rate": rate, "seed": seed}
    assert first["loss"] == first["best"][1]


def test_a_pruned_trial_ends_on_all_ranks_at_the_same_update(two):
    first, second = two["searching.pruned"]
    assert [state for _, state, _, _, _ in first["trials"]] == ["complete", "pruned"] * 2 + ["complete"]
    for rank in (first, second):
        assert [step for _, _, _, step in rank["seen"]] == [8, 4, 8, 4, 8]
