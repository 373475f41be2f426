"""A task on two real processes gives what one process gives, also for a number of rows that is odd."""

from __future__ import annotations

from pathlib import Path

import pytest

import ranks
from tasks import small
from tasks.test_classification import sentences


def flags(folder, num_processes, train_file, validation_file):
    """Flags of a run in which batches hold 16 rows, however many processes share them."""
    size = str(16 // num_processes)
    return [
        *(*small.from_scratch("bert"), "--max_seq_length", "16", "--learning_rate", "3e-3"),
        *("--train_file", str(train_file), "--validation_file", str(validation_file)),
        *("--test_file", str(validation_file), "--do_train", "--do_eval", "--do_predict"),
        *("--output_dir", str(folder), "--cache_dir", str(folder / "cache"), "--num_train_epochs", "6"),
        *("--per_device_train_batch_size", size, "--per_device_eval_batch_size", size),
        # otherwise, as in the original, a loss that ignores the number of items counts once for each process
        *("--loss_weighting", "items", "--report_to", "none", "--disable_tqdm", "True"),
    ]


@pytest.mark.slow
def test_an_odd_number_of_evaluation_rows_is_measured_on_two_processes_as_on_one(tmp_path):
    files = (
        small.write_csv(tmp_path / "train.csv", sentences(160, 0)),
        small.write_csv(tmp_path / "validation.csv", sentences(37, 1)),
    )
    small.run("classification", *flags(tmp_path / "one", 1, *files))
    words = ["run", "classification", *flags(tmp_path / "two", 2, *files)]
    done = ranks.torchrun(Path("footplate"), *words, options=["-m"])
    assert done.code == 0, done.output[-6000:]
    one, two = small.results_of(tmp_path / "one"), small.results_of(tmp_path / "two")
    assert set(one) == set(two)
    assert one["eval_samples"] == two["eval_samples"] == 37
    assert one["eval_accuracy"] == two["eval_accuracy"] > 0.8  # chance: 0.5
    for name in ("train_loss", "eval_loss", "predict_loss"):
        assert two[name] == pytest.approx(one[name], rel=1e-5), name
    written = [(tmp_path / name / "predict_results.txt").read_text() for name in ("one", "two")]
    assert written[0] == written[1]
    assert len(written[0].splitlines()) == 38  # a heading, and each row once
