"""Checkpoint folders: writing, sealing, finding, verifying and loading them."""

from typing import TYPE_CHECKING, Any

from footplate.checkpoint.rotation import find_checkpoint_folders, find_last_checkpoint, get_last_checkpoint
from footplate.checkpoint.seal import seal, staging_folder, verify_checkpoint

if TYPE_CHECKING:
    from footplate.checkpoint.arguments import load_arguments

__all__ = [
    "find_checkpoint_folders",
    "find_last_checkpoint",
    "get_last_checkpoint",
    "load_arguments",
    "seal",
    "staging_folder",
    "verify_checkpoint",
]


def __getattr__(name: str) -> Any:
    """`load_arguments`, loaded when asked for: it needs torch, and listing checkpoints does not."""
    if name == "load_arguments":
        from footplate.checkpoint.arguments import load_arguments

        return load_arguments
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
