"""How the time of ranks is divided into work and waiting."""

from footplate.training.rank_times import compare_ranks


def test_who_is_late_makes_the_others_wait_in_backward():
    slow = {"data": 3.0, "forward": 1.0, "backward": 1.0}
    quick = {"data": 0.5, "forward": 1.0, "backward": 3.5}
    first, second = compare_ranks([slow, quick])
    assert first == (5.0, 0.0)
    assert second == (2.5, 2.5)


def test_evaluating_and_saving_are_not_part_of_an_update():
    only = {"forward": 1.0, "backward": 1.0, "evaluation": 9.0, "saving": 9.0}
    assert compare_ranks([only]) == [(2.0, 0.0)]
