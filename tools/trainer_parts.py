"""Find the classes that the Trainer is made of, and what they write, declare and call, without an import."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

Package = dict[str, str]  # path inside `src` to text
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Part(NamedTuple):
    """One of the classes that the Trainer is made of."""

    file: str
    name: str
    methods: list[Function]
    declared: dict[str, str]  # names without a value or a body, and their types; a method's is "stub"


def docstring_lines(node: ast.AST) -> set[int]:
    """The lines of the docstring that belongs to `node` itself."""
    if not isinstance(node, ast.Module | ast.ClassDef | Function) or ast.get_docstring(node) is None:
        return set()
    return set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))


# ---- reading ----


def is_stub(method: Function) -> bool:
    """Whether a method has a signature and no body."""
    body = [ast.unparse(line) for line in method.body if line.lineno not in docstring_lines(method)]
    is_overload = any("overload" in ast.unparse(decorator) for decorator in method.decorator_list)
    return not is_overload and all(line in ("...", "pass", "raise NotImplementedError") for line in body)


def read_part(file: str, node: ast.ClassDef) -> Part:
    """The methods and declarations of a class, also those inside `if TYPE_CHECKING`."""
    lines = [inner for line in node.body for inner in (line.body if isinstance(line, ast.If) else [line])]
    methods = [line for line in lines if isinstance(line, Function)]
    declared = {method.name: "stub" for method in methods if is_stub(method)}
    for line in lines:
        if isinstance(line, ast.AnnAssign) and line.value is None:
            declared[ast.unparse(line.target)] = ast.unparse(line.annotation)
    return Part(file, node.name, methods, declared)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """The dotted path of each name that a module imports."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            home = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
            found.update({alias.asname or alias.name: home + alias.name for alias in node.names})
    return found


def find_parts(package: Package, path: str = "footplate.trainer.Trainer") -> list[Part]:
    """The class at a dotted path, then its bases inside the package, in the order Python looks them up."""
    module, _, name = path.rpartition(".")
    file = module.replace(".", "/") + ".py"
    file = file if file in package else file.replace(".py", "/__init__.py")
    if file not in package:
        raise ValueError(
            f"{path} is part of the Trainer but {file} is not there. Import it by its full path."
        )
    tree = ast.parse(package[file])
    names = imported_names(tree)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return find_parts(package, names[name])  # a package imports it to give it a shorter path
    names.update({local: f"{module}.{local}" for local in classes})
    parts = {(file, name): read_part(file, classes[name])}
    for base in classes[name].bases:
        head, dot, rest = ast.unparse(base).split("[")[0].partition(".")
        target = names.get(head, "") + dot + rest
        for part in find_parts(package, target) if target.startswith(("footplate.", ".")) else ():
            parts.pop((part.file, part.name), None)  # a base that two parts share comes after both
            parts[part.file, part.name] = part
    return list(parts.values())


# ---- counting ----


def uses_of_self(part: Part, *contexts: type[ast.expr_context]) -> Iterator[tuple[str, str]]:
    """Each use of a `self.x` in one of these ways (`ast.Store`, `ast.Load`): the method, and x."""
    for method in part.methods:
        for node in ast.walk(method):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, contexts):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                yield f"{part.name}.{method.name}", node.attr


def find_writers(parts: list[Part]) -> dict[str, set[str]]:
    """The attributes that are written or deleted, each with the methods that do so."""
    found: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for method, name in uses_of_self(part, ast.Store, ast.Del):
            found[name].add(method)
    return found


def find_declarations(parts: list[Part]) -> dict[str, str]:
    """What a part declares for another to define, with its type; nothing if one file alone declares."""
    bodies = {m.name for part in parts for m in part.methods if part.declared.get(m.name) != "stub"}
    found = {
        (part.file, name): kind
        for part in parts
        for name, kind in part.declared.items()
        if kind != "stub" or name in bodies
    }
    has_one_home = len({file for file, _ in found}) == 1
    return {} if has_one_home else {f"{file}: {name}": kind for (file, name), kind in found.items()}


def find_unseen_calls(package: Package, parts: list[Part]) -> list[str]:
    """Uses of a method that is known to the caller only by a type that says nothing of its parameters."""
    methods = {method.name for part in parts for method in part.methods}
    found = []
    for part in parts:
        known: dict[str, str] = {}
        for base in reversed(find_parts(package, f"{part.file[:-3]}/{part.name}".replace("/", "."))):
            known.update({method.name: "method" for method in base.methods} | base.declared)
        blind = {name for name, kind in known.items() if kind.startswith(("Any", "Callable[..."))} & methods
        found += [f"{user} uses {name}" for user, name in uses_of_self(part, ast.Load) if name in blind]
    return found
