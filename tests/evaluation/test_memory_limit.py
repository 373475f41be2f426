"""The setting, what the machine has, and what happens where there is no room."""

import logging
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from footplate.evaluation import memory_limit
from footplate.evaluation.collector import Collector
from footplate.evaluation.memory_limit import MemoryBudget, free_memory, parse_memory_limit, total_memory

REMEDIES = [
    "preprocess_logits_for_metrics",
    "batch_eval_metrics",
    "prediction_loss_only",
    "max_eval_samples",
    "eval_memory_limit",
]


def run(script, *arguments):
    """What a process of its own prints."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


# ---- the setting ----


@pytest.mark.parametrize(
    ("value", "num_bytes"),
    [
        (None, None),
        (1, 1),
        (123_456, 123_456),
        ("2GB", 2 * 10**9),
        ("2 gb", 2 * 10**9),
        ("1.5G", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        ("10k", 10_000),
        ("1TB", 10**12),
        ("4096", 4096),
        ("100B", 100),
    ],
)
def test_a_limit_is_bytes_or_a_size(value, num_bytes):
    assert parse_memory_limit(value) == num_bytes


@pytest.mark.parametrize("share", [0.5, "0.5", ".5"])
def test_a_limit_is_a_share_of_the_memory(share):
    assert parse_memory_limit(share) == int(0.5 * total_memory())
    assert parse_memory_limit(1.0) == total_memory()


@pytest.mark.parametrize(
    "value",
    [0, -5, 0.0, 1.5, -0.1, float("nan"), True, "", "much", "2XB", "GB", "-1GB", "1.5", "0B", "3iB", [1]],
)
def test_what_is_no_amount_of_memory_is_refused(value):
    with pytest.raises(ValueError, match=r"eval_memory_limit=.*2GB.*1\.0"):
        parse_memory_limit(value)


def test_free_memory_is_less_than_all_of_it():
    assert 0 < free_memory() < total_memory()


@pytest.mark.parametrize("version", [0, 1])
def test_a_containers_limit_counts(version, tmp_path, monkeypatch):
    limit_file, use_file, cached = list(memory_limit._CGROUPS.values())[version]
    monkeypatch.setattr(memory_limit, "_CGROUPS", {str(tmp_path): (limit_file, use_file, cached)})
    (tmp_path / limit_file).write_text("1000000\n")
    (tmp_path / use_file).write_text("700000\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\n{cached} 100000\n")
    assert (total_memory(), free_memory()) == (1_000_000, 400_000)
    (tmp_path / limit_file).write_text("max\n")
    assert total_memory() > 1_000_000


# ---- where there is no room ----


def test_a_disk_that_fills_up_is_named_with_the_remedies(tmp_path):
    script = """
        import resource, sys
        import torch
        from footplate.evaluation.collector import Collector

        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        collector = Collector(None, 8, memory_limit=50_000, spill_folder=sys.argv[1])
        try:
            for count in range(1000):
                collector.add(predictions=torch.ones(8, 512), num_rows=8)
        except ValueError as error:
            print(count, error)
    """
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    count, message = done.stdout.split(" ", 1)
    assert count == str(100_000 // (8 * 512 * 4))
    assert all(remedy in message for remedy in REMEDIES)
    assert str(tmp_path) in message


def test_what_fits_nowhere_is_refused_after_the_first_batch(tmp_path):
    collector = Collector(10**12, 8, memory_limit=10**6, spill_folder=tmp_path)
    with pytest.raises(ValueError, match=r"would keep 2056 TB") as caught:
        collector.add(predictions=torch.ones(8, 512), labels=torch.ones(8, dtype=torch.long), num_rows=8)
    message = str(caught.value)
    assert all(remedy in message for remedy in REMEDIES)
    assert "of free memory (eval_memory_limit=1.00 MB)" in message
    assert f"of free disk space in {tmp_path}" in message


def test_without_a_limit_most_of_the_free_memory_is_used(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(memory_limit, "free_memory", lambda: 10_000)
    with caplog.at_level(logging.WARNING):
        for num_rows, kind in [(1000, np.ndarray), (1001, np.memmap)]:
            collector = Collector(num_rows, 1, spill_folder=tmp_path)
            for _ in range(3):
                collector.add(predictions=torch.ones(1, 1), labels=torch.ones(1), num_rows=1)
            assert type(collector.predictions) is type(collector.labels) is kind
    (record,) = caplog.records
    assert "8.01 kB, more than the 8.00 kB" in record.message
    assert "eval_memory_limit" in record.message


def test_processes_on_one_machine_share_its_memory(monkeypatch):
    monkeypatch.setattr(memory_limit, "free_memory", lambda: 10_000)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert MemoryBudget().ceiling == 2000
    assert MemoryBudget(5000).ceiling == 5000


def test_a_folder_that_is_missing_is_made(tmp_path):
    collector = Collector(2, 1, memory_limit=1, spill_folder=tmp_path / "runs" / "first")
    collector.add(predictions=torch.ones(1, 4), num_rows=1)
    assert collector.predictions.tolist() == [[1, 1, 1, 1]]
