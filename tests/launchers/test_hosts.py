"""Two hosts by network namespaces: torchrun joins them, and a folder that they do not share is named."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from launchers.hosts import TwoHosts, find_obstacle
from launchers.launching import JOB, PYTHON, TORCHRUN, launch, launch_any, read_results
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


def commands(hosts: TwoHosts, folder: Path, *settings: str, hidden: Path | None = None) -> list[list[Any]]:
    """What to start on each host: one process, and torchrun that meets the other one's at host 0."""
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
    return [
        hosts.command(
            number,
            [*TORCHRUN, *place, "--node-rank", number, "--local-addr", address, JOB, folder, *settings],
            hidden=hidden,
        )
        for number, address in enumerate(hosts.addresses)
    ]


def test_two_hosts_are_one_run(hosts, tmp_path):
    outputs = launch(*commands(hosts, tmp_path / "two"), [PYTHON, JOB, tmp_path / "alone"])
    ranks = read_results(tmp_path / "two")
    check_places(ranks, 2, processes_per_host=1)
    check_accelerator(ranks, 2, processes_per_host=1)
    check_numbers(ranks, read_results(tmp_path / "alone")[0])
    assert [seen["in order"][0] for seen in ranks] == [True, True]
    assert not any("not shared" in output for output in outputs)


def test_only_the_first_host_logs_if_told_so(hosts, tmp_path):
    outputs = launch(*commands(hosts, tmp_path, "log_on_each_node=false"))
    assert [seen["arguments"]["should_log"] for seen in read_results(tmp_path)] == [True, False]
    assert "The run:" in outputs[0]
    assert "The run:" not in outputs[1]


def test_a_folder_that_is_not_shared_is_named_and_refused_where_it_is_needed(hosts, tmp_path):
    (tmp_path / "run").mkdir()
    (first, noticed), (second, _) = launch_any(*commands(hosts, tmp_path, hidden=tmp_path / "run"))
    assert (first, second) == (0, 0), noticed[-3000:]
    assert NOT_SHARED in noticed
    assert "save_on_each_node=True" in noticed

    ended = launch_any(
        *commands(
            hosts, tmp_path, "load_best_model_at_end=true", 'eval_strategy="epoch"', hidden=tmp_path / "run"
        )
    )
    for code, output in ended:
        assert code != 0
        assert NOT_SHARED in output
        assert "It is needed here, because with load_best_model_at_end" in output


def test_each_host_can_have_checkpoints_of_its_own(hosts, tmp_path):
    (tmp_path / "run").mkdir()
    outputs = launch(*commands(hosts, tmp_path, "save_on_each_node=true", hidden=tmp_path / "run"))
    ranks = read_results(tmp_path)
    assert [seen["arguments"]["should_save"] for seen in ranks] == [True, True]
    assert [seen["checkpoints"] for seen in ranks] == [["checkpoint-3", "checkpoint-6"]] * 2
    assert not any("not shared" in output for output in outputs)
