"""One checkpoint, from captured state to a sealed folder."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import shutil
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from footplate.checkpoint.files import Folder, load_plain, save_plain
from footplate.checkpoint.kinds import is_read_by_resume
from footplate.checkpoint.optimizer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME
from footplate.checkpoint.ranks import save_ranks
from footplate.checkpoint.rng import save_rng
from footplate.checkpoint.runs import belongs_to, is_written_by_a_run
from footplate.checkpoint.seal import discard, find_files, read_manifest, seal, staging_folder
from footplate.checkpoint.space import check_free_space, is_out_of_space
from footplate.checkpoint.stream import collecting_hashes
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
    ranks: list[dict[str, Any]] | None = None  # what differs from rank to rank, if there are several
    run_id: str = ""
    began_at: float = 0.0  # when the run began, in seconds since 1970
    num_bytes: int = field(default=0, repr=False)  # of all tensors, those of the model included

    def copy_small(self) -> None:
        """Copy the schedule and the scaler: a schedule may change lists, deques and arrays in place."""
        with contextlib.suppress(Exception):  # what cannot be copied cannot be written, and that says why
            self.schedule, self.scaler = copy.deepcopy((self.schedule, self.scaler))

    def leave_out_states(self) -> None:
        """Leave optimizer, schedule, scaler and generators to the code that writes the model."""
        self.optimizer = self.schedule = self.scaler = self.rng = None

    def save(self, folder: Path) -> None:
        """Write all files."""
        named = {OPTIMIZER_NAME: self.optimizer, SCHEDULER_NAME: self.schedule, SCALER_NAME: self.scaler}
        for name, values in {**named, LOADER_NAME: self.loader}.items():
            if values is not None:
                save_plain(values, folder / name)
        if self.ranks is not None:
            save_ranks(folder, self.ranks)
        elif self.rng is not None:
            save_rng(folder, self.rng)
        (folder / TRAINER_STATE_NAME).write_text(self.trainer_state, encoding="utf-8")


def publish_checkpoint(
    final: Folder,
    save_model: Callable[[str], None],
    contents: Contents,
    make_room: Callable[[], bool] | None = None,
) -> None:
    """Write a checkpoint into a hidden folder and seal it; on any error, delete the hidden folder.

    Args:
        final: The folder to publish.
        save_model: Writes the model and its files into the folder it is given.
        contents: Everything else.
        make_room: Removes something from a full disk, so that another try makes sense; False if it cannot.
    """
    while True:
        staging = None
        try:
            check_free_space(Path(final).parent, contents.num_bytes)
            staging = staging_folder(final)
            with collecting_hashes() as hashes:
                save_model(str(staging))
                contents.save(staging)
            carried = carry_over(Path(final), staging, contents.run_id, contents.began_at)
            seal(staging, final, contents.run_id, carried, hashes)
            return
        except BaseException as error:
            is_full = is_out_of_space(error, Path(final).parent)  # before the next line makes room again
            if staging is not None:
                discard(staging)
            if is_full and make_room is not None and make_room():
                continue
            if is_full and not isinstance(error, OSError):  # torch says "unexpected pos 576 vs 534"
                raise OSError(errno.ENOSPC, "The disk is full", str(final)) from error
            raise


def carry_over(final: Path, staging: Path, run_id: str, began_at: float) -> list[str]:
    """Keep what the folder that will be replaced holds beyond a checkpoint: files somebody put there.

    An override of `_save_checkpoint` may have written them just now, before it called the original. Of a
    checkpoint of another run, only files count that are newer than this run.

    Args:
        final: The folder that will be replaced.
        staging: The folder that will take its place.
        run_id: The run that writes it.
        began_at: When this run began, in seconds since 1970.
    """
    if not final.is_dir() or final.is_symlink():
        return []
    listed: Container[str] = ()
    with contextlib.suppress(OSError, ValueError):
        listed = read_manifest(final).files
    is_checkpoint = is_written_by_a_run(final)
    is_of_another = is_checkpoint and not belongs_to(final, run_id)
    carried = []
    for name in find_files(final):
        source, target = final / name, staging / name
        is_part = name in listed or (is_checkpoint and is_read_by_resume(name))
        is_older = is_of_another and source.stat().st_mtime < began_at
        if is_part or is_older or os.path.lexists(target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)  # takes no room
        except OSError:
            shutil.copy2(source, target)
        carried.append(name)
    return carried


def load_loader_state(folder: Folder) -> dict[str, Any] | None:
    """The state of the loader in a checkpoint; None if it was not saved."""
    path = Path(folder, LOADER_NAME)
    state: dict[str, Any] | None = load_plain(path) if path.is_file() else None
    return state
