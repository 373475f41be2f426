"""Settings of several processes reach torch, and share out the rows as they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from launchers import settings_job
from launchers.launching import HERE, TORCHRUN, launch, read_results

TWO = [*TORCHRUN, "--standalone", "--nproc-per-node", 2]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks saw in all cases."""
    folder = tmp_path_factory.mktemp("settings")
    launch([*TWO, HERE / "settings_job.py", folder])
    return read_results(folder)


def epochs(ranks: list[dict[str, Any]], case: str) -> list[list[int]]:
    """The rows of each of two epochs, of all ranks together, in order of number."""
    halves = []
    for half in range(2):
        rows = []
        for seen in ranks:
            batches = seen[case]["rows"]
            middle = len(batches) // 2
            rows += [row for batch in (batches[middle:] if half else batches[:middle]) for row in batch]
        halves.append(sorted(rows))
    return halves


def test_backend_and_timeout_are_those_of_the_group(ranks):
    assert [seen["group"] for seen in ranks] == [{"backend": "gloo", "seconds": 77.0}] * 2


def test_settings_of_ddp_reach_torch_and_the_accelerator(ranks):
    flags = {"find_unused_parameters": False, "broadcast_buffers": False, "static_graph": True}
    for seen in ranks:
        assert seen["given"]["torch"] == {**flags, "bytes": 7 * 1024**2}
        assert seen["given"]["accelerate"] == {**flags, "bucket_cap_mb": 7}


def test_unset_settings_of_ddp_are_those_of_the_original(ranks):
    flags = {"find_unused_parameters": True, "broadcast_buffers": True, "static_graph": False}
    for seen in ranks:
        assert seen["unset"]["torch"] == {**flags, "bytes": 25 * 1024**2}


def test_buffers_are_those_of_the_first_rank_unless_told_otherwise(ranks):
    first, second = ([batch[0] for batch in seen["unset"]["rows"]] for seen in ranks)
    assert [seen["unset"]["buffer"] for seen in ranks] == [sum(first), sum(first[:-1]) + second[-1]]
    assert [seen["given"]["buffer"] for seen in ranks] == [sum(first), sum(second)]


def test_an_epoch_is_filled_up_from_its_start_by_default(ranks):
    for number, rows in enumerate(epochs(ranks, "unset")):
        assert len(rows) == 24
        assert set(rows) == set(range(21))
        start = ranks[0]["unset"]["rows"][3 * number]
        assert sorted(row for row in set(rows) if rows.count(row) == 2) == sorted(start[:3])


def test_uneven_batches_hold_every_row_once_and_weigh_as_in_one_process(ranks, tmp_path):
    assert epochs(ranks, "uneven") == [list(range(21))] * 2
    alone = settings_job.train(tmp_path, per_device_train_batch_size=8)
    reference = settings_job.describe(alone)
    for seen in ranks:
        torch.testing.assert_close(
            torch.tensor(seen["uneven"]["weights"]), torch.tensor(reference["weights"]), rtol=0, atol=1e-6
        )
    together = [one + other for one, other in zip(*(seen["uneven"]["rows"] for seen in ranks), strict=True)]
    assert together == reference["rows"]


def test_a_split_batch_is_that_of_all_processes(ranks):
    for seen in ranks:
        assert seen["split"]["steps"] == 12
        assert {len(batch) for batch in seen["split"]["rows"]} == {2}
        assert "a batch of 5 rows cannot be split among 2 processes" in seen["split of 5"]
    assert epochs(ranks, "split") == [list(range(24))] * 2


def test_sending_batches_from_the_first_process_is_refused(ranks):
    assert all("dispatch_batches=True" in seen["dispatched"] for seen in ranks)


@pytest.mark.parametrize("name", ["plain", "datasets, 1", "unset"])
def test_a_stream_without_parts_is_dealt_out_in_batches(ranks, name):
    first, second = (seen["streams"][name]["rows"] for seen in ranks)
    assert first == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert second == [[4, 5, 6, 7], [12, 13, 14, 15]]


@pytest.mark.parametrize("name", ["own shard", "datasets, 2"])
def test_a_stream_that_has_parts_gives_each_rank_its_own(ranks, name):
    first, second = (seen["streams"][name]["rows"] for seen in ranks)
    assert first == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert second == [[1, 3, 5, 7], [9, 11, 13, 15]]


def test_a_rank_reads_only_its_own_part_of_a_stream_that_has_parts(ranks):
    for index, seen in enumerate(ranks):
        assert {row % 2 for row in seen["streams"]["own shard"]["read"]} == {index}


def test_all_ranks_end_with_the_same_weights(ranks):
    first, second = ranks
    for case in ("unset", "uneven", "split"):
        assert first[case]["weights"] == second[case]["weights"]
    for name, seen in first["streams"].items():
        assert seen["weights"] == second["streams"][name]["weights"]


def test_on_one_machine_each_node_means_the_first_process(ranks):
    assert [seen["each node"] for seen in ranks] == [[True, True], [False, False]]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_bfloat16_on_two_processes_is_the_originals_to_the_last_bit(tmp_path):
    results = {}
    for library in ("footplate", "transformers"):
        launch([*TWO, HERE / "precision_job.py", tmp_path / library, library])
        results[library] = read_results(tmp_path / library)
    for ours, theirs in zip(results["footplate"], results["transformers"], strict=True):
        assert (ours["library"], theirs["library"]) == ("footplate", "transformers")
        assert ours["precision"] == theirs["precision"] == "bf16"
        assert len(ours["history"]) == 6
        assert ours["history"] == theirs["history"]
        assert json.dumps(ours["weights"]) == json.dumps(theirs["weights"])
