"""What follows from the settings and the machine: device, rank, precision, log level, warm-up."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from footplate import comm
from footplate.arguments.texts import log_levels
from footplate.voice import install_voice
from footplate.words import read_flag

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

logger = logging.getLogger(__name__)

# The first one that is set is used: torchrun and Accelerate set the plain names, MPI launchers their own.
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
RANK_VARIABLES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
LOCAL_RANK_VARIABLES = (
    "LOCAL_RANK",
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
)


def find_number(variables: tuple[str, ...], default: int) -> int:
    """The first of these environment variables that holds a number from 0 up, else `default`."""
    for variable in variables:
        value = os.environ.get(variable, "")
        if value.isdigit():
            return int(value)
    return default


def find_world_size() -> int:
    """How many processes the launcher started; an existing process group is asked first."""
    return comm.world_size() if comm.is_distributed() else find_number(WORLD_SIZE_VARIABLES, 1)


def find_process_index() -> int:
    """The number of this process among all."""
    return comm.rank() if comm.is_distributed() else find_number(RANK_VARIABLES, 0)


def find_local_process_index() -> int:
    """The number of this process on its machine; without a launcher that says so, all are on one machine."""
    return find_number(LOCAL_RANK_VARIABLES, comm.rank())


def join_processes(args: TrainingArguments) -> None:
    """Meet the other processes if a launcher started several; a group that stands already is used."""
    world_size = find_number(WORLD_SIZE_VARIABLES, 1)
    if world_size == 1 or comm.is_distributed():
        return
    if "MASTER_ADDR" not in os.environ:
        raise ValueError(
            f"The environment says that {world_size} processes train together, but not where they meet "
            "(MASTER_ADDR is not set). Start them with torchrun, or unset WORLD_SIZE."
        )
    device = args.device
    if device.type not in ("cpu", "mps"):
        torch.accelerator.set_device_index(device.index)
    rank = find_number(RANK_VARIABLES, 0)
    for name, value in {"WORLD_SIZE": world_size, "RANK": rank, "MASTER_PORT": 29500}.items():
        os.environ.setdefault(name, str(value))  # torch reads these names alone, and MPI does not set them
    comm.join(find_backend(args.ddp_backend, device), args.ddp_timeout_delta)


def find_backend(name: str | None, device: torch.device) -> str:
    """What carries exchanges between processes; plain values always go through the CPU."""
    if device.type == "cpu":
        return name or "gloo"
    return f"cpu:gloo,{device.type}:{name or torch.distributed.get_default_backend_for_device(device)}"


@lru_cache(maxsize=1)
def find_accelerator() -> str | None:
    """The kind of accelerator in this machine; None if there is none."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    for kind in ("xpu", "npu", "mlu", "musa", "hpu"):
        module = getattr(torch, kind, None)  # vendors add theirs to torch when their package is imported
        if module is not None and module.is_available():
            return kind
    return None


def find_state(use_cpu: bool) -> Any:
    """Accelerate's state of this process, which is made if there is none yet."""
    from accelerate import PartialState
    from accelerate.state import AcceleratorState

    on_cpu = use_cpu or read_flag("ACCELERATE_USE_CPU")
    if not comm.is_distributed():
        return PartialState(cpu=on_cpu)
    if PartialState._shared_state and PartialState().num_processes != comm.world_size():
        AcceleratorState._reset_state(reset_partial_state=True)  # it was made before the processes met
    with place_in_environment():
        # unless it is told of the CPU, it takes a group without accelerators for a single process
        return PartialState(cpu=on_cpu or find_accelerator() is None)


@contextmanager
def place_in_environment() -> Iterator[None]:
    """For the time of the block, give this process's place in the group in the variables of launchers.

    Accelerate looks at these alone, and a program that joined its processes by itself needs none of them.
    They are put back, because they would tell code that comes later of a launcher that does not exist.
    """
    place = {
        "RANK": comm.rank(),
        "WORLD_SIZE": comm.world_size(),
        "LOCAL_RANK": find_local_process_index(),
        "MASTER_ADDR": "127.0.0.1",  # Accelerate wants one, and does not use it: the processes have met
        "OMP_NUM_THREADS": torch.get_num_threads(),  # without it, Accelerate changes the number of threads
    }
    names = (*place, "LOCAL_WORLD_SIZE", "MASTER_PORT")  # Accelerate sets these two
    before = {name: os.environ.get(name) for name in names}
    for name, value in place.items():
        os.environ.setdefault(name, str(value))
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text


def has_configured_state() -> bool:
    """Whether the script has made a state of Accelerate; looking for it imports nothing."""
    state = sys.modules.get("accelerate.state")
    return state is not None and bool(state.PartialState._shared_state)


def leave_state(use_cpu: bool) -> None:
    """Make Accelerate's state if there is none, as the original's arguments do: libraries rely on it.

    Only where Accelerate is loaded anyway.
    """
    if "accelerate.state" in sys.modules:
        find_state(use_cpu)


def find_device(use_cpu: bool, uses_state: bool = False) -> torch.device:
    """The device of this process: that of Accelerate's state, the CPU, or the accelerator of its rank."""
    if uses_state:
        device: torch.device = find_state(use_cpu).device
        return device
    if use_cpu or read_flag("ACCELERATE_USE_CPU"):
        return torch.device("cpu")
    kind = find_accelerator()
    if kind is None:
        return torch.device(os.environ.get("ACCELERATE_TORCH_DEVICE", "cpu"))
    return torch.device(kind) if kind == "mps" else torch.device(kind, find_local_process_index())


def find_mixed_precision(fp16: bool, bf16: bool) -> str:
    """The precision that the settings choose, else `accelerate launch`."""
    if fp16 or bf16:
        return "fp16" if fp16 else "bf16"
    return os.environ.get("ACCELERATE_MIXED_PRECISION", "no")


def has_bf16(device: torch.device) -> bool:
    """Whether `device` computes in bfloat16."""
    if device.type in ("cpu", "hpu"):
        return True
    if device.type == "mps":
        return torch.backends.mps.is_macos_or_newer(14, 0)
    return bool(getattr(torch, device.type).is_bf16_supported())


def has_tf32(device: torch.device) -> bool:
    """Whether `device` is a GPU with TF32: Ampere or newer."""
    return (
        device.type == "cuda"
        and torch.version.cuda is not None
        and torch.cuda.get_device_capability(device)[0] >= 8
    )


def apply_tf32(args: TrainingArguments) -> None:
    """Set TF32 for the whole process if `tf32` is set, or if a compiled run would be slow without it."""
    wanted = True if args.tf32 is None and args.torch_compile and not args.fp16 else args.tf32
    if wanted is None or args.use_cpu or not has_tf32(args.device):
        return
    torch.backends.cuda.matmul.allow_tf32 = wanted
    torch.backends.cudnn.allow_tf32 = wanted


def find_log_level(name: str) -> int:
    """The number of a level's name; "passive" is the level that the application has set."""
    if name in log_levels:
        return log_levels[name]
    own = logging.getLogger("footplate")
    if not own.level and "transformers" in sys.modules:
        # scripts set transformers' level, and then ask the arguments for it
        return logging.getLogger("transformers").level or own.getEffectiveLevel()
    return own.getEffectiveLevel()


def apply_log_level(args: TrainingArguments) -> None:
    """Show footplate's log at the level of this process; "passive" leaves the level to the application.

    Ranks that log nothing show errors alone where "warning" is their level, the default: the main process
    has given the same warnings already.
    """
    install_voice()
    level = args.log_level if args.should_log else args.log_level_replica
    if not args.should_log and level == "warning":
        level = "error"
    if level in log_levels:
        logging.getLogger("footplate").setLevel(log_levels[level])


def plan_warmup_steps(warmup_steps: float, num_training_steps: int) -> int:
    """`warmup_steps` as whole updates; below 1 it is a share of the run, rounded up."""
    return int(warmup_steps) if warmup_steps >= 1 else math.ceil(num_training_steps * warmup_steps)


@contextmanager
def main_process_first(index: int, work: str) -> Iterator[None]:
    """Let process 0 run the block before the others."""
    if find_world_size() == 1:
        yield
        return
    if index != 0:
        logger.debug("Waiting for the main process: %s", work)
        comm.barrier()
    try:
        yield
    finally:
        if index == 0:
            comm.barrier()  # also after an error, or the others would wait forever
