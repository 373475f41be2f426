"""Files that are whole at any moment, whoever looks at them."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def save_text(text: str, path: str | os.PathLike[str]) -> None:
    """Put a text in its place in one move: whoever looks sees the old one or the new one, whole."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        with open(draft, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)  # there only where the move failed
