from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import wandb

from footplate.integrations.guard import SetupError
from footplate.integrations.run import Run
from footplate.integrations.wandb import WandbCallback
from integrations import tracked
from integrations.wandb_reader import OfflineRun, read_offline_runs, series


def offline(folder: Path) -> dict[str, str]:
    """Variables that keep W&B on this disk and below this folder."""
    folders = {name: str(folder) for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")}
    return {
        **folders,
        "WANDB_CONFIG_DIR": str(folder),
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "NETRC": str(folder / "netrc"),
    }


class Progress(WandbCallback):
    """As people extend it: a value of their own beside each evaluation."""

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        super().setup(args, state, model, **kwargs)
        self._wandb.config.update({"my_setting": 7})

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_evaluate(args, state, control, **kwargs)
        self._wandb.log({"mine": state.global_step * 10})


def read(folder: Path) -> list[OfflineRun]:
    """The runs below a folder, when the client's own process has written the last of them."""
    wandb.teardown()
    return read_offline_runs(folder)


@pytest.fixture
def set_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb.teardown()  # it reads its variables once in a process
    for name, value in offline(tmp_path).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run with everything, and what its file says."""
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**offline(folder), "WANDB_LOG_MODEL": "checkpoint"}.items():
            patch.setenv(name, value)
        patch.setenv("WANDB_PROJECT", "my-project")
        tracker = WandbCallback()
        trainer = tracked.run_all(folder / "run", [tracker])
        assert tracker.finish(60)
    (run,) = read(folder)
    return trainer, tracker, run


def test_every_value_is_there_at_its_step_and_under_its_heading(whole: Any) -> None:
    trainer, _, run = whole
    expected = tracked.expected_points(trainer.state.log_history)
    assert {
        "train/loss",
        "train/grad_norm",
        "train/learning_rate",
        "eval/loss",
        "train/train_runtime",
    } <= set(expected)
    for key, points in expected.items():
        assert series([run], key) == points, key
    assert [step for step, _ in series([run], "ood/loss")] == [tracked.NUM_STEPS]
    assert {key.split("/")[0] for row in run.history for key in row if key[0] != "_"} == {
        "train",
        "eval",
        "ood",
    }


def test_steps_are_those_of_the_run_on_both_axes(whole: Any) -> None:
    _, _, run = whole
    assert [(row["_step"], row["train/global_step"]) for row in run.history] == [
        (step, step) for step in range(1, tracked.NUM_STEPS + 1)
    ]
    assert [(m.name or m.glob_name, m.step_metric) for m in run.metrics] == [
        ("train/global_step", ""),
        ("*", "train/global_step"),
    ]


def test_settings_and_model_are_the_config_and_totals_the_summary(whole: Any) -> None:
    trainer, tracker, run = whole
    assert (run.project, run.name) == ("my-project", "a-line")
    assert run.config["learning_rate"] == 0.05
    assert run.config["hidden_size"] == 2
    assert run.config["model/num_parameters"] == 2
    assert run.summary["train_loss"] == pytest.approx(trainer.state.log_history[-1]["train_loss"])
    assert run.summary["eval/loss"] == pytest.approx(trainer.state.log_history[-2]["eval_loss"])
    assert run.run_id == tracker.service_id == trainer._current_run.identity.run_id


def test_samples_are_a_table(whole: Any) -> None:
    _, _, run = whole
    ((step, table),) = series([run], "eval/samples")
    assert step == tracked.NUM_STEPS
    assert (table["_type"], table["ncols"], table["nrows"]) == ("table-file", 3, 2)


def test_every_sealed_checkpoint_is_an_artifact(whole: Any) -> None:
    _, _, run = whole
    checkpoints = [a for a in run.artifacts if a.type == "model"]
    aliases = [alias for a in checkpoints for alias in a.aliases if not alias.startswith(("epoch", "latest"))]
    assert aliases == [*(f"checkpoint_global_step_{step}" for step in (2, 4, 6, 8)), "final_model"]
    names = {entry.path for entry in checkpoints[0].manifest.contents}
    assert {"model.safetensors", "trainer_state.json", "optimizer.pt"} <= names


@pytest.mark.usefixtures("set_offline")
def test_the_end_keeps_the_best_model_only_and_rotation_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_LOG_MODEL", "end")
    tracker = WandbCallback()
    settings = {"load_best_model_at_end": True, "learning_rate": 3.0, "save_total_limit": 1}  # it gets worse
    trainer = tracked.build_tracked_trainer(tmp_path / "run", [tracker], **settings)
    trainer.train()
    tracker._log_artifact(str(tmp_path / "checkpoint-that-is-gone"), ["gone"])
    assert tracker.finish(60)
    (run,) = read(tmp_path)
    (artifact,) = [a for a in run.artifacts if a.type == "model"]
    best = int(str(trainer.state.best_model_checkpoint).rpartition("-")[2])
    assert "final_model" in artifact.aliases
    assert f'"global_step":{best}' in artifact.metadata.replace(" ", "")
    assert best < tracked.NUM_STEPS


@pytest.mark.usefixtures("set_offline")
def test_a_run_of_the_users_own_is_used_and_left_open(tmp_path: Path) -> None:
    own = wandb.init(project="theirs", id="theirs1", config={"before": 1})
    tracker = WandbCallback()
    tracked.run_all(tmp_path / "run", [tracker], save_strategy="no")
    assert tracker.finish(60)
    assert wandb.run is own
    own.log({"after": 1})
    own.finish()
    (run,) = read(tmp_path)
    assert (run.run_id, run.project, run.config["before"]) == ("theirs1", "theirs", 1)
    assert len(series([run], "train/loss")) == tracked.NUM_STEPS
    assert series([run], "after")


@pytest.mark.usefixtures("set_offline")
def test_a_subclass_logs_beside_each_evaluation_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_NAME", "from-variable")
    monkeypatch.setenv("WANDB_RUN_ID", "chosen1")
    tracker = Progress()
    trainer = tracked.run_all(tmp_path / "run", [tracker], save_strategy="no", run_name=None)
    assert tracker.finish(60)
    (run,) = read(tmp_path)
    assert (run.run_id, run.name, run.config["my_setting"]) == ("chosen1", "from-variable", 7)
    by_axis = {
        key: [(row["train/global_step"], row[key]) for row in run.history if key in row]
        for key in ("mine", "train/loss", "eval/loss", "ood/loss")
    }
    expected = tracked.expected_points(trainer.state.log_history)
    assert by_axis["mine"] == [(step, step * 10) for step in (2, 4, 6, 8)]
    assert by_axis["train/loss"] == expected["train/loss"]
    assert by_axis["eval/loss"] == expected["eval/loss"]
    assert [step for step, _ in by_axis["ood/loss"]] == [tracked.NUM_STEPS]


@pytest.mark.usefixtures("set_offline")
def test_watch_records_gradients_and_a_second_training_is_a_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_WATCH", "gradients")
    tracker = WandbCallback()
    trainer = tracked.build_tracked_trainer(tmp_path / "run", [tracker], save_strategy="no", max_steps=2)
    trainer.train()
    assert len(trainer.model._forward_hooks) + len(trainer.model.slope._backward_hooks or ()) > 0
    monkeypatch.delenv("WANDB_WATCH")
    trainer.train()
    assert tracker.finish(60)
    runs = read(tmp_path)
    assert len({run.run_id for run in runs}) == 2
    assert [len(series([run], "train/loss")) for run in runs] == [2, 2]


@pytest.mark.parametrize("variable", ["WANDB_MODE", "WANDB_DISABLED"])
@pytest.mark.usefixtures("set_offline")
def test_disabled_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "disabled" if variable == "WANDB_MODE" else "true")
    tracker = WandbCallback()
    tracked.run_all(tmp_path / "run", [tracker], save_strategy="no", max_steps=2)
    assert tracker.finish(60)
    assert not tracker.guard.is_off
    assert read(tmp_path) == []


@pytest.mark.usefixtures("set_offline")
def test_without_a_key_it_says_so_and_never_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    tracker = WandbCallback()
    with pytest.raises(SetupError, match=r"wandb login.*WANDB_MODE=offline"):
        tracker.open(Run(run_id="r1", name="n", output_dir=str(tmp_path)))
    trainer = tracked.build_tracked_trainer(tmp_path / "run", [tracker], save_strategy="no", max_steps=2)
    assert trainer.train().global_step == 2
    assert tracker.guard.is_off


def test_an_unknown_way_to_keep_models_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_LOG_MODEL", "sometimes")
    with caplog.at_level(logging.WARNING):
        WandbCallback()
    assert "WANDB_LOG_MODEL='sometimes'" in caplog.text


def test_importing_the_callback_does_not_import_the_client() -> None:
    code = "import sys, footplate.integrations.wandb; assert 'wandb' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_killed_and_resumed_it_is_one_run_without_gaps_or_doubles(tmp_path: Path) -> None:
    module = "footplate.integrations.wandb"
    outcome = tracked.kill_and_resume(module, "WandbCallback", tmp_path / "run", offline(tmp_path))
    legs = read_offline_runs(tmp_path)
    assert [leg.run_id for leg in legs] == [outcome.run_id] * 2
    keys = {key for leg in legs for row in leg.history for key in row}
    tracked.assert_no_gap_and_no_double({key: series(legs, key) for key in keys}, outcome)


class Everything(WandbCallback):
    """As people write it for the original: the whole `setup` replaced, logs sent by hand and by `super`."""

    def setup(self, args: Any, state: Any, model: Any, **kwargs: Any) -> None:
        if self._wandb is None:
            return
        self._initialized = True
        if state.is_world_process_zero:
            self._wandb.init(project="by-hand", id="byhand1", config={"mine": 3})

    def on_log(
        self, args: Any, state: Any, control: Any, model: Any = None, logs: Any = None, **kwargs: Any
    ) -> None:
        if not self._initialized:
            self.setup(args, state, model)
        super().on_log(args, state, control, model, {**logs, "twice": 2 * state.global_step}, **kwargs)


@pytest.mark.usefixtures("set_offline")
def test_a_setup_of_the_users_own_begins_the_run_and_every_log_arrives(tmp_path: Path) -> None:
    tracker = Everything()
    trainer = tracked.run_all(tmp_path / "run", [tracker], save_strategy="no")
    assert tracker.finish(60)
    wandb.finish()
    (run,) = read(tmp_path)
    assert (run.run_id, run.project, run.config["mine"]) == ("byhand1", "by-hand", 3)
    expected = tracked.expected_points(trainer.state.log_history)
    assert series([run], "train/loss") == expected["train/loss"]
    assert dict(series([run], "train/twice")) == {step: 2 * step for step in range(1, tracked.NUM_STEPS + 1)}


@pytest.mark.usefixtures("set_offline")
def test_a_subclass_beside_report_to_shares_its_run(tmp_path: Path) -> None:
    mine = Progress()
    trainer = tracked.run_all(tmp_path / "run", [WandbCallback, mine], save_strategy="no")
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, WandbCallback):
            assert callback.finish(60)
            assert callback.guard.error is None
    (run,) = read(tmp_path)
    expected = tracked.expected_points(trainer.state.log_history)
    told = [(row["train/global_step"], row["train/loss"]) for row in run.history if "train/loss" in row]
    assert sorted(told) == expected["train/loss"]
    assert [row["mine"] for row in run.history if "mine" in row] == [20, 40, 60, 80]


@pytest.mark.usefixtures("set_offline")
def test_a_model_that_is_wanted_but_was_never_saved_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_LOG_MODEL", "end")
    tracker = WandbCallback()
    with caplog.at_level(logging.WARNING, logger="footplate"):
        tracked.run_all(tmp_path / "run", [tracker], save_strategy="no")
        assert tracker.finish(60)
    assert [
        message for message in caplog.messages if "WANDB_LOG_MODEL" in message and "save_strategy" in message
    ]
