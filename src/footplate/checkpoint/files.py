"""Reading and writing `torch.save` files without ever running code from them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from footplate.comm import map_nested

Folder = str | os.PathLike[str]


def save_plain(values: Any, path: Path) -> None:
    """Write tensors and plain values; numpy scalars become Python numbers, for a safe reader refuses them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(map_nested(lambda leaf: leaf.item() if isinstance(leaf, np.generic) else leaf, values), path)


def load_plain(path: Path) -> Any:
    """Read tensors, arrays and plain values to the host; anything that would run code is refused."""
    try:
        with torch.serialization.safe_globals(_numpy_names()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} was not read: it is damaged, or holds Python objects beyond tensors and plain values, "
            f"and reading those could run code. {_first_line(error)}"
        ) from error
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"{path} cannot be read; it may be cut short. {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _numpy_names() -> list[Any]:
    """What a pickled array of numbers needs, under the names that numpy 1 and numpy 2 write."""
    rebuild = np.empty(0).__reduce__()[0]
    names = [(rebuild, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    return [*names, np.ndarray, np.dtype, type(np.dtype(np.uint32))]
