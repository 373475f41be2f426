"""Which modules are measured one by one, and which together."""

from __future__ import annotations

from footplate.instruments.entries import MAX_NAME, Entry, plan_entries


def named(*names):
    return [(name, 2) for name in names]


def test_each_module_has_an_entry_where_they_are_few():
    planned = plan_entries([("(model)", 1), ("first", 2), ("last", 1)])
    assert planned == [Entry("(model)", [0]), Entry("first", [1, 2]), Entry("last", [3])]


def test_deep_modules_are_joined_into_those_above_them():
    owned = named(
        "words", *(f"layers.{i}.{part}.{side}" for i in range(80) for part in "ab" for side in "xyz")
    )
    planned = plan_entries(owned, max_entries=200)
    assert len(planned) == 161
    assert planned[1] == Entry("layers.0.a", [2, 3, 4, 5, 6, 7])
    assert planned[-1].name == "layers.79.b"
    assert sorted(place for entry in planned for place in entry.places) == list(range(2 * len(owned)))


def test_a_module_that_was_joined_counts_with_its_own_parameters():
    planned = plan_entries(named("top", "top.a", "top.b", *(f"m{i}" for i in range(8))), max_entries=10)
    assert [entry.name for entry in planned] == ["top", *(f"m{i}" for i in range(8))]
    assert planned[0].places == [0, 1, 2, 3, 4, 5]


def test_neighbours_are_joined_where_parents_would_leave_almost_nothing():
    planned = plan_entries(named("words", *(f"blocks.{i}" for i in range(1200)), "head"))
    assert len(planned) == 402
    assert [entry.name for entry in planned][:2] == ["words", "blocks.0 … 2"]
    assert (planned[-2].name, planned[-1].name) == ("blocks.1197 … 1199", "head")
    assert len(plan_entries(named(*map(str, range(5001))))) <= 500


def test_a_model_of_any_shape_stays_within_the_limit():
    shapes = (
        [f"m{i}.a" for i in range(900)],
        [f"m{i}.a.b.c.{'d.' * (i % 5)}e" for i in range(900)],
        [f"experts.{i}.{j}.w" for i in range(40) for j in range(40)],
    )
    for names in shapes:
        planned = plan_entries(named(*names))
        assert 1 < len(planned) <= 500
        assert sum(len(entry.places) for entry in planned) == 2 * len(names)


def test_a_long_name_loses_its_beginning():
    (entry,) = plan_entries(named("a" * 500 + ".last"))
    assert len(entry.name) == MAX_NAME
    assert entry.name.startswith("…")
    assert entry.name.endswith("a.last")


def test_without_parameters_there_is_no_entry():
    assert plan_entries([]) == []
