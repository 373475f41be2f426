"""What a checkpoint folder holds: each `save_` beside its `load_`."""

from footplate.checkpoint.arguments import load_arguments, save_arguments
from footplate.checkpoint.optimizer import (
    load_optimizer,
    load_scaler,
    load_schedule,
    save_optimizer,
    save_scaler,
    save_schedule,
)
from footplate.checkpoint.rng import load_rng, save_rng
from footplate.checkpoint.rotation import (
    find_checkpoint_folders,
    find_checkpoints,
    find_last_checkpoint,
    get_last_checkpoint,
    rotate_checkpoints,
)
from footplate.checkpoint.seal import (
    Verdict,
    check_free_space,
    discard,
    is_whole,
    seal,
    staging_folder,
    verify_checkpoint,
)
from footplate.checkpoint.snapshot import HostCopy, num_bytes
from footplate.checkpoint.weights import LoadResult, load_weights, save_weights
from footplate.checkpoint.writer import BackgroundWriter

__all__ = [
    "BackgroundWriter",
    "HostCopy",
    "LoadResult",
    "Verdict",
    "check_free_space",
    "discard",
    "find_checkpoint_folders",
    "find_checkpoints",
    "find_last_checkpoint",
    "get_last_checkpoint",
    "is_whole",
    "load_arguments",
    "load_optimizer",
    "load_rng",
    "load_scaler",
    "load_schedule",
    "load_weights",
    "num_bytes",
    "rotate_checkpoints",
    "save_arguments",
    "save_optimizer",
    "save_rng",
    "save_scaler",
    "save_schedule",
    "save_weights",
    "seal",
    "staging_folder",
    "verify_checkpoint",
]
