"""One checkpoint, from captured state to a sealed folder."""

from __future__ import annotations

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
    """What a checkpoint holds besides the model, taken at one moment of the run."""

    trainer_state: str
    optimizer: Mapping[str, Any] | None = None
    schedule: Mapping[str, Any] | None = None
    scaler: Mapping[str, Any] | None = None
    rng: dict[str, Any] | None = None
    loader: Mapping[str, Any] | None = None
    num_bytes: int = field(default=0, repr=False)  # of the tensors in it and of the model

    def save(self, folder: Path) -> None:
        """Write all of it."""
        named = {OPTIMIZER_NAME: self.optimizer, SCHEDULER_NAME: self.schedule, SCALER_NAME: self.scaler}
        for name, values in {**named, LOADER_NAME: self.loader}.items():
            if values is not None:
                save_plain(values, folder / name)
        if self.rng is not None:
            save_rng(folder, self.rng)
        (folder / TRAINER_STATE_NAME).write_text(self.trainer_state, encoding="utf-8")


def publish_checkpoint(final: Folder, save_model: Callable[[str], None], contents: Contents) -> None:
    """Write a checkpoint beside its place and seal it; on any error nothing of it remains.

    Args:
        final: The folder to publish.
        save_model: Writes the model and what belongs to it into the folder it is given.
        contents: The rest.
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
    """Refuse to load from a folder that is not a whole checkpoint."""
    verdict = verify_checkpoint(folder)
    if not verdict.is_intact:
        raise ValueError(
            f"{folder} is not an intact checkpoint: {verdict.reason}. To resume, use "
            "resume_from_checkpoint=True for the newest intact one of output_dir."
        )


def find_state(loader: Any) -> dict[str, Any] | None:
    """Where a loader is, if it can say."""
    try:
        state: dict[str, Any] = loader.state_dict()
    except AttributeError:  # none, or one that accelerate offers for a loader that has none
        return None
    return state


def load_loader_state(folder: Folder) -> dict[str, Any] | None:
    """Where the loader of a checkpoint was; None where that was not kept."""
    path = Path(folder, LOADER_NAME)
    state: dict[str, Any] | None = load_plain(path) if path.is_file() else None
    return state
