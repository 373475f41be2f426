"""What has changed since a checkpoint besides settings: data, model, versions, code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]
FactChange = tuple[str, Any, Any, str, str]  # name, was, is, outcome, text
NOTICED = "noticed"  # of what no setting says: nothing is applied and nothing refused

_OTHER_LENGTH = "the order of samples is another one: in this epoch some may come twice and others never"
_OTHER_ROWS = "other data: the run continues at the same position in it"
_PREPARED_ANEW = "same size and first row: other rows further on, or the same data prepared anew"
_OTHER_CLASS = "the weights of the checkpoint are loaded into this model"
_OTHER_WEIGHTS = "names or shapes of parameters differ: weights that do not fit are refused"
_OTHER_VERSION = "results may differ in the last bits"
_OTHER_CODE = "harmless if you meant it: the run continues with the code as it is now"


def compare_facts(saved: Any, current: Mapping[str, Any]) -> list[FactChange]:
    """What changed besides settings: data, model, versions, code; what only one side knows is left out.

    Args:
        saved: The facts in a checkpoint, whatever a file of that name holds.
        current: Those of the run that resumes it.
    """
    changes: list[FactChange] = []
    for name, compare in (
        ("data", _compare_data),
        ("model", _compare_model),
        ("versions", _compare_versions),
        ("code", _compare_code),
    ):
        was, now = saved.get(name) if isinstance(saved, Mapping) else None, current.get(name)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            known = {key for key in now if was.get(key) is not None and now[key] is not None}
            changed = [key for key in now if key in known and was[key] != now[key]]
            changes += compare(was, now, changed)
    return changes


def _compare_data(was: Facts, now: Facts, changed: list[str]) -> list[FactChange]:
    name = "train_dataset"
    if "rows" in changed:
        return [(f"len({name})", was["rows"], now["rows"], NOTICED, _OTHER_LENGTH)]
    for key, label in (("columns", f"columns of {name}"), ("first_row", f"first row of {name}")):
        if key in changed:
            return [(label, was[key], now[key], NOTICED, _OTHER_ROWS)]
    if "fingerprint" in changed:
        return [(name, was["fingerprint"], now["fingerprint"], NOTICED, _PREPARED_ANEW)]
    return [(name, was[key], now[key], NOTICED, _OTHER_ROWS) for key in changed if key == "type"]


def _compare_model(was: Facts, now: Facts, changed: list[str]) -> list[FactChange]:
    if "class" in changed:
        return [("model", was["class"], now["class"], NOTICED, _OTHER_CLASS)]
    if "shapes" in changed:
        counts = (f"{was.get('parameters')} parameters", f"{now.get('parameters')} parameters")
        return [("model", *counts, NOTICED, _OTHER_WEIGHTS)]
    return []


def _compare_versions(was: Facts, now: Facts, changed: list[str]) -> list[FactChange]:
    return [(f"version of {key}", was[key], now[key], NOTICED, _OTHER_VERSION) for key in changed]


def _compare_code(was: Facts, now: Facts, changed: list[str]) -> list[FactChange]:
    if "python" in changed:  # another version of Python compiles the same code to something else
        return []
    return [(f"code of {key}", str(was[key])[:8], str(now[key])[:8], NOTICED, _OTHER_CODE) for key in changed]
