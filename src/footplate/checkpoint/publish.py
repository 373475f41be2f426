"""One checkpoint, from captured state to a sealed folder."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from footplate.checkpoint.files import Folder, load_plain, save_plain
from footplate.checkpoint.optimizer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME
from footplate.checkpoint.rng import save_rng
from footplate.checkpoint.seal import check_free_space, discard, seal, staging_folder, verify_checkpoint
from footplate.state import TRAINER_STATE_NAME

LOADER_NAME = "loader.pt"


@dataclass
class Contents:
    """What a checkpoint holds besides the model, all captured at the same moment of the run."""

    trainer_state: str
    optimizer: Mapping[str, Any] | None = None
    schedule: Mapping[str, Any] | None = None
    scaler: Mapping[str, Any] | None = None
    rng: dict[str, Any] | None = None
    loader: Mapping[str, Any] | None = None
    num_bytes: int = field(default=0, repr=False)  # of all tensors, those of the model included

    def copy_small(self) -> None:
        """Copy the schedule and the scaler: a schedule may change lists, deques and arrays in place."""
        with contextlib.suppress(Exception):  # what cannot be copied cannot be written, and that says why
            self.schedule, self.scaler = copy.deepcopy((self.schedule, self.scaler))

    def save(self, folder: Path) -> None:
        """Write all files."""
        named = {OPTIMIZER_NAME: self.optimizer, SCHEDULER_NAME: self.schedule, SCALER_NAME: self.scaler}
        for name, values in {**named, LOADER_NAME: self.loader}.items():
            if values is not None:
                save_plain(values, folder / name)
        if self.rng is not None:
            save_rng(folder, self.rng)
        (folder / TRAINER_STATE_NAME).write_text(self.trainer_state, encoding="utf-8")


def publish_checkpoint(final: Folder, save_model: Callable[[str], None], contents: Contents) -> None:
    """Write a checkpoint into a hidden folder and seal it; on any error, delete the hidden folder.

    Args:
        final: The folder to publish.
        save_model: Writes the model and its files into the folder it is given.
        contents: Everything else.
    """
    check_free_space(Path(final).parent, contents.num_bytes)
    staging = staging_folder(final)
    try:
        save_model(str(staging))
        contents.save(staging)
        seal(staging, final)
    except BaseException:
        discard(staging)
        raise


def check_intact(folder: Folder) -> None:
    """Raise unless the folder is an intact checkpoint."""
    verdict = verify_checkpoint(folder)
    if not verdict.is_intact:
        raise ValueError(
            f"{folder} is not an intact checkpoint: {verdict.reason}. To resume, use "
            "resume_from_checkpoint=True for the newest intact one of output_dir."
        )


def load_loader_state(folder: Folder) -> dict[str, Any] | None:
    """The state of the loader in a checkpoint; None if it was not saved."""
    path = Path(folder, LOADER_NAME)
    state: dict[str, Any] | None = load_plain(path) if path.is_file() else None
    return state
