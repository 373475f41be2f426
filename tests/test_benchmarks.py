"""The benchmarks: what is printed and drawn, and short runs that do all of the work."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def find_benchmarks(monkeypatch):
    """Benchmarks import each other by their plain names, as scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def run_benchmark(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("compared", "verdict"), [([0.8, 0.9, 1.0], "reached"), ([0.8, 0.91, 0.95], "behind")]
)
def test_the_median_decides_whether_a_row_is_reached(compared, verdict):
    from limits import WORKS, Figures, format_row

    cells = format_row(WORKS["update"], Figures([5e-4, 7e-4], [4e-4, 6e-4], compared, original=[1.8]))
    assert cells[1:3] == ["500 µs, 600 µs", "400 µs, 500 µs"]
    assert cells[3].startswith(f"{sorted(compared)[1]:.2f} (")
    assert cells[4:] == ["1.80", "0.90", verdict]


def test_a_single_sample_has_no_quartiles_to_show():
    from limits import WORKS, Figures, format_row

    assert format_row(WORKS["import"], Figures([1.0], [1.15], [0.15]))[3] == "0.15 s (0.15 s to 0.15 s)"


def test_an_error_of_one_round_is_the_error_of_the_row():
    from limits import merge

    with pytest.raises(RuntimeError, match="no memory"):
        merge([{"ratio": [1.0]}, {"error": "no memory"}], "ratio")


@pytest.mark.parametrize(("points", "slope"), [([(10, 5), (100, 5)], 0), ([(1, 9), (10, 2), (100, 20)], 1)])
def test_the_last_step_tells_constant_from_linear(points, slope):
    from growth import find_slope

    assert find_slope(points) == pytest.approx(slope)


def test_a_line_of_powers_is_drawn_straight():
    from plot import draw_plot

    lines = {"a < b": [(10.0, 1.0), (100.0, 10.0), (1000.0, 100.0)], "flat": [(10.0, 5.0), (1000.0, 5.0)]}
    picture = ElementTree.fromstring(draw_plot("cost & size", "size", "cost", lines))
    drawn = [line.get("points") for line in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    (left, low), (middle, between), (right, high) = [
        map(float, point.split(",")) for point in drawn[0].split()
    ]
    assert middle == pytest.approx((left + right) / 2, abs=0.1)
    assert between == pytest.approx((low + high) / 2, abs=0.1)
    assert high < low  # the larger is further up
    assert len({point.split(",")[1] for point in drawn[1].split()}) == 1
    assert "a < b" in [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]


def test_expert_and_trainer_take_turns(tmp_path):
    settings = {"library": "footplate", "blocks": 6, "steps": 31, "output_dir": str(tmp_path)}
    found = json.loads(run_benchmark("-m", "beside.update", json.dumps(settings)).splitlines()[-1])
    assert {name: len(samples) for name, samples in found.items()} == {
        "footplate": 3,
        "expert": 3,
        "ratio": 3,
    }
    assert all(value > 0 for samples in found.values() for value in samples)


@pytest.mark.slow
def test_a_smoke_run_prints_every_row():
    from limits import SAVE, WORKS

    printed = run_benchmark("limits.py", "--quick", "--no-original")
    assert "failed" not in printed
    # the yardstick of a save is the original
    assert {name for name, work in WORKS.items() if work.title not in printed} == {SAVE}


@pytest.mark.slow
def test_a_smoke_run_draws_every_plot():
    from growth import GROWTHS

    printed = run_benchmark("growth.py", "--quick")
    for _, x_name, y_name in GROWTHS.values():
        assert x_name in printed
        assert y_name in printed


@pytest.mark.parametrize("workers", [0, 1])
def test_a_table_is_loaded_with_any_number_of_workers(tmp_path, workers):
    settings = {"library": "footplate", "workers": workers, "rows": 40, "batch_size": 8, "data": None}
    found = json.loads(
        run_benchmark("-m", "loading", json.dumps(settings | {"output_dir": str(tmp_path)})).splitlines()[-1]
    )
    assert all(seconds > 0 for key in ("row_cpu", "row_wall", "row_all_cpu") for seconds in found[key])
    assert found["loss"] == [pytest.approx(1.4, abs=0.3)]
    assert (found["row_all_cpu"] == found["row_cpu"]) is (workers == 0)


def test_texts_of_every_set_are_taken_in_equal_parts(tmp_path):
    from loading import read_texts

    for name, column in (("one", "text"), ("two", "sentence")):
        (tmp_path / name).mkdir()
        lines = [f"{column},label", *(f"{name} {number},0" for number in range(9))]
        (tmp_path / name / "train.csv").write_text("\n".join(lines), encoding="utf-8")
    texts = read_texts(str(tmp_path), 6)
    assert sorted(text.split()[0] for text in texts) == ["one"] * 3 + ["two"] * 3
    assert len(set(read_texts(None, 6))) == 6


def test_rows_per_second_and_failures_are_printed(capsys):
    from tables import print_loading

    good = {"row_wall": [0.01], "row_cpu": [2e-6], "row_all_cpu": [5e-6], "loss": [1.5]}
    print_loading(8, {"footplate, 0 workers": [good], "transformers, 0 workers": [{"error": "no memory"}]})
    printed = capsys.readouterr().out
    assert "100" in printed
    assert "failed in 1 round(s): no memory" in printed
