"""The same script in two workers of Ray Train."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec

import pytest

from launchers import job
from launchers.hosts import without_network
from launchers.launching import HERE, PYTHON, launch, read_results
from launchers.test_launchers import check_accelerator, check_numbers, check_places

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # Ray starts a dozen processes
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install -e '.[ray]'"),
]


def test_two_workers_of_ray_train_are_one_run_in_the_group_that_ray_made(tmp_path):
    with tempfile.TemporaryDirectory(prefix="ray") as files:
        command = without_network([PYTHON, HERE / "ray_job.py", tmp_path / "ray", files])
        launch(command, max_seconds=800)
    ranks = read_results(tmp_path / "ray")
    check_places(ranks, 2)
    check_accelerator(ranks, 2)
    check_numbers(ranks, job.main(tmp_path / "alone"))
    for seen in ranks:
        assert seen["keeps group"]
        assert seen["in order"] == [True, True]
        assert seen["second"] == seen["first"]
