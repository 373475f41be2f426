"""Files that are complete whenever they are read."""

from __future__ import annotations

import os

from footplate.disk import replacing


def save_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write a file in one step: a reader sees the old text or the new text, never a part."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
