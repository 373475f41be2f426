from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dvclive import Live
from dvclive.serialize import load_yaml
from dvclive.utils import parse_metrics

from footplate.integrations.dvclive import DVCLiveCallback
from footplate.integrations.run import Run
from integrations import tracked

QUIET = {
    "DVC_NO_ANALYTICS": "1",
    "DVC_TEST": "true",
    "DVC_STUDIO_OFFLINE": "true",
    "DVCLIVE_LOGLEVEL": "ERROR",
}


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A working directory outside any repository, which stays empty."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUIET.items():
            patch.setenv(name, value)
        patch.delenv("HF_DVCLIVE_LOG_MODEL", raising=False)
        patch.chdir(tmp_path_factory.mktemp("cwd"))
        yield
        assert not list(Path.cwd().iterdir()), "something was written to the working directory"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run with everything, as DVCLive's own reader sees it."""
    folder = tmp_path_factory.mktemp("run")
    callback = DVCLiveCallback()
    trainer = tracked.run_all(folder, [callback])
    assert callback.finish(60)
    return SimpleNamespace(folder=folder, callback=callback, trainer=trainer, curves=read(callback.live))


def read(live: Any) -> dict[str, list[tuple[int, float]]]:
    """Every table, by DVCLive's reader."""
    history, _ = parse_metrics(live)
    root = Path(live.plots_dir, "metrics")
    curves = {}
    for path, rows in history.items():
        name = Path(path).relative_to(root).with_suffix("").as_posix()
        curves[name] = [(int(row["step"]), float(row[Path(path).stem])) for row in rows]
    return curves


def test_every_key_of_a_run_is_read_back_at_every_step(whole: Any) -> None:
    expected = tracked.expected_points(whole.trainer.state.log_history)
    for key, curve in expected.items():
        assert whole.curves[key] == curve, key
    others = {f"ood/{name}" for name in ("loss", "runtime", "samples_per_second", "steps_per_second")}
    assert set(whole.curves) == {*expected, "train/epoch", *others}
    assert [step for step, _ in whole.curves["train/epoch"]] == list(range(1, 9))
    assert [step for step, _ in whole.curves["ood/loss"]] == [8]


def test_the_summary_has_the_last_values(whole: Any) -> None:
    summary = json.loads((whole.folder / "dvclive" / "metrics.json").read_text())
    assert summary["step"] == 8
    assert summary["eval"]["loss"] == pytest.approx(whole.curves["eval/loss"][-1][1])


def test_settings_and_model_configuration_are_parameters(whole: Any) -> None:
    params = load_yaml(whole.folder / "dvclive" / "params.yaml")
    assert params["learning_rate"] == 0.05
    assert params["nested"] == {"name": "line"}
    assert set(whole.trainer.args.to_dict()) < set(params)


@pytest.mark.slow
def test_a_killed_and_resumed_run_is_one_run(tmp_path: Path) -> None:
    outcome = tracked.kill_and_resume("footplate.integrations.dvclive", "DVCLiveCallback", tmp_path, QUIET)
    live = Live(str(tmp_path / "dvclive"), resume=True, save_dvc_exp=False, dvcyaml=None)
    tracked.assert_no_gap_and_no_double(read(live), outcome)


def test_points_past_the_resumed_step_are_dropped_and_missing_ones_made_up_for(tmp_path: Path) -> None:
    first = DVCLiveCallback()
    run = Run("abc", "a-name", str(tmp_path), max_steps=4)
    first.resume(run)
    first._open_run(run)
    for step in (1, 2, 3):
        first._write_log({"train/loss": 1.0 / step}, step, step)
    table = Path(first.live.plots_dir, "metrics", "train", "loss.tsv")
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join([*lines[:2], "2\t0."]))  # the second row was cut short by a kill
    second = DVCLiveCallback()
    again = Run("abc", "a-name", str(tmp_path), first_step=2, num_logs=2, max_steps=4)
    second.resume(again)
    second._open_run(again)
    for step in (1, 2, 3):
        second._write_log({"train/loss": 1.0 / step}, step, step)
    assert read(second.live)["train/loss"] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


def test_a_live_of_the_user_s_own_is_used(tmp_path: Path) -> None:
    live = Live(str(tmp_path / "mine"), save_dvc_exp=False, dvcyaml=None)
    callback = DVCLiveCallback(live=live)
    tracked.build_tracked_trainer(tmp_path / "out", [callback], max_steps=2).train()
    assert callback.finish(60)
    assert callback.live is live
    assert [step for step, _ in read(live)["train/loss"]] == [1, 2]


def test_what_is_no_live_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"live is a int, but must be a dvclive\.Live"):
        DVCLiveCallback(live=3)


def test_names_stay_below_the_folder(tmp_path: Path) -> None:
    callback = DVCLiveCallback()
    run = Run("abc", "a-name", str(tmp_path / "out"), max_steps=4)
    callback.resume(run)
    callback._open_run(run)
    callback.write({"../../up": 1.0, "/root": 2.0, "train/text": "words"}, 1)
    assert set(read(callback.live)) == {"up", "root"}
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(("asked", "kept"), [("1", True), ("all", "all"), ("", False)])
def test_the_variable_says_which_models_are_kept(
    asked: str, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DVCLIVE_LOG_MODEL", asked)
    assert DVCLiveCallback()._log_model == kept
    assert DVCLiveCallback(log_model=True)._log_model is True


def test_in_a_repository_the_best_checkpoint_becomes_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dvc.repo import Repo

    Repo.init(str(tmp_path), no_scm=True).close()
    monkeypatch.chdir(tmp_path)
    callback = DVCLiveCallback(log_model=True)
    trainer = tracked.build_tracked_trainer(
        tmp_path / "out", [callback], max_steps=4, load_best_model_at_end=True
    )
    trainer.train()
    assert callback.finish(60)
    assert callback.live.dir == "dvclive"
    best = Path(trainer.state.best_model_checkpoint).name
    assert (tmp_path / "dvclive" / "artifacts" / best / "trainer_state.json").is_file()
    artifacts = load_yaml(tmp_path / "dvc.yaml")["artifacts"]
    assert artifacts["best"] == {"path": f"dvclive/artifacts/{best}", "type": "model"}
