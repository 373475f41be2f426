"""`footplate drive --check script.py`: what a script uses of the Trainer, found by reading the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import footplate
from footplate import public, takeover
from footplate.arguments.old_names import OLD_NAMES

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Findings:
    """What a script uses, and what of it footplate has."""

    ours: list[str] = field(default_factory=list)  # names that will be footplate's
    originals: list[str] = field(default_factory=list)  # names that stay the original's
    overrides: list[str] = field(default_factory=list)  # methods of footplate's classes that it overrides
    unknown: list[str] = field(default_factory=list)  # what the original has and footplate has not

    def note(self, found: str, kind: str) -> None:
        """Add to one of the lists, once."""
        entries: list[str] = getattr(self, kind)
        if found not in entries:
            entries.append(found)


def check(script: str, is_module: bool) -> int:
    """Print what the script and the modules beside it use; 0 if footplate has all of it, else 1."""
    path = find_source(script, is_module)
    findings = Findings()
    for file in find_local_files(path):
        read_script(ast.parse(file.read_text(encoding="utf-8"), str(file)), findings)
    if not findings.ours + findings.originals:
        print(f"{path} imports nothing of the Trainer of transformers itself; libraries that it imports may.")
        return 0
    print(f"{path}: nothing was run.")
    show("footplate's", findings.ours)
    show("overridden, and reached by footplate", findings.overrides)
    show("the original's, as footplate has none", findings.originals)
    show("not in footplate", findings.unknown)
    return 1 if findings.originals or findings.unknown else 0


def show(heading: str, names: list[str]) -> None:
    """One line for a list that is not empty."""
    if names:
        print(f"  {heading}: {', '.join(names)}")


def find_source(script: str, is_module: bool) -> Path:
    """The file of the script or module."""
    if not is_module:
        path = Path(script)
        return path / "__main__.py" if path.is_dir() else path
    spec = find_spec(script)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{script}.__main__")
    if spec is None or spec.origin is None:
        raise ValueError(f"There is no module {script!r} that could be run.")
    return Path(spec.origin)


def find_local_files(path: Path) -> list[Path]:
    """The script and the files beside it that it imports, directly or not."""
    files = [path]
    for file in files:  # grows while it is read
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            beside = [path.parent / f"{name.replace('.', '/')}.py" for name in names]
            files += [other for other in dict.fromkeys(beside) if other.is_file() and other not in files]
    return files


def read_script(tree: ast.Module, findings: Findings) -> None:
    """Note what one file uses."""
    names = dict(find_imports(tree, findings))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            note_name(dotted(node, names), findings)
    classes = find_classes(tree, names)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in classes:
            read_class(node, classes[node.name], findings)
    read_calls(tree, names, classes, findings)


def find_imports(tree: ast.Module, findings: Findings) -> Iterator[tuple[str, str]]:
    """Local names of what comes from transformers, with their dotted origin."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == takeover.PACKAGE:
                    yield alias.asname or takeover.PACKAGE, alias.name if alias.asname else takeover.PACKAGE
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == takeover.PACKAGE:
            for alias in node.names:
                origin = f"{node.module}.{alias.name}"
                note_name(origin, findings)
                yield alias.asname or alias.name, origin


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """The dotted origin of a name or attribute; empty if it does not come from transformers."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def note_name(origin: str, findings: Findings) -> None:
    """Note a name if it belongs to the Trainer."""
    module, _, name = origin.rpartition(".")
    if module not in takeover.MODULES or name.startswith("_") or f"{module}.{name}" in takeover.MODULES:
        return
    if name in public.__all__:
        findings.note(name, "ours")
    elif name in original_names(module):
        findings.note(name, "originals")


def original_names(module: str) -> set[str]:
    """Classes and functions of the Trainer that a module of transformers gives, without importing it."""
    if module in takeover.PACKAGES:
        return {name for home in takeover.HOMES for name in original_names(home)}
    return {node.name for node in read_module(module).body if isinstance(node, (*Function, ast.ClassDef))}


@cache
def read_module(module: str) -> ast.Module:
    """The source of a module, read only; empty if this version has no such module."""
    try:
        spec = find_spec(module)
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        return ast.Module(body=[], type_ignores=[])
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def find_classes(tree: ast.Module, names: dict[str, str]) -> dict[str, type[Any]]:
    """Classes of the script that are built on a class of footplate's, with that class."""
    found: dict[str, type[Any]] = {}
    for node in ast.walk(tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            kind = found.get(ast.unparse(base)) or our_class(dotted(base, names))
            if kind is not None and isinstance(node, ast.ClassDef):
                found[node.name] = kind
    return found


def our_class(origin: str) -> type[Any] | None:
    """Footplate's class of this name."""
    name = origin.rpartition(".")[2]
    kind = getattr(footplate, name) if origin and name in public.__all__ else None
    return kind if isinstance(kind, type) else None


def read_class(node: ast.ClassDef, kind: type[Any], findings: Findings) -> None:
    """Note the methods that a class overrides, and what it uses of itself that footplate has not."""
    own = {part.name for part in node.body if isinstance(part, Function)}
    for name in sorted(own - {"__init__"}):
        if hasattr(kind, name):
            findings.note(f"{node.name}.{name}", "overrides")
        elif name in original_members(kind):
            findings.note(f"{node.name}.{name} (footplate never calls it)", "unknown")
    assigned = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute) and is_store(part)}
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and ast.unparse(part.value) in ("self", "super()"):
            note_member(part.attr, kind, own | assigned, findings)


def is_store(node: ast.Attribute) -> bool:
    """Whether an attribute is assigned."""
    return isinstance(node.ctx, ast.Store)


def note_member(name: str, kind: type[Any], known: set[str], findings: Findings) -> None:
    """Note a member that the original's class has and footplate's has not."""
    if name not in known and name not in members(kind) and name in original_members(kind):
        findings.note(f"{kind.__name__}.{name}", "unknown")


def members(kind: type[Any]) -> set[str]:
    """Everything that objects of a class have: also what is only declared, or assigned in its methods."""
    declared = {name for base in kind.__mro__ for name in vars(base).get("__annotations__", {})}
    files = {base.__module__ for base in kind.__mro__ if base.__module__.startswith("footplate")}
    assigned = {name for module in files for name in assigned_to_self(read_module(module))}
    return set(dir(kind)) | declared | assigned


def original_members(kind: type[Any]) -> set[str]:
    """Methods and attributes of the original's class of the same name."""
    return {
        member
        for module in takeover.HOMES
        for node in read_module(module).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
        for member in [part.name for part in node.body if isinstance(part, Function)] + assigned_to_self(node)
    }


def assigned_to_self(tree: ast.AST) -> list[str]:
    """The attributes that methods assign to their object."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_store(node)]
    return [node.attr for node in attributes if ast.unparse(node.value) == "self"]


def read_calls(
    tree: ast.Module, names: dict[str, str], classes: dict[str, type[Any]], findings: Findings
) -> None:
    """Note keywords that footplate's classes do not take, and members of trainers that it has not."""
    trainers: dict[str, type[Any]] = {}
    for node in ast.walk(tree):
        call = node.value if isinstance(node, ast.Assign) else node
        if not isinstance(call, ast.Call):
            continue
        is_own = ast.unparse(call.func) in classes  # an own class may take more keywords
        kind = classes.get(ast.unparse(call.func)) or our_class(dotted(call.func, names))
        if kind is None:
            continue
        for keyword in call.keywords if not is_own else ():
            if keyword.arg is not None and keyword.arg not in keywords(kind):
                findings.note(f"{kind.__name__}({keyword.arg}=...)", "unknown")
        if isinstance(node, ast.Assign) and issubclass(kind, footplate.Trainer):
            trainers |= {ast.unparse(target): kind for target in node.targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in trainers and not is_store(node):
            note_member(node.attr, trainers[ast.unparse(node.value)], set(), findings)


def keywords(kind: type[Any]) -> set[str]:
    """The keywords that a class takes, old names of arguments among them."""
    if issubclass(kind, footplate.TrainingArguments):
        return {entry.name for entry in fields(kind)} | set(OLD_NAMES)
    taken = signature(kind).parameters
    return set(taken) | ({"tokenizer"} if issubclass(kind, footplate.Trainer) else set())
