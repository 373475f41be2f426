"""Two hosts by network namespaces: torchrun joins them, and a folder that they do not share is named."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launchers import job
from launchers.hosts import TwoHosts, find_obstacle
from launchers.launching import JOB, TORCHRUN, launch, launch_any, read_results
from launchers.test_launchers import check_accelerator, check_numbers, check_places

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NOT_SHARED = (
    "run is not shared between the hosts: what rank 0 writes on host-0 is not seen on host-1 (rank 1)"
)


@functools.cache
def obstacle() -> str | None:
    return find_obstacle()


@pytest.fixture
def hosts():
    """Two hosts, or the reason why there are none."""
    if obstacle() is not None:
        pytest.skip(f"network namespaces cannot be made here: {obstacle()}")
    with TwoHosts() as made:
        yield made


def commands(hosts: TwoHosts, folder: Path, *settings: str, hides: Sequence[int] = ()) -> list[list[Any]]:
    """What to start on each host: one process, and torchrun that meets the other one's at host 0.

    Those hosts that hide the folder of the run have a disk of their own in its place.
    """
    place = [
        "--nnodes",
        2,
        "--nproc-per-node",
        1,
        "--master-addr",
        hosts.addresses[0],
        "--master-port",
        29517,
    ]
    (folder / "run").mkdir(parents=True, exist_ok=True)
    return [
        hosts.command(
            number,
            [*TORCHRUN, *place, "--node-rank", number, "--local-addr", address, JOB, folder, *settings],
            hidden=folder / "run" if number in hides else None,
        )
        for number, address in enumerate(hosts.addresses)
    ]


def test_two_hosts_are_one_run(hosts, tmp_path):
    outputs = launch(*commands(hosts, tmp_path / "two"))
    ranks = read_results(tmp_path / "two")
    check_places(ranks, 2, processes_per_host=1)
    check_accelerator(ranks, 2, processes_per_host=1)
    check_numbers(ranks, job.main(tmp_path / "alone"))
    assert [seen["in order"][0] for seen in ranks] == [True, True]
    assert not any("not shared" in output for output in outputs)


def test_only_the_first_host_logs_if_told_so(hosts, tmp_path):
    outputs = launch(*commands(hosts, tmp_path, "log_on_each_node=false", 'log_level="info"'))
    assert [seen["arguments"]["should_log"] for seen in read_results(tmp_path)] == [True, False]
    assert ["The run:" in output for output in outputs] == [True, False]


def test_a_folder_that_is_not_shared_is_named_and_refused_where_it_is_needed(hosts, tmp_path):
    first, second = launch(*commands(hosts, tmp_path, hides=[1]))
    assert NOT_SHARED in first
    assert "save_on_each_node=True" in first
    assert NOT_SHARED not in second  # said once
    assert [seen["checkpoints"] for seen in read_results(tmp_path)] == [["checkpoint-3", "checkpoint-6"], []]

    needs = {
        "every rank reads": ["resume=true", "num_train_epochs=3"],
        "with load_best_model_at_end": ["load_best_model_at_end=true", 'eval_strategy="epoch"'],
    }
    for reason, settings in needs.items():
        for code, output in launch_any(*commands(hosts, tmp_path, *settings, hides=[1])):
            assert code != 0
            assert NOT_SHARED in output
            assert f"It is needed here, because {reason}" in output


def test_each_host_can_have_checkpoints_of_its_own(hosts, tmp_path):
    outputs = launch(*commands(hosts, tmp_path, "save_on_each_node=true", hides=[0, 1]))
    ranks = read_results(tmp_path)
    assert [seen["arguments"]["should_save"] for seen in ranks] == [True, True]
    assert [seen["checkpoints"] for seen in ranks] == [["checkpoint-3", "checkpoint-6"]] * 2
    assert not any("not shared" in output for output in outputs)


def test_hosts_that_share_a_folder_cannot_each_save_into_it(hosts, tmp_path):
    for code, output in launch_any(*commands(hosts, tmp_path, "save_on_each_node=true")):
        assert code != 0
        assert "If the hosts share this one, leave save_on_each_node unset." in output
