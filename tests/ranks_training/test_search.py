"""Under several ranks the first one asks for values, all follow, and a pruned trial ends on all of them."""

from __future__ import annotations

import json

import pytest

from ranks_training import jobs


@pytest.mark.parametrize("job", ["searching.pruned", "searching.by_chance"])
def test_all_ranks_try_the_same_values_and_give_the_same_answer(launched, job):
    first, second = launched.found[job]
    assert first == second
    assert len({rate for _, rate, _, _ in first["seen"]}) == 5
    for (name, rate, seed, _), (number, _, params, _, _) in zip(first["seen"], first["trials"], strict=True):
        assert name == f"run-{number}"
        assert params == {"learning_rate": rate, "seed": seed}
    assert first["loss"] == first["best"][1]


def test_a_pruned_trial_ends_on_all_ranks_at_the_same_update(launched):
    first, second = launched.found["searching.pruned"]
    assert [state for _, state, _, _, _ in first["trials"]] == ["complete", "pruned"] * 2 + ["complete"]
    for rank in (first, second):
        assert [step for _, _, _, step in rank["seen"]] == [8, 4, 8, 4, 8]


def read_lines(folder, name):
    lines = (folder / name / "search" / "trials.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "error"),
    [
        ("first_fails", "ValueError: these rows are upside down"),
        (
            "last_fails",
            "ValueError: these rows are upside down",
        ),  # in its own words: rank 0 was ended by force
        ("last_is_killed", None),
    ],
)
@pytest.mark.parametrize("way", ["by hand", "by torchrun"])
def test_a_trial_that_fails_on_one_rank_ends_the_launch_and_the_next_one_goes_on(tmp_path, job, error, way):
    name = f"searching.{job}"
    if way == "by hand":
        broken = jobs.launch(tmp_path, name)
        assert broken.code != 0
        assert [broken.ended_at - at < 30 for at in broken.times("raised")] == [True] * (error is not None)
        found = jobs.together(tmp_path, name)[name]
    else:
        found = jobs.together(tmp_path, name, options=["--max-restarts", "1"])[name]
    lines = read_lines(tmp_path, name)
    assert [line["number"] for line in lines] == [0, 1, 2, 3, 4]  # each one once
    states = ["complete", "failed" if error else "complete", *["complete"] * 3]
    assert [line["state"] for line in lines] == states
    assert [line["error"] for line in lines] == [None, error, None, None, None]
    assert not list((tmp_path / name / "search").glob("failed-*"))
    first, second = found
    assert first == second
    # a trial whose rank was killed is made again, one that failed is not
    assert [run for run, *_ in first["seen"]] == [f"run-{n}" for n in range(2 if error else 1, 5)]
    assert first["loss"] == first["best"][1]
