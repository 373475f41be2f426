"""The table of ranks in a report."""

from footplate.report.ranks import RankTable


def test_sums_over_logs_and_names_the_slowest():
    table = RankTable()
    table.add({"rows": 10, "times": [[1.0, 0.0], [0.5, 0.5]]})
    table.add({"rows": 10, "times": [[3.0, 0.0], [1.5, 1.5]]})
    first, second = table.to_plain()
    assert (first["busy"], first["waited"], first["is_slowest"]) == (4.0, 0.0, True)
    assert (second["busy"], second["waited"], second["is_slowest"]) == (2.0, 2.0, False)
    assert (first["rows_per_second"], second["rows_per_second"]) == (5.0, 10.0)


def test_another_number_of_ranks_begins_anew():
    table = RankTable()
    table.add({"rows": 10, "times": [[1.0, 0.0], [0.5, 0.5]]})
    table.add({"rows": 4, "times": [[2.0, 0.0]]})
    assert [entry["rows_per_second"] for entry in table.to_plain()] == [2.0]


def test_what_is_not_a_table_is_left_out():
    table = RankTable()
    for wrong in (None, [], {"times": "x"}, {"times": [[1.0]]}, {"rows": "many", "times": [[1, 2, 3]]}):
        table.add(wrong)
    assert table.to_plain() == []
