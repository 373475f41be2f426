"""Whether code of the user's own changed: hashes of what Python compiled it to, the same in any folder."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from footplate.training.rehearsal import is_users

PLAIN = (bool, int, float, str, bytes, type(None))
# what the user may hand to a Trainer, by its attribute
USER_CODE = (
    *("compute_metrics", "compute_loss_func", "preprocess_logits_for_metrics"),
    *("data_collator", "eval_data_collator", "model_init"),
)


def hash_code(named: Mapping[str, Any]) -> dict[str, str]:
    """A hash of every function of the user's own in these classes, functions and objects, by its name."""
    # another version of Python compiles the same code to something else
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name, part in named.items():
        for label, function in _functions_of(name, part):
            found[label] = _hash_function(function)
    return found


def _functions_of(name: str, part: Any) -> Iterator[tuple[str, FunctionType]]:
    while isinstance(part, functools.partial):
        part = part.func
    part = inspect.unwrap(getattr(part, "__func__", part))  # of a method; below decorators
    if isinstance(part, FunctionType):
        if is_users(part.__code__):
            yield name, part
        return
    kind = part if isinstance(part, type) else type(part)
    for owner in (owner for owner in kind.__mro__ if _is_written(owner)):
        for attribute, value in vars(owner).items():
            value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            function = inspect.unwrap(value) if callable(value) else None
            if isinstance(function, FunctionType) and is_users(function.__code__):
                yield f"{owner.__name__}.{attribute}", function


def _is_written(owner: type) -> bool:
    """Whether the user wrote a class: a dataclass of a library has methods that are in no file."""
    file = getattr(sys.modules.get(owner.__module__), "__file__", None)
    return file is None or "-packages" not in file


def _hash_function(function: FunctionType) -> str:
    digest = hashlib.sha256()
    for part in _parts_of_code(function.__code__, function.__doc__):
        digest.update(part.encode(errors="backslashreplace"))
    defaults = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
    digest.update(_write_constant(tuple(defaults)).encode(errors="backslashreplace"))
    return digest.hexdigest()[:16]


def _parts_of_code(code: CodeType, doc: str | None = None) -> Iterator[str]:
    """What a function does, without where it stands, its line numbers and its docstring."""
    yield code.co_code.hex()
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        yield repr(names)
    for index, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _parts_of_code(constant)
        elif index or doc is None or constant != doc:
            yield _write_constant(constant)


def _write_constant(value: Any) -> str:
    """A constant as text that is the same in every process; of an object, only its class."""
    if isinstance(value, (tuple, frozenset)):
        items = [_write_constant(item) for item in value]
        return f"{type(value).__name__}({', '.join(items if isinstance(value, tuple) else sorted(items))})"
    return repr(value) if isinstance(value, PLAIN) or value is ... else type(value).__qualname__
