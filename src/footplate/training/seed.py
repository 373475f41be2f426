"""Seeds for every generator a run draws from."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed `random`, numpy and torch on every device.

    Args:
        seed: The one number the whole run starts from.
        deterministic: Also choose deterministic kernels, which may be slower.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # seeds all accelerators too
    if deterministic:
        torch.use_deterministic_algorithms(True)


def enable_full_determinism(seed: int, warn_only: bool = False) -> None:
    """Seed everything and refuse kernels whose result may differ from run to run."""
    set_seed(seed)
    # cuBLAS reads these when it first runs, so they must stand before the first kernel does.
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    os.environ["FLASH_ATTENTION_DETERMINISTIC"] = "1"
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def seed_run(seed: int, full_determinism: bool) -> None:
    """Seed a run the way its arguments ask for."""
    (enable_full_determinism if full_determinism else set_seed)(seed)


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Whatever is drawn inside, the generators go on afterwards as if nothing had been."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
