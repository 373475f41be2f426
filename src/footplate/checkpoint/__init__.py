"""Checkpoint folders: writing, sealing, finding, verifying and loading them."""

from typing import TYPE_CHECKING

from footplate.checkpoint.rotation import find_checkpoint_folders, find_last_checkpoint, get_last_checkpoint
from footplate.checkpoint.seal import seal, staging_folder, verify_checkpoint
from footplate.homes import load_on_use

if TYPE_CHECKING:
    from footplate.checkpoint.arguments import load_arguments
else:  # it needs torch, and listing checkpoints does not
    __getattr__ = load_on_use(__name__, {"load_arguments": "footplate.checkpoint.arguments"})

__all__ = [
    "find_checkpoint_folders",
    "find_last_checkpoint",
    "get_last_checkpoint",
    "load_arguments",
    "seal",
    "staging_folder",
    "verify_checkpoint",
]
