"""Settings that hold for the whole suite."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Two busy threads on a small shared machine wait on each other, and reductions change their order.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))  # so that tests can import `tiny`


def _avoid_forbidden_instructions() -> None:
    """Keep torch from matrix tiles (AMX) where a virtual machine names them and forbids them.

    There, any product of bfloat16 matrices ends the process, footplate or not. Processes that tests start
    inherit the setting; it must be made before torch is imported.
    """
    cpu = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu.is_file() or "amx_tile" not in cpu.read_text():
        return
    product = "import torch; m = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(m, m)"
    if subprocess.run([sys.executable, "-c", product], capture_output=True).returncode < 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"


_avoid_forbidden_instructions()

import pytest  # noqa: E402
import torch  # noqa: E402 (after the settings above)

torch.set_num_threads(1)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-n auto`: a worker for every core this process may use; none for single files and for `-k`.

    A worker takes longer to start than a few tests take to run. xdist itself would count the cores of the
    machine, of which a container or a batch system may give this process only some.
    """
    is_small = config.option.keyword or all(Path(path.split("::")[0]).is_file() for path in config.args)
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
    num_cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return 0 if is_small or num_cores == 1 else num_cores


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a name with an address in it, which differs from worker to worker: none of them would run."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: an address is no name for a test; give `ids`.")


@pytest.fixture(autouse=True)
def keep_log_level() -> Iterator[None]:
    """Undo what arguments with a `log_level`, or of a rank that logs nothing, set for the whole process."""
    logger = logging.getLogger("footplate")
    level = logger.level
    yield
    logger.setLevel(level)
