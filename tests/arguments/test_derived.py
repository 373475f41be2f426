"""What follows from settings and machine equals the original's answers."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import transformers
from accelerate import PartialState
from accelerate.state import AcceleratorState

import ranks
from footplate.arguments import TrainingArguments, derived
from footplate.outputs import ParallelMode

PROPERTIES = [
    "device",
    "n_gpu",
    "world_size",
    "process_index",
    "local_process_index",
    "train_batch_size",
    "eval_batch_size",
    "should_log",
    "should_save",
    "place_model_on_device",
    "ddp_timeout_delta",
    "mixed_precision",
]


@pytest.fixture
def launched(monkeypatch):
    """Makes the environment that a launcher would make."""

    def launch(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return launch


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize(
    "settings", [{}, {"use_cpu": True, "bf16": True, "per_device_train_batch_size": 3}], ids=str
)
def test_property_equals_the_original(name, settings):
    ours = getattr(TrainingArguments("runs", **settings), name)
    assert ours == getattr(transformers.TrainingArguments("runs", **settings), name)


def test_parallel_mode_equals_the_original():
    args = TrainingArguments("runs", use_cpu=True)
    assert args.parallel_mode is ParallelMode.NOT_PARALLEL
    assert (
        args.parallel_mode.value == transformers.TrainingArguments("runs", use_cpu=True).parallel_mode.value
    )


@pytest.mark.parametrize("warmup", [0, 1, 10, 10.0, 0.1, 0.03, 0.999, 12.7])
@pytest.mark.parametrize("steps", [1, 7, 100, 12345])
def test_warmup_steps_equal_the_original(warmup, steps):
    ours = TrainingArguments("runs", warmup_steps=warmup).get_warmup_steps(steps)
    assert ours == transformers.TrainingArguments("runs", warmup_steps=warmup).get_warmup_steps(steps)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical", "detail", "passive"])
def test_log_level_equals_the_original(level):
    ours = TrainingArguments("runs", log_level=level).get_process_log_level()
    assert ours == transformers.TrainingArguments("runs", log_level=level).get_process_log_level()


def test_a_replica_has_its_own_log_level(launched):
    args = TrainingArguments("runs", log_level="info", log_level_replica="error")
    launched(WORLD_SIZE=2, RANK=1, LOCAL_RANK=1)
    assert args.get_process_log_level() == logging.ERROR


@pytest.mark.parametrize(
    ("rank", "level", "shown"),
    [(0, "warning", "WARNING"), (1, "warning", "ERROR"), (1, "info", "INFO"), (1, "passive", "NOTSET")],
)
def test_difference_warnings_are_shown_by_the_main_process_alone(rank, level, shown, launched):
    launched(RANK=rank, LOCAL_RANK=rank)
    logger = logging.getLogger("footplate")
    before = logger.level
    logger.setLevel(logging.NOTSET)
    try:
        args = TrainingArguments("runs", log_level="warning", log_level_replica=level)
        derived.apply_log_level(args)
        assert logging.getLevelName(logger.level) == shown
    finally:
        logger.setLevel(before)


def test_ranks_come_from_the_launcher(launched):
    args = TrainingArguments("runs", use_cpu=True)  # made first: it would wait for the other processes
    launched(WORLD_SIZE=8, RANK=5, LOCAL_RANK=1)
    assert (args.world_size, args.process_index, args.local_process_index) == (8, 5, 1)
    assert args.parallel_mode is ParallelMode.DISTRIBUTED


def test_ranks_come_from_mpi_too(launched):
    args = TrainingArguments("runs", use_cpu=True)
    launched(OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_RANK=3, OMPI_COMM_WORLD_LOCAL_RANK=1)
    assert (args.world_size, args.process_index, args.local_process_index) == (4, 3, 1)


def test_who_logs_and_saves_on_the_second_machine(launched):
    args = TrainingArguments("runs")
    other = TrainingArguments("runs", log_on_each_node=False, save_on_each_node=True)
    launched(WORLD_SIZE=4, RANK=2, LOCAL_RANK=0)
    assert (args.should_log, args.should_save) == (True, False)
    assert (other.should_log, other.should_save) == (False, True)


def test_the_process_group_knows_better_than_the_environment(launched, tmp_path):
    launched(WORLD_SIZE=8, RANK=5)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        args = TrainingArguments("runs")
        assert (args.world_size, args.process_index) == (1, 0)
    finally:
        torch.distributed.destroy_process_group()
        AcceleratorState._reset_state(reset_partial_state=True)


def test_precision_comes_from_the_launcher_unless_set(launched):
    launched(ACCELERATE_MIXED_PRECISION="fp16")
    assert TrainingArguments("runs").mixed_precision == "fp16"
    assert TrainingArguments("runs", bf16=True).mixed_precision == "bf16"


def test_the_launcher_may_ask_for_the_cpu(launched):
    launched(ACCELERATE_USE_CPU="true")
    assert TrainingArguments("runs").device == torch.device("cpu")


def test_an_accelerator_is_used_at_the_local_rank(monkeypatch, launched):
    launched(LOCAL_RANK=1)
    monkeypatch.setattr(derived, "find_accelerator", lambda: "cuda")
    assert derived.find_device(use_cpu=False) == torch.device("cuda", 1)
    assert derived.find_device(use_cpu=True) == torch.device("cpu")
    monkeypatch.setattr(derived, "find_accelerator", lambda: "mps")
    assert derived.find_device(use_cpu=False) == torch.device("mps")


def test_difference_one_accelerator_is_used_however_many_there_are(monkeypatch):
    monkeypatch.setattr(derived, "find_accelerator", lambda: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    args = TrainingArguments("runs", per_device_train_batch_size=3)
    assert (args.n_gpu, args.train_batch_size) == (1, 3)
    assert args.parallel_mode is ParallelMode.NOT_PARALLEL


def test_timeout_is_in_seconds():
    assert TrainingArguments("runs", ddp_timeout=90).ddp_timeout_delta == timedelta(seconds=90)


def test_one_process_goes_straight_through_main_process_first():
    with TrainingArguments("runs").main_process_first(desc="map"):
        passed = True
    assert passed


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_processes_that_do_not_know_where_to_meet_are_refused(variable, launched, monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    launched(**{variable: 2})
    with pytest.raises(ValueError, match=r"2 processes.*MASTER_ADDR is not set.*torchrun.*unset WORLD_SIZE"):
        TrainingArguments("runs")
    assert not torch.distributed.is_initialized()


def test_one_process_of_a_launcher_meets_nobody(launched):
    launched(WORLD_SIZE=1, RANK=0, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=1)
    args = TrainingArguments("runs", use_cpu=True)
    assert (args.world_size, args.parallel_mode) == (1, ParallelMode.NOT_PARALLEL)
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        (None, "cpu", "gloo"),
        ("mpi", "cpu", "mpi"),
        (None, "cuda:1", "cpu:gloo,cuda:nccl"),
        ("gloo", "cuda:1", "cpu:gloo,cuda:gloo"),
        (None, "xpu:0", "cpu:gloo,xpu:xccl"),
    ],
)
def test_the_backend_carries_plain_values_on_the_cpu_and_tensors_on_the_device(name, device, expected):
    assert derived.find_backend(name, torch.device(device)) == expected


# As mpirun starts it: the plain names of rank and world size are not there.
MEETING = """
import json, os, sys, time
for name in ("RANK", "WORLD_SIZE"):
    os.environ["OMPI_COMM_WORLD_" + name.removeprefix("WORLD_")] = os.environ.pop(name)
os.environ["OMPI_COMM_WORLD_LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
import accelerate, torch
from footplate.arguments import TrainingArguments
args = TrainingArguments("runs", use_cpu=True, log_level_replica="error", ddp_timeout=60)
again = TrainingArguments("runs", use_cpu=True)
with args.main_process_first(local=False, desc="writing"):
    if args.process_index == 0:
        time.sleep(0.3)
        open(sys.argv[1] + "/first", "w").write("done")
    saw = open(sys.argv[1] + "/first").read()
state = args.distributed_state
found = {
    "place": [args.world_size, args.process_index, args.local_process_index],
    "group": [torch.distributed.get_world_size(), torch.distributed.get_rank()],
    "backend": torch.distributed.get_backend(),
    "state": [state.num_processes, state.process_index, state.local_process_index, state.device.type],
    "duties": [args.should_log, args.should_save, args.get_process_log_level() == 40],
    "mode": args.parallel_mode.value,
    "saw": saw,
    "local": os.environ.get("LOCAL_RANK"),
}
json.dump(found, open(f"{sys.argv[1]}/{args.process_index}", "w"))
torch.distributed.destroy_process_group()
"""


def test_processes_meet_when_their_arguments_are_made(tmp_path):
    script = tmp_path / "meeting.py"
    script.write_text(MEETING)
    for result in ranks.run_each(script, str(tmp_path)):
        assert result.code == 0, result.output
    for rank in range(2):
        assert json.loads((tmp_path / str(rank)).read_text()) == {
            "place": [2, rank, rank],
            "group": [2, rank],
            "backend": "gloo",
            "state": [2, rank, rank, "cpu"],
            "duties": [rank == 0, rank == 0, rank == 1],
            "mode": "distributed",
            "saw": "done",  # the second one waited for the first
            "local": None,  # no launcher set it, and nobody is told that one did
        }


def test_the_device_is_found_without_importing_accelerate():
    code = (
        "import sys; from footplate.arguments.fields import TrainingArguments as T; "
        "args = T('runs'); args.device, args.n_gpu, args.parallel_mode; "
        "assert not {'accelerate', 'transformers', 'yaml'} & sys.modules.keys()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("level", [*derived.log_levels, "passive"])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_log_level_of_a_process_equals_the_original(level, rank, launched, monkeypatch):
    settings = {"log_level": level, "log_level_replica": "error"}
    theirs = transformers.TrainingArguments("runs", use_cpu=True, **settings)
    monkeypatch.setattr(type(theirs), "should_log", rank == 0)  # asking it would need a second process
    launched(LOCAL_RANK=rank)
    ours = TrainingArguments("runs", use_cpu=True, **settings).get_process_log_level()
    assert ours == theirs.get_process_log_level()


def test_a_passive_level_is_the_one_that_a_script_set_for_transformers():
    before = transformers.logging.get_verbosity()
    try:
        transformers.logging.set_verbosity_info()  # as the example scripts do
        assert TrainingArguments("runs").get_process_log_level() == logging.INFO
        transformers.logging.set_verbosity_error()
        assert TrainingArguments("runs").get_process_log_level() == logging.ERROR
    finally:
        transformers.logging.set_verbosity(before)


def test_a_level_of_our_own_logger_counts_more_than_that_of_transformers():
    logger = logging.getLogger("footplate")
    before = logger.level
    try:
        logger.setLevel(logging.CRITICAL)
        assert TrainingArguments("runs").get_process_log_level() == logging.CRITICAL
    finally:
        logger.setLevel(before)


def test_the_device_is_that_of_a_state_which_exists():
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        state = PartialState(cpu=True)
        args = TrainingArguments("runs", accelerator_config={"use_configured_state": True})
        assert args.device == state.device == torch.device("cpu")
        assert args.distributed_state.device == state.device
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
