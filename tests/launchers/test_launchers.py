"""The same script under every launcher: each process knows its place, and the numbers are the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from launchers import job
from launchers.launching import ACCELERATE, HERE, JOB, PYTHON, TORCHRUN, launch, read_results

STARTS_TWO = ["--multi_gpu", "--num_processes", 2]  # with --cpu, Accelerate starts one process
COMMON = ["--num_machines", 1, "--mixed_precision", "no", "--dynamo_backend", "no"]
COMMANDS: dict[str, tuple[int, list[Any]]] = {
    "python": (1, [PYTHON, JOB]),
    "accelerate": (1, [*ACCELERATE, "--cpu", "--num_processes", 1, *COMMON, JOB]),
    "torchrun": (2, [*TORCHRUN, "--standalone", "--nproc-per-node", 2, JOB]),
    "own group": (2, [PYTHON, HERE / "spawn_job.py"]),
    "accelerate, two": (2, [*ACCELERATE, *STARTS_TWO, *COMMON, JOB]),
}
QUICK = ("python", "accelerate", "torchrun", "own group")

Ranks = list[dict[str, Any]]


@dataclass(frozen=True)
class Launched:
    """What the ranks of one launcher saw."""

    name: str
    num_processes: int
    ranks: Ranks


def params() -> list[Any]:
    marks = {name: () if name in QUICK else (pytest.mark.slow,) for name in COMMANDS}
    return [pytest.param(name, marks=marks[name], id=name) for name in COMMANDS]


# a parameter of the fixture, not of the tests: so pytest runs all tests of one launcher after each other
@pytest.fixture(scope="module", params=params())
def launched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """The script, started once by each launcher."""
    num_processes, command = COMMANDS[request.param]
    folder = tmp_path_factory.mktemp("job")
    launch([*command, folder])
    return Launched(request.param, num_processes, read_results(folder))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script sees in this very process."""
    return job.main(tmp_path_factory.mktemp("alone"))


def test_each_process_knows_its_place(launched):
    check_places(launched.ranks, launched.num_processes)


def check_places(ranks: Ranks, num_processes: int, processes_per_host: int | None = None) -> None:
    per_host = processes_per_host or num_processes
    assert len(ranks) == num_processes
    assert len({seen["process"] for seen in ranks}) == num_processes
    for index, seen in enumerate(ranks):
        is_first, local_index = index == 0, index % per_host
        assert seen["arguments"] == {
            "world_size": num_processes,
            "process_index": index,
            "local_process_index": local_index,
            "should_save": is_first,
            "should_log": local_index == 0,  # on each machine, by default
            "parallel_mode": "distributed" if num_processes > 1 else "not_parallel",
        }
        assert seen["first"]["zero"] == [is_first, local_index == 0]


def test_the_accelerator_answers_the_same_before_and_after_training(launched):
    check_accelerator(launched.ranks, launched.num_processes)


def check_accelerator(ranks: Ranks, num_processes: int, processes_per_host: int | None = None) -> None:
    per_host = processes_per_host or num_processes
    for index, seen in enumerate(ranks):
        assert seen["accelerator"] == {
            "num_processes": num_processes,
            "process_index": index,
            "local_process_index": index % per_host,
            "is_main_process": index == 0,
            "is_local_main_process": index % per_host == 0,
            "gathered": [10.0 * rank + row for rank in range(num_processes) for row in range(2)],
            "reduced": float(num_processes),
            "unwraps": True,
            "prepared": "Model" if num_processes == 1 else "DistributedDataParallel",
            "gradient": [(num_processes - 1) / 2] * 2,  # the mean of 0, 1, ... over the processes
        }
        assert seen["accelerator after"] == seen["accelerator"]


def test_the_main_process_goes_first(launched):
    assert all(seen["in order"] == [True, True] for seen in launched.ranks)


def test_the_numbers_are_those_of_one_process(launched, alone):
    check_numbers(launched.ranks, alone)


def check_numbers(ranks: Ranks, alone: dict[str, Any]) -> None:
    """All ranks see the same, which is what one process sees, within the order of sums."""
    reference = alone["first"]
    for seen in ranks:
        trained = seen["first"]
        assert {**trained, "zero": None} == {**ranks[0]["first"], "zero": None}  # to the last bit
        assert trained["steps"] == 6
        assert trained["rates"] == reference["rates"]
        assert_close(trained["losses"], reference["losses"])
        assert_close(trained["norms"], reference["norms"])
        assert_close(flatten(trained["weights"]), flatten(reference["weights"]))
        assert trained["before"] == reference["before"]  # nothing was added up over processes yet
        assert trained["after"]["metrics"].keys() == reference["after"]["metrics"].keys()
        assert_close(list(trained["after"]["metrics"].values()), list(reference["after"]["metrics"].values()))
        assert_close(trained["after"]["predictions"], reference["after"]["predictions"])
        assert trained["after"] != trained["before"]
        assert seen["checkpoints"] == ["checkpoint-3", "checkpoint-6"]


def test_a_second_trainer_in_the_same_process_repeats_the_first(launched):
    for seen in launched.ranks:
        assert seen["second"] == seen["first"]


def test_the_model_is_wrapped_only_among_several_processes(launched):
    wrapped = "Model" if launched.num_processes == 1 else "DistributedDataParallel"
    assert [seen["first"]["wrapped"] for seen in launched.ranks] == [["Model", wrapped]] * len(launched.ranks)


def test_a_group_that_stands_is_used_and_not_made_again(launched):
    keeps = [(seen.get("keeps group"), seen.get("new variables")) for seen in launched.ranks]
    assert keeps == [(True, []) if launched.name == "own group" else (None, None)] * launched.num_processes


def assert_close(ours: list[float], theirs: list[float]) -> None:
    assert len(ours) == len(theirs) > 0
    assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in zip(ours, theirs, strict=True))


def flatten(weights: dict[str, Any]) -> list[float]:
    return [*weights["linear.weight"][0], *weights["linear.bias"], *weights["scale"]]
