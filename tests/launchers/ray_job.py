"""Runs job.py inside two workers of Ray Train, on this machine alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)


def work(config: dict[str, Any]) -> None:
    """One worker: Ray Train has joined the workers already."""
    sys.path.insert(0, HERE)
    import job

    job.main(Path(config["folder"]))


def main(folder: str, own_files: str) -> None:
    """Start Ray, train, end Ray; its own files go into a folder with a short name, as its sockets need it."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=own_files,
        object_store_memory=100 * 1024**2,
    )
    try:
        TorchTrainer(
            work,
            train_loop_config={"folder": folder},
            scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
            run_config=RunConfig(storage_path=os.path.join(folder, "storage"), name="job"),
        ).fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
