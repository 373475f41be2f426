"""Names in `report_to`, and the trackers they mean."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from transformers.integrations import integration_utils as original

import tiny
from footplate import Trainer
from footplate.integrations import registry
from footplate.integrations.base import TrackerCallback
from footplate.integrations.registry import TRACKERS, build_trackers, get_available_reporting_integrations

SWITCHES = ("WANDB_DISABLED", "DISABLE_MLFLOW_INTEGRATION", "DISABLE_KUBEFLOW_INTEGRATION")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in (*SWITCHES, "KUBEFLOW_TRAINER_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def installed(monkeypatch):
    """Call it with packages: these and no others can be imported, as far as the registry can tell."""

    def install(*packages: str) -> None:
        monkeypatch.setattr(registry, "is_importable", lambda package: package in packages)

    return install


def test_every_name_of_the_original_is_known_and_has_the_class_of_that_name():
    assert {*TRACKERS, "neptune"} == set(original.INTEGRATION_TO_CALLBACK)
    for name, tracker in TRACKERS.items():
        assert tracker.callback == original.INTEGRATION_TO_CALLBACK[name].__name__


@pytest.mark.parametrize("name", TRACKERS)
def test_every_class_is_where_the_table_says_and_carries_its_name(name):
    tracker = TRACKERS[name]
    found = getattr(importlib.import_module(f"footplate.integrations.{tracker.module}"), tracker.callback)
    assert issubclass(found, TrackerCallback)
    assert found.name == name


@pytest.mark.parametrize("nothing", [None, "none", [], ["none"]])
def test_none_means_none(nothing):
    assert build_trackers(nothing) == []


def test_a_name_may_stand_alone_or_in_a_list_and_counts_once():
    from footplate.integrations.tensorboard import TensorBoardCallback

    for names in ("tensorboard", ["tensorboard"], ["tensorboard", "tensorboard", "none"]):
        assert build_trackers(names) == [TensorBoardCallback]
    assert registry.get_reporting_integration_callbacks("tensorboard") == [TensorBoardCallback]


def test_a_name_that_is_none_is_refused_with_what_was_probably_meant(tmp_path):
    with pytest.raises(
        ValueError, match=r"'tensorbord' is not a tracker. Did you mean 'tensorboard'\?.*wandb"
    ):
        build_trackers("tensorbord")
    with pytest.raises(ValueError, match=r"'xyz' is not a tracker. Allowed are all, none, azure_ml"):
        build_trackers(["xyz"])
    with pytest.raises(ValueError, match="Did you mean 'wandb'"):
        Trainer(tiny.Regression(), tiny.arguments(tmp_path, report_to="wandbb"))


def test_the_closed_service_is_said_to_be_closed():
    with pytest.raises(ValueError, match=r"closed in March 2026.*mlflow"):
        build_trackers("neptune")


def test_a_missing_package_is_said_before_anything_starts_and_names_the_extra(installed, tmp_path):
    installed()
    with pytest.raises(ImportError, match=r"needs wandb.*pip install footplate\[wandb\]"):
        build_trackers("wandb")
    with pytest.raises(ImportError, match=r"needs dagshub and mlflow.*footplate\[dagshub\]"):
        build_trackers("dagshub")
    with pytest.raises(ImportError, match="tensorboard or tensorboardX"):
        Trainer(tiny.Regression(), tiny.arguments(tmp_path, report_to="tensorboard"))


def test_all_means_whatever_is_installed_and_works_unasked(installed, monkeypatch):
    installed("tensorboardX", "wandb", "flytekit", "dagshub", "azureml.core")
    assert get_available_reporting_integrations() == ["azure_ml", "tensorboard", "wandb"]
    installed("mlflow", "dagshub", "azureml.core")
    assert get_available_reporting_integrations() == ["dagshub", "mlflow"]
    monkeypatch.setenv("DISABLE_MLFLOW_INTEGRATION", "TRUE")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", "http://localhost")
    assert get_available_reporting_integrations() == ["azure_ml", "dagshub", "kubeflow"]
    monkeypatch.setenv("DISABLE_KUBEFLOW_INTEGRATION", "true")
    assert "kubeflow" not in get_available_reporting_integrations()


def test_all_finds_what_the_original_finds():
    unconfigured = {"comet_ml"}  # the original asks for a key here; we do when it opens
    ours = set(get_available_reporting_integrations())
    assert ours - unconfigured == set(original.get_available_reporting_integrations()) - unconfigured - {
        "neptune"
    }


def test_a_variable_turns_a_tracker_off_though_it_is_named(installed, monkeypatch, caplog):
    installed("wandb")
    monkeypatch.setenv("WANDB_DISABLED", "true")
    assert build_trackers(["wandb"]) == []
    assert "WANDB_DISABLED=true turns it off" in caplog.text
    assert not registry.is_wandb_available()


QUESTIONS = sorted(
    name
    for name, value in vars(original).items()
    if name.startswith("is_") and name.endswith("_available") and value.__module__ == original.__name__
)
OTHER_RULES = {
    "is_azureml_available",  # its MLflow plugin counts too
    "is_comet_available",  # the original asks for a key; we do when it opens
    "is_neptune_available",  # never
    "is_flyte_deck_standard_available",  # the original raises where flytekit has no plugin at all
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_questions_that_scripts_import_have_the_original_answer(question):
    ask = getattr(registry, question)
    assert ask.__name__ == question
    if question not in OTHER_RULES:
        assert ask() == bool(getattr(original, question)())


def test_looking_for_trackers_imports_none_of_them():
    packages = ["tensorboard", "wandb", "mlflow", "comet_ml", "codecarbon", "trackio", "clearml"]
    script = f"""
import sys
from footplate.integrations import registry
registry.get_available_reporting_integrations()
registry.build_trackers("all")
print([name for name in {packages!r} if name in sys.modules])
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert finished.stdout.strip() == "[]", finished.stderr


def test_no_service_imports_its_package_at_the_top():
    folder = Path(registry.__file__).parent
    for tracker in TRACKERS.values():
        text = (folder / f"{tracker.module}.py").read_text(encoding="utf-8")
        for package in {package.split("+")[0].split(".")[0] for package in tracker.packages}:
            assert f"\nimport {package}" not in text
