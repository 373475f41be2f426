"""A recipe as a script that the user owns."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from footplate.tasks.common.catalog import find_recipe
from footplate.tasks.common.parsing import build_parser, describe_flags, parse_flags
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Recipe
from footplate.tasks.common.running import run_task

END = """

if __name__ == "__main__":
    main({name})
"""


def write_script(task: str, path: Path) -> str:
    """Write the recipe of a task as a script; returns flags to try it with."""
    kind = find_recipe(task)
    source = inspect.getsource(sys.modules[kind.__module__])
    lines = source.rstrip("\n").splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("from footplate.tasks"))
    lines.insert(place, "from footplate.tasks.common.scripts import main")
    path.write_text("\n".join(lines) + "\n" + END.format(name=kind.__name__), encoding="utf-8")
    example: str = kind.example
    return example


def main(kind: type[Recipe], words: Sequence[str] | None = None) -> dict[str, float]:
    """Run a recipe with the flags of the command line.

    Args:
        kind: The recipe.
        words: The flags; default: those of this process.
    """
    given = list(sys.argv[1:] if words is None else words)
    name = Path(sys.argv[0]).name
    if "--help-all" in given:
        print(build_parser(kind).format_help())
        return {}
    if {"-h", "--help"} & set(given):
        print(describe_flags(kind, name))
        return {}
    try:
        return run_task(parse_flags(kind, given), name)
    except TaskError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
