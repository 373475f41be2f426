"""Whether what a tracker uploads, and where it writes, stays inside the folder of the run."""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def stays_inside(folder: str | os.PathLike[str], home: str | os.PathLike[str]) -> bool:
    """Whether nothing in a folder leads out of the run's folder; else warn that it is not uploaded."""
    inside = Path(home).resolve()
    for path in (Path(folder), *Path(folder).rglob("*")):
        if path.is_symlink() and not path.resolve().is_relative_to(inside):
            logger.warning(
                "%s is not uploaded: %s is a link that leads out of %s. Put a copy in its place.",
                *(folder, path, home),
            )
            return False
    return True


def is_within(folder: str | os.PathLike[str], *homes: str | os.PathLike[str] | None) -> bool:
    """Whether a folder that a ledger names is in one of these: a ledger of somebody else names any folder."""
    found = Path(folder).resolve()
    is_inside = any(found.is_relative_to(Path(home).resolve()) for home in homes if home is not None)
    if not is_inside:
        logger.warning("%s is not continued: it is not where this run writes. A new one begins.", folder)
    return is_inside
