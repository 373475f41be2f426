"""Rows are prepared once, on all cores; what is made again is only what has changed."""

import os

import pytest

from footplate.tasks.classification import Classification
from footplate.tasks.common import preparing
from footplate.tasks.common.catalog import find_recipe
from footplate.tasks.common.parsing import parse_flags
from footplate.tasks.common.running import build_job
from tasks import small
from tasks.test_classification import sentences


class Counted(Classification):
    """Leaves a file for each batch that it prepares."""

    def features(self, rows):
        made = super().features(rows)
        with open(f"{os.environ['COUNTS']}/{os.getpid()}", "a") as file:
            file.write(f"{len(made['input_ids'])}\n")
        return made


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """Call it with flags: how many rows each process prepares."""
    small.write_csv(tmp_path / "train.csv", sentences(60, 0))

    def prepare(*words, count=None):
        if count is not None:
            small.write_csv(tmp_path / "train.csv", sentences(count, 0))
        folder = tmp_path / f"counts{len(list(tmp_path.glob('counts*')))}"
        folder.mkdir()
        monkeypatch.setenv("COUNTS", str(folder))
        given = ["--train_file", tmp_path / "train.csv", "--do_train", "--output_dir", tmp_path / "out"]
        given += ["--report_to", "none", *small.from_scratch("bert"), *words]
        job = build_job(parse_flags(Counted, [str(word) for word in given]))
        counts = {int(file.name): sum(map(int, file.read_text().split())) for file in folder.iterdir()}
        return counts, job

    return prepare


def test_a_second_start_prepares_nothing_and_has_the_same_features(prepared):
    counts, first = prepared()
    assert counts == {os.getpid(): 60}
    counts, second = prepared("--learning_rate", "1e-3", "--seed", 5)
    assert counts == {}
    assert second.features["train"].to_dict() == first.features["train"].to_dict()


@pytest.mark.parametrize(
    "words",
    [["--max_seq_length", 9], ["--overwrite_cache"], ["--vocab_size", 300], ["--max_train_samples", 7]],
)
def test_what_has_changed_is_prepared_anew(prepared, words):
    prepared()
    counts, job = prepared(*words)
    assert counts == {os.getpid(): len(job.features["train"])}


def test_a_file_that_has_changed_is_read_anew(prepared):
    prepared()
    counts, _ = prepared(count=44)
    assert counts == {os.getpid(): 44}


def test_processes_share_the_rows(prepared):
    counts, job = prepared("--preprocessing_num_workers", 2)
    assert os.getpid() not in counts
    assert sorted(counts.values()) == [30, 30]
    assert len(job.features["train"]) == 60


def test_a_few_rows_are_prepared_by_one_process_and_many_by_one_for_each_core(tmp_path):
    recipe = parse_flags(find_recipe("classification"), ["--output_dir", str(tmp_path)])
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert preparing.plan_processes(recipe.data, 1000) == 1
    assert preparing.plan_processes(recipe.data, 1_000_000) == num_cores


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_prepared_on_all_cores_and_only_once(prepared, capfd):
    counts, _ = prepared(count=100_000)
    assert len(counts) == len(os.sched_getaffinity(0))
    assert sum(counts.values()) == 100_000
    assert "Preparing train rows" in capfd.readouterr().err
    counts, _ = prepared()
    assert counts == {}
