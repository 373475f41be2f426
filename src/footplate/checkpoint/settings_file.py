"""Reads the settings of a checkpoint without torch, which takes seconds to import."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

from footplate.disk import StrPath, open_regular

SETTINGS_NAME = "training_args.bin"
MAX_BYTES = 4_000_000  # settings have a few thousand


class _PlainReader(pickle.Unpickler):
    """Reads numbers, text, lists and dictionaries; a name of any class or function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")


def read_settings(folder: StrPath) -> dict[str, Any]:
    """The settings that a checkpoint was saved with; raises if there are none or they cannot be read."""
    path = Path(folder, SETTINGS_NAME)
    try:
        found = _PlainReader(io.BytesIO(_read_pickle(path))).load()
        if isinstance(found, dict):
            return found
    except OSError:
        raise
    except Exception:  # a crafted pickle raises almost anything
        pass  # written by another program, or damaged: the reader that knows torch says which
    from footplate.checkpoint.arguments import load_arguments

    return load_arguments(folder)


def _read_pickle(path: Path) -> bytes:
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.filename.endswith("/data.pkl"):
                if entry.file_size > MAX_BYTES:
                    raise ValueError(f"{path} holds {entry.file_size} bytes of settings")
                with archive.open(entry) as content:
                    return content.read(MAX_BYTES)
    raise ValueError(f"{path} holds no settings")
