"""Checkpoints that somebody names, or that are the best: used even if they were changed on purpose."""

from __future__ import annotations

import logging
from pathlib import Path

from footplate.checkpoint.seal import check_foreign, find_differences, read_manifest, verify_checkpoint
from footplate.disk import StrPath as Folder

logger = logging.getLogger(__name__)


def check_usable(folder: Folder, needs_state: bool = True) -> None:
    """Raise unless a checkpoint can be used; warn, and say what differs, if it is not as it was sealed.

    People re-shard weights, delete `optimizer.pt` to save room or edit the state. So a folder that differs
    from its manifest gets the check of one that has none.

    Args:
        folder: The checkpoint.
        needs_state: Whether more than its weights will be read.
    """
    verdict = verify_checkpoint(folder)
    if verdict.is_intact:
        return
    path = Path(folder)
    try:
        check_foreign(path, needs_state)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder} is not an intact checkpoint: {error}. To resume, use "
            "resume_from_checkpoint=True for the newest intact one of output_dir."
        ) from error
    if verdict.has_manifest:
        logger.warning(
            "%s is not as it was sealed: %s. It is used all the same, since it was asked for by its name or "
            "is the best. If you did not change it, it is damaged: use another one.",
            folder,
            "; ".join(_describe_differences(path)) or verdict.reason,
        )


def _describe_differences(folder: Path) -> list[str]:
    try:
        return list(find_differences(folder, read_manifest(folder)))
    except (OSError, ValueError) as error:
        return [str(error)]
