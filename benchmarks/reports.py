"""What every report of the benchmarks holds beside its figures, and where it is written."""

from __future__ import annotations

import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("footplate", "torch", "transformers", "lightning", "accelerate")
FOLDER = Path(__file__).parent / "results"


def describe_machine() -> dict[str, Any]:
    """The versions and the machine that the figures belong to, and how busy it was when they began."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "versions": versions,
    }


def print_machine(machine: dict[str, Any]) -> None:
    """One line above the tables."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    print(f"{packages}; {machine['cores']} cores, load {machine['load']:.1f}")


def write_report(report: dict[str, Any], name: str = "") -> Path:
    """Every single measurement as JSON in `results/`, under the time it was written."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}{name}.json"
    path.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return path
