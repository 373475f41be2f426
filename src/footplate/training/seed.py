"""Seeds for every generator a run draws from."""

from __future__ import annotations

import os

import torch

from footplate import rng


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed `random`, numpy and torch on every device.

    Args:
        seed: The one number the whole run starts from.
        deterministic: Also choose deterministic kernels, which may be slower.
    """
    rng.seed_all(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def enable_full_determinism(seed: int, warn_only: bool = False) -> None:
    """Seed everything and refuse kernels whose result may differ from run to run."""
    set_seed(seed)
    # cuBLAS reads these when its first kernel runs, so they must be set before
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    os.environ["FLASH_ATTENTION_DETERMINISTIC"] = "1"
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def seed_run(seed: int, full_determinism: bool) -> None:
    """Seed a run as its arguments ask."""
    (enable_full_determinism if full_determinism else set_seed)(seed)
