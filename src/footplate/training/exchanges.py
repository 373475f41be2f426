"""Whether code of the user's own may exchange something with other processes, judged by the names in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

WORDS = ("gather", "reduce", "broadcast", "scatter", "barrier", "distributed", "accelerator", "all_to_all")
LIBRARIES = ("footplate", "torch", "numpy", "builtins")  # their functions are judged by their names alone
MAX_FUNCTIONS = 200  # to look into; beyond that nobody can say


def may_exchange(function: Callable[..., Any], owner: Any) -> bool:
    """Whether a method, or what it calls by name, mentions an exchange between processes.

    Looks into the methods of `owner` that it names, into modules that `owner` holds, and into functions of
    the same file; what it cannot look into is taken to exchange nothing.

    Args:
        function: The method.
        owner: The object that it is a method of.
    """
    seen: set[CodeType] = set()
    waiting = [function]
    while waiting:
        if len(seen) > MAX_FUNCTIONS:
            return True
        current = waiting.pop()
        bare = inspect.unwrap(getattr(current, "__func__", current))
        code = getattr(bare, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        names = set(names_in(code))
        if any(word in name.lower() for name in names for word in WORDS):
            return True
        for name in names:
            found = getattr(bare, "__globals__", {}).get(name)
            if isinstance(found, ModuleType) and found.__name__.startswith("torch.distributed"):
                return True
            waiting += functions_of(found)
            waiting += methods_named(owner, name)
    return False


def names_in(code: CodeType) -> Iterator[str]:
    """The names that a function uses, those of functions inside it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def methods_named(owner: Any, name: str) -> list[Any]:
    """What a name may stand for: methods of the owner's classes, or forward of a module that it holds."""
    found = [vars(kind).get(name) for kind in type(owner).__mro__ if not is_of_library(kind)]
    held = vars(owner).get(name)
    if isinstance(held, nn.Module):
        found += [type(part).forward for part in held.modules() if not is_of_library(type(part))]
    return [part for one in [*found, held] for part in functions_of(one)]


def functions_of(value: Any) -> list[Any]:
    """A function that can be looked into, in a list; an empty one for anything else."""
    bare = getattr(value, "__func__", value)  # static and class methods too
    return [bare] if isinstance(bare, FunctionType) and not is_of_library(bare) else []


def is_of_library(value: Any) -> bool:
    """Whether a class or function is one of torch's or footplate's own."""
    return str(getattr(value, "__module__", "")).split(".")[0] in LIBRARIES
