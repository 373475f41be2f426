from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import codecarbon
import pytest

from footplate.integrations.codecarbon import CodeCarbonCallback
from footplate.integrations.run import Run
from integrations import tracked

OFFLINE = {"CODECARBON_COUNTRY_ISO_CODE": "FRA", "CODECARBON_MEASURE_POWER_SECS": "0.2"}


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Quick and without a network, in a working directory that stays empty."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OFFLINE.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.chdir(tmp_path_factory.mktemp("cwd"))
        yield
        assert not list(Path.cwd().iterdir()), "something was written to the working directory"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("run")
    callback = CodeCarbonCallback()
    trainer = tracked.run_all(folder, [callback])
    assert callback.finish(60)
    return SimpleNamespace(folder=folder, callback=callback, trainer=trainer, rows=read(folder))


def read(folder: Path) -> list[dict[str, str]]:
    with open(folder / "emissions.csv") as lines:
        return list(csv.DictReader(lines))


def test_a_run_is_one_line_with_what_it_used(whole: Any) -> None:
    (row,) = whole.rows
    final = whole.callback.tracker.final_emissions_data
    assert float(row["emissions"]) == final.emissions > 0
    assert float(row["energy_consumed"]) > 0
    assert row["run_id"] == whole.callback.service_id
    assert row["project_name"] == "a-line"


def test_the_country_is_what_the_variable_says_and_nothing_is_asked(whole: Any) -> None:
    assert isinstance(whole.callback.tracker, codecarbon.OfflineEmissionsTracker)
    assert whole.rows[0]["country_name"] == "France"


def test_an_offline_variable_of_the_hub_keeps_it_off_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CODECARBON_COUNTRY_ISO_CODE")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    callback = CodeCarbonCallback()
    callback._open_run(Run("abc", "a-name", str(tmp_path)))
    callback.close()
    assert isinstance(callback.tracker, codecarbon.OfflineEmissionsTracker)
    assert float(read(tmp_path)[0]["energy_consumed"]) > 0


def test_its_log_level_follows_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ours = logging.getLogger("footplate")
    before = ours.level
    try:
        for level in (logging.ERROR, logging.INFO):
            ours.setLevel(level)
            callback = CodeCarbonCallback()
            callback._open_run(Run("abc", "a-name", str(tmp_path)))
            callback.close()
            assert logging.getLogger("codecarbon").level == level
            assert ("codecarbon INFO" in capfd.readouterr().err) == (level == logging.INFO)
    finally:
        ours.setLevel(before)
        logging.getLogger("codecarbon").setLevel(logging.ERROR)


def test_what_the_variables_set_is_not_set_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODECARBON_OUTPUT_DIR", str(tmp_path / "there"))
    monkeypatch.setenv("CODECARBON_PROJECT_NAME", "mine")
    os.mkdir(tmp_path / "there")
    callback = CodeCarbonCallback()
    callback._open_run(Run("abc", "a-name", str(tmp_path)))
    callback.close()
    assert read(tmp_path / "there")[0]["project_name"] == "mine"


@pytest.mark.slow
def test_each_leg_of_a_killed_run_is_counted(tmp_path: Path) -> None:
    tracked.kill_and_resume("footplate.integrations.codecarbon", "CodeCarbonCallback", tmp_path, OFFLINE)
    rows = read(tmp_path)
    assert len(rows) == 2
    assert len({row["run_id"] for row in rows}) == 2
    assert all(float(row["energy_consumed"]) > 0 for row in rows)


def test_an_evaluation_alone_is_measured_too(tmp_path: Path) -> None:
    callback = CodeCarbonCallback()
    tracked.build_tracked_trainer(tmp_path, [callback]).evaluate()
    assert callback.finish(60)
    assert len(read(tmp_path)) == 1
