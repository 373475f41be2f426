"""Each trial of a search is a run of its own at a tracker, in one group with the name of the search."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tiny
from footplate import Trainer
from footplate.integrations.mlflow import MLflowCallback
from footplate.integrations.tensorboard import TensorBoardCallback
from footplate.integrations.wandb import WandbCallback
from integrations import test_clearml, test_comet, test_swanlab, test_trackio, tracked
from integrations.wandb_reader import read_offline_runs, series

SPACE = {"learning_rate": [0.05, 0.1], "width": [3]}  # the second is for model_init: no setting has this name
NAMES = ["run-0", "run-1"]


def search(folder: Path, trackers: list[Any], **settings: Any) -> Any:
    """What a search with two trials gave."""
    data = tiny.regression_data(16)
    args = tiny.arguments(
        folder, max_steps=2, logging_steps=1, eval_strategy="epoch", save_strategy="no", **settings
    )
    trainer = Trainer(
        model_init=lambda trial: tiny.Regression(),
        args=args,
        train_dataset=data,
        eval_dataset=data,
        callbacks=trackers,
    )
    best = trainer.hyperparameter_search(SPACE, n_trials=2, backend="grid")
    for tracker in trackers:
        assert tracker.finish(60), tracker.guard.error
    return best


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A search that three trackers hear of, each with what it does where nothing is set."""
    folder = tmp_path_factory.mktemp("searched") / "my search"
    places = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR")
    variables = {**dict.fromkeys(places, str(folder.parent)), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    variables |= {"WANDB_CONSOLE": "off", "NETRC": str(folder.parent / "netrc")}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("MLFLOW_", "WANDB_", "TENSORBOARD_"))]:
            patch.delenv(name)
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        wandb.teardown()  # it reads its variables once in a process
        for name, value in variables.items():
            patch.setenv(name, value)
        best = search(folder, [WandbCallback(), MLflowCallback(), TensorBoardCallback()])
        wandb.teardown()
    return SimpleNamespace(folder=folder, trials=best.run_summary.trials)


def test_wandb_has_a_run_for_each_trial_in_a_group(searched: Any) -> None:
    runs = read_offline_runs(searched.folder.parent)
    assert [(run.name, run.group) for run in runs] == [(name, "my search") for name in NAMES]
    assert len({run.run_id for run in runs}) == 2
    for run, trial in zip(runs, searched.trials, strict=True):
        assert {name: run.config[name] for name in trial.params} == trial.params
        assert [step for step, _ in series([run], "train/loss")] == [1, 2]
        assert series([run], "eval/loss") == [(2, trial.values[0])]


def test_mlflow_has_a_run_for_each_trial_with_the_name_of_the_search_in_one_database(searched: Any) -> None:
    assert not list(searched.folder.glob("run-*/mlflow.db"))
    client = mlflow.MlflowClient(f"sqlite:///{searched.folder}/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name != "Default"]
    found = client.search_runs([experiment.experiment_id], "tags.search = 'my search'")
    runs = sorted(found, key=lambda run: str(run.info.run_name))
    assert [(run.info.run_name, run.info.status) for run in runs] == [(name, "FINISHED") for name in NAMES]
    for run, trial in zip(runs, searched.trials, strict=True):
        assert {name: run.data.params[name] for name in trial.params} == {
            name: str(value) for name, value in trial.params.items()
        }
        assert run.data.metrics["eval/loss"] == trial.values[0]


def test_tensorboard_has_a_folder_for_each_trial_in_that_of_the_search(searched: Any) -> None:
    folders = sorted({path.parent for path in searched.folder.rglob("*tfevents*")})
    assert [folder.name for folder in folders] == NAMES
    for folder, trial in zip(folders, searched.trials, strict=True):
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        events.Reload()
        assert [event.step for event in events.Scalars("train/loss")] == [1, 2]
        assert events.Scalars("eval/loss")[0].value == pytest.approx(trial.values[0])
        content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        assert b"learning_rate" in content
        assert b"width" in content


def test_the_run_name_is_that_of_the_search_and_a_run_of_mlflow_under_way_is_its_parent(
    searched: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{searched.folder}/mlflow.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "named")
    with mlflow.start_run() as own:
        search(tmp_path / "folder", [MLflowCallback()], run_name="first try")
        assert mlflow.active_run() is not None
    client = mlflow.MlflowClient(f"sqlite:///{searched.folder}/mlflow.db")
    runs = client.search_runs([own.info.experiment_id], f"tags.mlflow.parentRunId = '{own.info.run_id}'")
    assert sorted(run.info.run_name for run in runs) == NAMES
    assert {run.data.tags["search"] for run in runs} == {"first try"}
    assert client.get_run(own.info.run_id).data.params == {}


# what each client says of the run that it has begun, as an expression
SAID = {
    "trackio.TrackioCallback": "service.group, service.config['width']",
    "comet.CometCallback": "service.get_tags()[0], service.get_parameter('trial/width')",
    "clearml.ClearMLCallback": "task.get_tags()[0], int(task.get_parameters()['Trial/width'])",
    "swanlab.SwanLabCallback": "*[service.config['width'], read_group()][::-1]",
}
OPENING = """
from pathlib import Path
from footplate.integrations.run import Run
from footplate.integrations.{module} import {name}

def read_group():
    from integrations.test_swanlab import read_legs
    service.finish()  # it writes then, and forgets its config
    ((first, *_),) = read_legs(Path({folder!r}))
    return first.start.group

tracker = {name}()
run = Run("abcd1234", "my-search", {folder!r}, trial="run-0", trial_params={{"width": 3}})
tracker.resume(run)
tracker.service_id = tracker.open(run)
service, task = getattr(tracker, "_service", None), getattr(tracker, "_task", None)
print("said", {said})
tracker.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("tracker", SAID)
def test_other_trackers_have_group_or_tag_and_the_values_of_the_trial(tmp_path: Path, tracker: str) -> None:
    module, name = tracker.split(".")
    keep_here = {
        "trackio": test_trackio.local,
        "comet": test_comet.offline,
        "clearml": test_clearml.offline,
        "swanlab": test_swanlab.offline,
    }
    code = OPENING.format(module=module, name=name, folder=str(tmp_path), said=SAID[tracker])
    assert "said my-search 3\n" in tracked.run_code(code, keep_here[module](tmp_path))
