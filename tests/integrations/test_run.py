"""What a journal and a tracker learn of the machine and the installation."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import pytest

from footplate.integrations import run


def test_the_version_of_every_installed_package_is_what_metadata_says():
    names = {entry.name for entry in metadata.distributions() if entry.name}
    assert len(names) > len(run.REPORTED_PACKAGES)
    assert {name: run._find_version(name) for name in names} == {
        name: metadata.version(name) for name in names
    }


def test_a_package_that_is_not_there_has_no_version():
    with pytest.raises(metadata.PackageNotFoundError):
        run._find_version("no-such-package-of-anybody")
    assert "no-such-package-of-anybody" not in run._find_versions()


@pytest.mark.parametrize("header", ["PKG-INFO", "METADATA"])
def test_a_version_is_read_from_either_kind_of_installation(tmp_path, monkeypatch, header):
    kind = "egg-info" if header == "PKG-INFO" else "dist-info"
    folder = tmp_path / f"carriage-1.2.{kind}"
    folder.mkdir()
    text = "Metadata-Version: 2.1\nName: carriage\nVersion: 1.2\n\nVersion: 9.9 in the description\n"
    (folder / header).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert run._find_version("carriage") == "1.2"


def test_the_platform_is_named_as_python_names_it():
    uname = platform.uname()
    names_processor = sys.platform == "linux" and uname.processor not in ("", uname.machine)
    processor = f"-{uname.processor}" if names_processor else ""  # which takes a process to ask for
    assert run._name_platform().replace("-with", f"{processor}-with") == platform.platform()
