"""Where names are defined, so that asking for one loads no other."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def find_homes() -> dict[str, str]:
    """The module of each public name: what `public.py` imports, read and not run.

    Empty where an installation has no sources: then all of them are loaded together.
    """
    try:
        tree = ast.parse(Path(__file__).with_name("public.py").read_text(encoding="utf-8"))
    except OSError:
        return {}
    return {
        alias.name: entry.module
        for entry in ast.walk(tree)
        if isinstance(entry, ast.ImportFrom) and entry.module is not None
        for alias in entry.names
        if entry.module.startswith("footplate.")
    }


def load_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: it loads some of its names when they are first asked for.

    Args:
        package: Its `__name__`.
        homes: The module of each of these names.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, found)  # the next look-up does not come here
        return found

    return load
