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
    find_checkpoints,
    find_last_checkpoint,
    get_last_checkpoint,
    rotate_checkpoints,
)
from footplate.checkpoint.weights import LoadResult, load_weights, save_weights

__all__ = [
    "LoadResult",
    "find_checkpoints",
    "find_last_checkpoint",
    "get_last_checkpoint",
    "load_arguments",
    "load_optimizer",
    "load_rng",
    "load_scaler",
    "load_schedule",
    "load_weights",
    "rotate_checkpoints",
    "save_arguments",
    "save_optimizer",
    "save_rng",
    "save_scaler",
    "save_schedule",
    "save_weights",
]
