"""What people install: built, checked, and used without the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import footplate

ROOT = Path(__file__).parents[1]
ABOUT = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md"}
SOURCES = ("pyproject.toml", "MANIFEST.in", *ABOUT, "src", "tests")

USE = """
import sys
import torch
import footplate
from footplate import Trainer, TrainingArguments

assert footplate.__file__.startswith(sys.argv[1]), footplate.__file__


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": (self.linear(x) - labels).square().mean()}


rows = [{"x": torch.tensor([i / 8]), "labels": torch.tensor([i / 4])} for i in range(8)]
args = TrainingArguments("run", max_steps=3, logging_steps=1, use_cpu=True)
Trainer(Line(), args, train_dataset=rows).train()
page = open("run/report.html").read()
assert "<script" in page and len(page) > 20_000, len(page)
"""


def run(*command: object, **settings: object) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=280,
        env={**environment, "OMP_NUM_THREADS": "1", **settings.pop("env", {})},
        **settings,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source package, built of a copy of what they are made from."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", copy / "dist", copy)
    return copy / "dist"


def find_wheel(packages: Path) -> Path:
    (wheel,) = packages.glob("*.whl")
    return wheel


def test_the_packages_carry_the_version_and_every_file(packages):
    files = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/footplate").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wheel = find_wheel(packages)
    assert wheel.name.startswith(f"footplate-{footplate.__version__}-py3-none-any")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    assert files <= packed
    assert {name for name in packed - files if "dist-info" not in name} == set()
    (source,) = packages.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in files} | ABOUT <= packed
    # a part of the suite would fail for want of the rest
    assert not [name for name in packed if name.startswith("tests")]


def test_the_packages_are_as_an_index_wants_them(packages):
    said = run(sys.executable, "-m", "twine", "check", "--strict", *packages.iterdir())
    assert said.count("PASSED") == 2


def test_a_wheel_trains_without_the_repository(packages, tmp_path):
    home = tmp_path / "installed"
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", home)
    run(sys.executable, "-m", "pip", "install", *options, find_wheel(packages))
    environment = {"PYTHONPATH": str(home)}
    run(sys.executable, "-c", USE, home, cwd=tmp_path, env=environment)
    command = [sys.executable, "-m", "footplate", "--version"]
    assert run(*command, cwd=tmp_path, env=environment).strip() == f"footplate {footplate.__version__}"


@pytest.mark.slow  # torch is installed once more: a minute and 1.5 GB
def test_a_fresh_environment_installs_the_wheel_and_trains(packages, tmp_path):
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh/bin/python"
    torch = os.environ.get("TORCH", "torch==2.13.0")
    run(python, "-m", "pip", "install", "--quiet", torch, "numpy", cwd=tmp_path)
    run(python, "-m", "pip", "install", "--quiet", find_wheel(packages), cwd=tmp_path)
    run(python, "-c", USE, tmp_path / "fresh", cwd=tmp_path)
    said = run(tmp_path / "fresh/bin/footplate", "--version", cwd=tmp_path)
    assert said.strip() == f"footplate {footplate.__version__}"
