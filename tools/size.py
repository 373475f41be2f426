"""Print how large the source is and how much the Trainer holds, beside where it started and what is allowed.

It needs only Python: `python3 tools/size.py [--source CHECKOUT] [--names]`. Code lines leave out blank lines,
docstrings and comments. The length of a function leaves out its docstring; that of a file counts every line.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

from trainer_parts import (
    Function,
    Package,
    docstring_lines,
    find_declarations,
    find_parts,
    find_unseen_calls,
    find_writers,
)

LONG_FUNCTION, LONG_FILE = 60, 600
LIMITS: dict[str, tuple[float, int | None]] = {  # figure: where it started, the most that is allowed
    "code lines": (18461, None),  # it grows with what footplate can do; say where the lines went
    "files": (178, None),
    "comments per 100 code lines": (3.5, None),
    "functions over 60 lines": (0, 0),
    "Trainer: attributes written": (80, 50),
    "Trainer: attributes written in several methods": (40, 12),
    "Trainer: methods": (147, 133),  # 110, names libraries override, plan, check, find, profile, search
    "Trainer: private methods": (101, None),
    "Trainer: forward declarations": (79, 0),
    "Trainer: forward declarations typed Any": (37, 0),
    "Trainer: calls the type checker cannot see": (30, 0),
    "Trainer: files over 600 lines": (1, 0),
}


def read_package(checkout: Path) -> Package:
    """The text of every file of the package, by its path inside `src`."""
    source = checkout / "src"
    files = sorted((source / "footplate").rglob("*.py"))
    return {file.relative_to(source).as_posix(): file.read_text(encoding="utf-8") for file in files}


def find_long_functions(nodes: list[ast.AST]) -> list[str]:
    """The functions among `nodes` that are too long, with their length."""
    functions = [node for node in nodes if isinstance(node, Function)]
    lengths = [(node.end_lineno or 0) - node.lineno + 1 - len(docstring_lines(node)) for node in functions]
    pairs = zip(functions, lengths, strict=True)
    return [f"{function.name}: {length}" for function, length in pairs if length > LONG_FUNCTION]


def count_lines(text: str) -> Counter[str]:
    """Lines of code, docstrings and comments of a file, and how many of its functions are long."""
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {line for node in nodes for line in docstring_lines(node)}
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code: set[int] = set()
    num_comments = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            num_comments += 1
        elif token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    counts = Counter({"code": len(code - docstrings), "files": 1, "docstrings": len(docstrings)})
    counts["comments"] = num_comments
    counts["functions > 60"] = len(find_long_functions(nodes))
    counts["files > 600"] = int(len(text.splitlines()) > LONG_FILE)
    return counts


def count_folders(package: Package) -> dict[str, Counter[str]]:
    """The counts of each folder of the package, and of all of it under "total"."""
    folders: dict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for path, text in package.items():
        _, *parents, _ = path.split("/")
        counts = count_lines(text)
        folders[f"{parents[0]}/" if parents else "(top)"].update(counts)
        total.update(counts)
    return {**folders, "total": total}


def measure(package: Package, total: Counter[str]) -> dict[str, float]:
    """The figures that `LIMITS` names; `total` is what `count_folders` found."""
    parts = find_parts(package)
    writers, declarations = find_writers(parts), find_declarations(parts)
    methods = {method.name for part in parts for method in part.methods}
    files = {part.file for part in parts} | {file for file in package if "footplate/trainer/" in file}
    return {
        "code lines": total["code"],
        "files": total["files"],
        "comments per 100 code lines": round(100 * total["comments"] / total["code"], 1),
        "functions over 60 lines": total["functions > 60"],
        "Trainer: attributes written": len(writers),
        "Trainer: attributes written in several methods": sum(len(names) > 1 for names in writers.values()),
        "Trainer: methods": len(methods),
        "Trainer: private methods": sum(name.startswith("_") for name in methods),
        "Trainer: forward declarations": len(declarations),
        "Trainer: forward declarations typed Any": sum(kind == "Any" for kind in declarations.values()),
        "Trainer: calls the type checker cannot see": len(find_unseen_calls(package, parts)),
        "Trainer: files over 600 lines": sum(count_lines(package[file])["files > 600"] for file in files),
    }


def print_folders(folders: dict[str, Counter[str]]) -> None:
    columns = list(folders["total"])
    print(f"{'src/footplate':<15}", *(f"{name:>14}" for name in [*columns, "per 100 code"]))
    for folder, counts in folders.items():
        rate = 100 * counts["comments"] / max(counts["code"], 1)
        print(f"{folder:<15}", *(f"{counts[name]:>14,}" for name in columns), f"{rate:>14.1f}")


def print_figures(figures: dict[str, float]) -> None:
    print(f"{'':<48}{'start':>8}{'now':>8}{'limit':>8}")
    for name, now in figures.items():
        start, limit = LIMITS[name]
        verdict = "  over the limit" if limit is not None and now > limit else ""
        print(f"{name:<48}{start:>8,}{now:>8,}{'-' if limit is None else f'{limit:,}':>8}{verdict}")


def print_names(package: Package) -> None:
    """What the figures count, one per line, for those who want to bring them down."""
    for file, text in package.items():
        for function in find_long_functions(list(ast.walk(ast.parse(text)))):
            print(f"long      {file}: {function}")
    parts = find_parts(package)
    for name, methods in sorted(find_writers(parts).items()):
        print(f"writes    {name}: {', '.join(sorted(methods))}")
    for place, kind in find_declarations(parts).items():
        print(f"declares  {place}: {kind}")
    for use in find_unseen_calls(package, parts):
        print(f"unseen    {use}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how large the source is, beside its limits.")
    checkout = Path(__file__).resolve().parent.parent
    parser.add_argument("--source", type=Path, default=checkout, metavar="CHECKOUT", help="another checkout")
    parser.add_argument(
        "--names", action="store_true", help="list what is counted: long functions, and of the Trainer"
    )
    options = parser.parse_args()
    package = read_package(options.source)
    folders = count_folders(package)
    print_folders(folders)
    print()
    print_figures(measure(package, folders["total"]))
    if options.names:
        print()
        print_names(package)


if __name__ == "__main__":
    main()
