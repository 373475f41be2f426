"""Facts of a run that its settings do not tell: data, model, versions, code. A resume notices changes."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import IterableDataset

from footplate import rng
from footplate.batch import find_length, is_table
from footplate.state import ExportableState
from footplate.training.code import hash_code
from footplate.training.rehearsal import Kept
from footplate.wrappers import bare_model

LIBRARIES = ("footplate", "torch", "numpy", "transformers", "datasets", "peft")
NUM_OBJECTS = 5_000  # what a dataset may hold for its first row to be read
NUM_BYTES = 2**20  # of one value of a row


class RunFacts(ExportableState):
    """The facts of a run, saved with each checkpoint.

    Args:
        facts: What `collect_facts` gave.
    """

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        self.facts = dict(facts or {})
        self.saved: dict[str, Any] = {}  # those of the checkpoint that the run resumed from

    def state(self) -> dict[str, Any]:
        """The facts as they are now: a resumed run has its own."""
        return {"args": {}, "attributes": {"saved": self.facts}}


def collect_facts(dataset: Any, model: nn.Module, code: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The facts, as JSON can hold them. At most one row is read, and neither data nor generators notice.

    Args:
        dataset: The training data.
        model: The model.
        code: Classes, functions and objects whose code is compared, by name.
    """
    return {
        "data": describe_data(dataset),
        "model": describe_model(model),
        "versions": find_versions(),
        "code": hash_code({**(code or {}), "model": type(bare_model(model))}),
    }


def describe_data(dataset: Any) -> dict[str, Any]:
    """What tells one dataset from another without reading it."""
    facts: dict[str, Any] = {"type": type(dataset).__name__, "rows": find_length(dataset)}
    if is_table(dataset):
        facts["fingerprint"] = getattr(dataset, "_fingerprint", None)
        facts["columns"] = list(dataset.column_names or ())
    facts["first_row"] = hash_first_row(dataset)
    return facts


def hash_first_row(dataset: Any) -> str | None:
    """A hash of the first row; None for streams, and where reading it may leave a trace."""
    if (
        not find_length(dataset)
        or isinstance(dataset, IterableDataset)
        or not hasattr(dataset, "__getitem__")
    ):
        return None
    if type(dataset) in (list, tuple):
        return hash_value(dataset[0])
    try:
        kept = Kept([dataset], NUM_OBJECTS, keeps_arrays=False)
        if kept.holds_generator:  # then the row may be another one in every process
            return None
        try:
            with rng.scoped(seed=0):
                return hash_value(dataset[0])
        finally:
            kept.put_back()
    except Exception:  # where reading fails, training will meet the same error, and report it
        return None


def hash_value(value: Any) -> str:
    """A hash of nested values that is the same in every process."""
    digest = hashlib.sha256()
    for part in _parts_of(value):
        digest.update(part)
    return digest.hexdigest()[:16]


def describe_model(model: nn.Module) -> dict[str, Any]:
    """The model's class, and a hash of the names and shapes of its parameters."""
    named = [(name, tuple(value.shape)) for name, value in model.named_parameters()]
    return {
        "class": type(bare_model(model)).__name__,
        "parameters": sum(value.numel() for value in model.parameters()),
        "shapes": hash_value(named),
    }


def find_versions() -> dict[str, str]:
    """The versions of Python and of those libraries that are imported."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        module = sys.modules.get(name)
        if module is not None:
            versions[name] = str(getattr(module, "__version__", None) or _installed_version(name))
    return versions


def _installed_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _parts_of(value: Any) -> Iterator[bytes]:
    """A value as bytes; the kind of an object that is neither a number, text, an array nor a container."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield repr(key).encode()
            yield from _parts_of(value[key])
    elif isinstance(value, (list, tuple)):
        yield f"{len(value)}:".encode()
        for item in value:
            yield from _parts_of(item)
    elif isinstance(value, (torch.Tensor, np.ndarray)):
        array = value.detach().cpu().contiguous() if isinstance(value, torch.Tensor) else value
        yield f"{array.dtype}{tuple(array.shape)}".encode()
        flat = array.reshape(-1)[: NUM_BYTES // max(array.itemsize, 1)]
        yield flat.view(torch.uint8).numpy().tobytes() if isinstance(flat, torch.Tensor) else flat.tobytes()
    elif isinstance(value, bytes):
        yield value[:NUM_BYTES]
    elif value is None or isinstance(value, (bool, int, float, str, np.generic)):
        yield repr(value)[:NUM_BYTES].encode(errors="replace")
    else:
        yield type(value).__qualname__.encode()
