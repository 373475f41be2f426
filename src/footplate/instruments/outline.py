"""The modules of a model as lines of a tree, with equal blocks folded into one line."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

MAX_LINES = 60
MAX_NAME = 80
FIELDS = (
    *(
        "depth",
        "name",
        "kind",
        "copies",
        "parameters",
        "trainable",
        "num_bytes",
        "dtype",
        "tied",
        "num_below",
    ),
)
_HOLDERS = ("ModuleDict", "ModuleList", "ParameterDict", "ParameterList")
_FEW_RUNS = 8  # up to so many runs of equal blocks, their order is worth more than a short list


class ModuleLine(NamedTuple):
    """One line of the tree: a module, or several equal ones; its numbers are those of all of them together.

    Args:
        name: As its parent calls it; "0 ... 11" for several.
        path: Of the first one, as `get_submodule` takes it.
        depth: How many modules it is inside of; 0 for the model itself.
        kind: The name of its class.
        copies: How many equal modules this line stands for.
        parameters: Numbers in it that were not counted in an earlier line.
        trainable: Those of them that training changes.
        num_bytes: The memory of all of them.
        dtype: Their type; "mixed" if there are several, "" without any.
        tied: What it shares with an earlier line: pairs of its own name and the other's.
        num_below: Modules inside it that have no line of their own.
    """

    name: str
    path: str
    depth: int
    kind: str
    copies: int
    parameters: int
    trainable: int
    num_bytes: int
    dtype: str
    tied: tuple[tuple[str, str], ...] = ()
    num_below: int = 0

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {**self._asdict(), "tied": [list(pair) for pair in self.tied]}

    def to_list(self) -> list[Any]:
        """What a journal keeps, in a few bytes: `FIELDS`, with names cut to a limit."""
        named = {
            "name": cut(self.name),
            "kind": cut(self.kind),
            "tied": cut(self.tied[0][1] if self.tied else ""),
        }
        return [named.get(name, getattr(self, name)) for name in FIELDS]


class Outline:
    """What a model consists of.

    A parameter counts where it is met first; where it is met again it is only named. Each module is looked at
    once, so that thousands of them take some tens of milliseconds.

    Args:
        model: The model; it may be on the meta device, quantised, or a ScriptModule.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places: dict[int, str] = {}  # of parameters and modules: where they were met first
        self._held: list[
            Any
        ] = []  # some modules make their parameters anew when asked: an id must stay taken
        self._keys: dict[Any, int] = {}  # equal modules have the same number
        self.buffers = self.buffer_bytes = 0
        self.bytes_by_dtype: Counter[str] = Counter()
        self.trained_bytes = 0
        self.has_meta = self.has_lazy = False
        self.root = self._read("", model)

    @property
    def tied(self) -> list[tuple[str, str]]:
        """All parameters and modules that are shared: the second name, and the first."""
        return [pair for node in self.root.walk() for pair in node.tied]

    def lines(self, depth: int | None = None, limit: int = MAX_LINES) -> list[ModuleLine]:
        """The tree as lines, the model itself first.

        Args:
            depth: How deep to go; default: as deep as `limit` lines allow.
            limit: The most lines.
        """
        found = list(_lines_of(self.root, self.root.name, 0, 1))
        counts = Counter(line.depth for line in found)
        if depth is None:
            depth, total = 1, counts[0] + counts[1]
            while counts[depth + 1] and total + counts[depth + 1] <= limit:
                depth += 1
                total += counts[depth]
        return _close([line for line in found if line.depth <= depth], depth, limit)

    def to_note(self) -> dict[str, Any]:
        """What a journal keeps of it: at most `MAX_LINES` lines and the totals."""
        return {
            "model": cut(self.root.kind),
            "lines": [line.to_list() for line in self.lines()],
            "num_modules": self.root.num_modules,
            "parameters": self.root.parameters,
            "trainable": self.root.trainable,
            "weight_bytes": self.root.num_bytes,
            "buffer_bytes": self.buffer_bytes,
            "gradient_bytes": self.trained_bytes,
            "tied": [[cut(own), cut(other)] for own, other in self.tied[:3]],
            "num_tied": len(self.tied),
        }

    # ---- reading ----

    def _read(self, path: str, module: nn.Module) -> Node:
        kind = str(getattr(module, "original_name", None) or type(module).__name__)
        node = Node(path.rpartition(".")[2] if path else kind, path, kind)
        self._places[id(module)] = path
        self._held.append(module)
        own: list[Any] = []
        for name, parameter in module.named_parameters(recurse=False):
            own.append((name, tuple(parameter.shape) if not is_lazy(parameter) else None, parameter.dtype))
            own.append(self._count(node, name, parameter))
        for name, buffer in module.named_buffers(recurse=False):
            own.append((name, None if is_lazy(buffer) else tuple(buffer.shape), buffer.dtype))
            self._count_buffer(buffer)
        for name, child in module.named_children():
            child_path = f"{path}.{name}" if path else name
            known = self._places.get(id(child))
            if known is not None:
                node.tied.append((child_path, known or "the model"))
                own.append((name, known))
                continue
            inner = self._read(child_path, child)
            node.children.append(inner)
            node.add(inner)
        own.append((kind, *(child.key for child in node.children)))
        node.key = self._keys.setdefault(tuple(own), len(self._keys))
        return node

    def _count(self, node: Node, name: str, parameter: torch.Tensor) -> Any:
        """Add a parameter to its module; what tells it apart from others, for the key."""
        path = f"{node.path}.{name}" if node.path else name
        known = self._places.get(id(parameter))
        if known is not None:
            node.tied.append((path, known))
            return known
        self._places[id(parameter)] = path
        self._held.append(parameter)
        if is_lazy(parameter):
            self.has_lazy = True
            return None
        self.has_meta = self.has_meta or parameter.is_meta
        count, num_bytes, dtype = count_values(parameter), parameter.nbytes, name_of(parameter)
        node.parameters += count
        node.num_bytes += num_bytes
        node.dtypes.add(dtype)
        self.bytes_by_dtype[dtype] += num_bytes
        if parameter.requires_grad:
            node.trainable += count
            self.trained_bytes += num_bytes
        return parameter.requires_grad

    def _count_buffer(self, buffer: torch.Tensor) -> None:
        if is_lazy(buffer) or id(buffer) in self._places:
            return
        self._places[id(buffer)] = ""
        self._held.append(buffer)
        self.buffers += buffer.numel()
        self.buffer_bytes += buffer.nbytes


class Node:
    """A module, with what it and those inside it hold.

    Args:
        name: As its parent calls it.
        path: From the model.
        kind: The name of its class.
    """

    def __init__(self, name: str, path: str, kind: str) -> None:
        self.name, self.path, self.kind = name, path, kind
        self.key = -1  # equal modules have the same
        self.parameters = self.trainable = self.num_bytes = 0
        self.num_modules = 1
        self.dtypes: set[str] = set()
        self.tied: list[tuple[str, str]] = []
        self.children: list[Node] = []

    def add(self, inner: Node) -> None:
        """Count a module inside this one."""
        self.parameters += inner.parameters
        self.trainable += inner.trainable
        self.num_bytes += inner.num_bytes
        self.num_modules += inner.num_modules
        self.dtypes |= inner.dtypes

    def walk(self) -> Iterator[Node]:
        """This module and those inside it."""
        yield self
        for child in self.children:
            yield from child.walk()


def count_values(parameter: torch.Tensor) -> int:
    """The numbers that a parameter stands for: bitsandbytes packs two of four bits into a byte."""
    shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
    return math.prod(shape) if shape is not None else parameter.numel()


def name_of(parameter: torch.Tensor) -> str:
    """The type of its numbers, such as float32; that of a quantised one as its library calls it."""
    kind = getattr(getattr(parameter, "quant_state", None), "quant_type", None)
    return str(kind) if isinstance(kind, str) else str(parameter.dtype).removeprefix("torch.")


def cut(text: str) -> str:
    """A name that fits into a table."""
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"


def _lines_of(node: Node, name: str, depth: int, count: int) -> Iterator[ModuleLine]:
    """The lines of `count` equal modules, of which `node` is the first, and of what is inside them."""
    groups = fold(node.children)
    if node.kind in _HOLDERS and not (node.children or node.parameters or node.tied):
        return  # adapters leave many of these
    if len(groups) == 1 and len(groups[0]) > 1 and not node.tied and node.kind == "ModuleList":
        inner = groups[0]  # the list itself has nothing to say
        yield from _lines_of(inner[0], f"{name}.{_join(inner, name)}", depth, count * len(inner))
        return
    yield ModuleLine(
        name=name,
        path=node.path,
        depth=depth,
        kind=node.kind,
        copies=count,
        parameters=count * node.parameters,
        trainable=count * node.trainable,
        num_bytes=count * node.num_bytes,
        dtype="mixed" if len(node.dtypes) > 1 else next(iter(node.dtypes), ""),
        tied=tuple(node.tied),
        num_below=count * (node.num_modules - 1),
    )
    for group in groups:
        yield from _lines_of(group[0], _join(group), depth + 1, count * len(group))


def fold(children: list[Node]) -> list[list[Node]]:
    """Children in groups: equal ones with numbered names go together.

    Those that follow each other, or all where they take turns with others many times.
    """
    runs: list[list[Node]] = []
    for child in children:
        if runs and child.key == runs[-1][0].key and _is_numbered(child.name, runs[-1][-1].name):
            runs[-1].append(child)
        else:
            runs.append([child])
    if len(runs) <= _FEW_RUNS:
        return runs
    by_key: dict[Any, list[Node]] = {}
    for run in runs:
        mark = _number_in(run[0].name)
        key: Any = run[0].path if mark is None else (run[0].key, mark)
        by_key.setdefault(key, []).extend(run)
    return list(by_key.values())


def _number_in(name: str) -> str | None:
    """A name without the number at its end, for names that have one."""
    return re.sub(r"\d+$", "", name) if name[-1:].isdigit() else None


def _is_numbered(name: str, other: str) -> bool:
    return _number_in(name) is not None and _number_in(name) == _number_in(other)


def _join(group: list[Node], prefix: str = "") -> str:
    """The name of a group: of its first and its last module."""
    first, last = group[0].name, group[-1].name
    return first if len(group) == 1 else f"{first} ... {f'{prefix}.' if prefix else ''}{last}"


def _close(lines: list[ModuleLine], depth: int, limit: int) -> list[ModuleLine]:
    """At most `limit` of the lines; only those at the end of the tree say how much is below them."""
    closed = [line if line.depth == depth else line._replace(num_below=0) for line in lines]
    if len(closed) <= limit:
        return closed
    rest = [line for line in closed[limit - 1 :] if line.depth == 1]  # the others are inside of these
    last = ModuleLine(
        name=f"... {len(closed) - limit + 1} more",
        path="",
        depth=1,
        kind="",
        copies=1,
        parameters=sum(line.parameters for line in rest),
        trainable=sum(line.trainable for line in rest),
        num_bytes=sum(line.num_bytes for line in rest),
        dtype="",
    )
    return [*closed[: limit - 1], last]
