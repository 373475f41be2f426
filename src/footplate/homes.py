"""Where each public name is defined, so that asking for one loads no other."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path


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
