from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH, MAX_PARAMS_TAGS_PER_BATCH

from footplate.integrations.guard import SetupError
from footplate.integrations.mlflow import MLflowCallback
from footplate.integrations.registry import build_trackers
from footplate.integrations.run import Run
from integrations import tracked


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No variables of MLflow's but those that keep it silent, and an empty working directory."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
            patch.delenv(name)
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.chdir(tmp_path_factory.mktemp("cwd"))
        yield Path.cwd()
        written = [path.name for path in Path.cwd().iterdir() if path.name != ".cometml-runs"]  # another's
        assert not written, "something was written to the working directory"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run with everything, in a database of its own."""
    folder = tmp_path_factory.mktemp("out dir")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_MLFLOW_LOG_ARTIFACTS", "1")
        callback = MLflowCallback()
        trainer = tracked.run_all(folder, [callback])
        assert callback.finish(60)
    uri = f"sqlite:///{folder}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    return SimpleNamespace(folder=folder, callback=callback, trainer=trainer, uri=uri, client=client)


@pytest.fixture
def store(whole: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same database, named by the variable, for further runs."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", whole.uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "further")
    return whole.client


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("abc", "a-name", str(tmp_path), max_steps=4, settings={"learning_rate": 0.1})


def points(client: Any, run_id: str, key: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, key)]


def opened(run: Run) -> MLflowCallback:
    """A callback that has opened `run`, as its guard would have it do."""
    callback = MLflowCallback()
    callback.resume(run)
    callback._open_run(run)
    return callback


def test_every_key_of_a_run_is_read_back_at_every_step(whole: Any) -> None:
    curves = tracked.expected_points(whole.trainer.state.log_history)
    assert {"train/loss", "eval/loss", "train/train_runtime"} <= set(curves)
    for key, expected in curves.items():
        assert points(whole.client, whole.callback.service_id, key) == expected, key
    found = set(whole.client.get_run(whole.callback.service_id).data.metrics)
    others = {f"ood/{name}" for name in ("loss", "runtime", "samples_per_second", "steps_per_second")}
    assert found == {*curves, "train/epoch", *others}
    epochs = [step for step, _ in points(whole.client, whole.callback.service_id, "train/epoch")]
    assert epochs == list(range(1, tracked.NUM_STEPS + 1))


def test_a_prediction_has_its_own_heading(whole: Any) -> None:
    assert [step for step, _ in points(whole.client, whole.callback.service_id, "ood/loss")] == [8]


def test_settings_and_model_configuration_are_parameters(whole: Any) -> None:
    params = whole.client.get_run(whole.callback.service_id).data.params
    assert params["learning_rate"] == "0.05"
    assert params["hidden_size"] == "2"
    assert params["nested"] == "{'name': 'line'}"
    assert set(whole.trainer.args.to_dict()) < set(params)
    assert len(params) > MAX_PARAMS_TAGS_PER_BATCH


def test_samples_are_a_table_that_mlflow_reads(whole: Any) -> None:
    path = "samples/eval/step-00000008.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", whole.uri)
        patch.setenv("MLFLOW_EXPERIMENT_NAME", "huggingface")
        table = mlflow.load_table(path, run_ids=[whole.callback.service_id])
    assert table.astype(str).to_dict("records") == tracked.SAMPLES


def test_sealed_checkpoints_are_uploaded_when_asked(whole: Any) -> None:
    names = [item.path for item in whole.client.list_artifacts(whole.callback.service_id)]
    assert [name for name in names if name.startswith("checkpoint-")] == [
        f"checkpoint-{step}" for step in (2, 4, 6, 8)
    ]
    folder = Path(whole.client.download_artifacts(whole.callback.service_id, "checkpoint-8"))
    assert (folder / "trainer_state.json").read_bytes() == (
        whole.folder / "checkpoint-8" / "trainer_state.json"
    ).read_bytes()


def test_without_an_address_everything_is_in_the_run_s_folder(whole: Any) -> None:
    found = whole.client.get_run(whole.callback.service_id)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "a-line"
    assert found.data.tags["mlflow.user"]
    assert str(whole.folder).replace(" ", "%20") in found.info.artifact_uri
    assert whole.client.get_experiment(found.info.experiment_id).name == "huggingface"


@pytest.mark.slow
def test_a_killed_and_resumed_run_is_one_run(whole: Any, tmp_path: Path) -> None:
    variables = {"MLFLOW_TRACKING_URI": whole.uri, "MLFLOW_EXPERIMENT_NAME": "killed"}
    outcome = tracked.kill_and_resume("footplate.integrations.mlflow", "MLflowCallback", tmp_path, variables)
    experiment = whole.client.get_experiment_by_name("killed")
    (found,) = whole.client.search_runs([experiment.experiment_id])
    assert found.info.run_id == outcome.service_id
    assert found.info.status == "FINISHED"
    curves = {key: points(whole.client, found.info.run_id, key) for key in found.data.metrics}
    tracked.assert_no_gap_and_no_double(curves, outcome)


def test_what_was_sent_but_not_noted_before_a_kill_is_not_sent_twice(store: Any, run: Run) -> None:
    first = opened(run)
    first.write({"train/loss": 1.0}, 1)
    first.write({"train/loss": 0.5}, 2)
    again = Run("abc", "a-name", run.output_dir, first_step=1, num_logs=1, max_steps=4)
    second = opened(again)
    assert second.service_id == first.service_id
    second._write_log({"train/loss": 1.0}, 1, 1)
    second._write_log({"train/loss": 0.5}, 2, 2)
    second._write_log({"train/loss": 0.2}, 3, 3)
    assert points(store, str(second.service_id), "train/loss") == [(1, 1.0), (2, 0.5), (3, 0.2)]


def test_a_repeated_attempt_leaves_one_point(store: Any, run: Run) -> None:
    callback = opened(run)
    values = {"train/loss": 1.0}
    callback.write(values, 1)
    callback._latest.clear()  # as if the answer to the first attempt was lost
    callback.write(values, 1)
    assert points(store, str(callback.service_id), "train/loss") == [(1, 1.0)]


def test_a_repeated_opening_makes_one_run(store: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "once")
    first, second = opened(run), MLflowCallback()
    assert second.open(run) == first.service_id
    experiment = store.get_experiment_by_name("once")
    assert len(store.search_runs([experiment.experiment_id])) == 1


def test_a_run_that_mlflow_no_longer_has_begins_anew_with_all_its_logs(
    store: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(run)
    first._write_log({"train/loss": 1.0}, 1, 1)
    store.delete_run(first.service_id)
    again = Run("abc", "a-name", run.output_dir, first_step=1, num_logs=1, max_steps=4)
    second = opened(again)
    second._write_log({"train/loss": 1.0}, 1, 1)
    assert second.service_id != first.service_id
    assert points(store, str(second.service_id), "train/loss") == [(1, 1.0)]
    assert "a new one begins" in caplog.text


def test_names_that_mlflow_refuses_are_cleaned(store: Any, run: Run) -> None:
    callback = opened(run)
    callback.write({"eval/acc@1 (top)": 0.5, "../up//there/": 1, "x" * 300: 2, "train/nan": float("nan")}, 3)
    found = store.get_run(callback.service_id).data.metrics
    assert set(found) == {"eval/acc_1 _top_", "up/there", "x" * 250, "train/nan"}
    assert found["train/nan"] != found["train/nan"]


def test_words_in_logs_are_tags(store: Any, run: Run) -> None:
    callback = opened(run)
    callback.write({"train/note": "hello", "train/loss": 1.0, "train/none": None}, 1)
    found = store.get_run(callback.service_id).data
    assert found.tags["train/note"] == "hello"
    assert set(found.metrics) == {"train/loss"}


def test_what_is_too_long_or_too_much_goes_to_a_file(
    store: Any, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_MAX_LOG_PARAMS", "3")
    long = "y" * (MAX_PARAM_VAL_LENGTH + 1)
    run.settings = {"a": 1, "long": long, "b": 2}
    run.model = {"config": {"c": 3, "d": 4}}
    callback = opened(run)
    assert store.get_run(callback.service_id).data.params == {"a": "1", "b": "2", "c": "3"}
    text = mlflow.artifacts.load_text(
        f"{store.get_run(callback.service_id).info.artifact_uri}/arguments.json"
    )
    assert json.loads(text) == {"a": 1, "long": long, "b": 2, "c": 3, "d": 4}
    assert [record.message for record in caplog.records if "arguments.json" in record.message] == [
        "mlflow does not accept all 5 parameters (too many, too long or changed): long, d (2 in all). "
        "See its file arguments.json."
    ]


def test_a_setting_changed_at_a_resume_is_kept_in_a_file(store: Any, run: Run) -> None:
    first = opened(run)
    again = Run("abc", "a-name", run.output_dir, first_step=2, num_logs=2, settings={"learning_rate": 0.2})
    opened(again)
    assert store.get_run(first.service_id).data.params["learning_rate"] == "0.1"
    artifacts = store.get_run(first.service_id).info.artifact_uri
    text = mlflow.artifacts.load_text(f"{artifacts}/arguments-from-step-2.json")
    assert json.loads(text) == {"learning_rate": 0.2}


def test_nested_settings_are_flattened_when_asked(
    store: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_FLATTEN_PARAMS", "TRUE")
    run.model = {"config": {"rope": {"theta": {"base": 10}}, "empty": {}}}
    params = store.get_run(opened(run).service_id).data.params
    assert params == {"learning_rate": "0.1", "rope.theta.base": "10", "empty": "{}"}


def test_tags_and_experiment_are_what_the_variables_say(
    store: Any, run: Run, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TAGS", '{"release": "2.2"}')
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    found = store.get_run(opened(run).service_id)
    assert found.data.tags["release"] == "2.2"
    assert store.get_experiment(found.info.experiment_id).name == "mine"
    assert found.info.artifact_uri.startswith((whole.folder / "mlartifacts").as_uri())


def test_tags_that_are_no_json_are_refused(store: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TAGS", "release=2.2")
    with pytest.raises(SetupError, match=r"MLFLOW_TAGS='release=2\.2' is not a JSON object"):
        opened(run)


def test_a_named_run_is_gone_on_with(store: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    named = store.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", named)
    callback = opened(run)
    assert callback.service_id == named
    callback.write({"train/loss": 1.0}, 1)
    assert points(store, named, "train/loss") == [(1, 1.0)]


def test_a_run_of_the_user_s_own_is_used_and_left_open(store: Any, whole: Any, tmp_path: Path) -> None:
    callback = MLflowCallback()
    with mlflow.start_run() as own:
        trainer = tracked.build_tracked_trainer(tmp_path, [callback], max_steps=2)
        trainer.train()
        assert callback.finish(60)
        assert mlflow.active_run() is not None
        assert store.get_run(own.info.run_id).info.status == "RUNNING"
        assert [step for step, _ in points(store, own.info.run_id, "train/loss")] == [1, 2]
    assert callback.service_id == own.info.run_id


def test_a_nested_run_has_the_user_s_as_its_parent(
    store: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_NESTED_RUN", "1")
    with mlflow.start_run() as own:
        callback = opened(run)
    assert callback.service_id != own.info.run_id
    assert store.get_run(callback.service_id).data.tags["mlflow.parentRunId"] == own.info.run_id


class Mine(MLflowCallback):
    """As people extend it: a parameter of their own, by the client."""

    def setup(self, args: Any, state: Any, model: Any = None, **kwargs: Any) -> None:
        super().setup(args, state, model, **kwargs)
        self._ml_flow.log_param("my_setting", 7)


def test_a_subclass_logs_to_the_same_run_by_the_client(store: Any, tmp_path: Path) -> None:
    callback = Mine()
    tracked.build_tracked_trainer(tmp_path, [callback], max_steps=1, save_strategy="no").train()
    assert callback.finish(60)
    assert store.get_run(callback.service_id).data.params["my_setting"] == "7"
    assert mlflow.active_run() is None
    mlflow.set_tracking_uri(None)


def test_a_run_that_breaks_off_is_marked_failed(store: Any, run: Run) -> None:
    callback = opened(run)
    callback.close()
    assert store.get_run(callback.service_id).info.status == "FAILED"


def test_a_checkpoint_that_is_gone_is_passed_over(
    store: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_MLFLOW_LOG_ARTIFACTS", "true")
    callback = opened(run)
    callback.write_checkpoint(f"{run.output_dir}/checkpoint-9", 9)
    assert store.list_artifacts(callback.service_id) == []


def test_two_trackers_do_not_write_the_same_run(
    store: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from footplate.integrations.azureml import AzureMLCallback

    monkeypatch.setenv("MLFLOW_RUN_ID", store.create_run("0").info.run_id)
    first = opened(run)  # kept: a callback that is gone writes to no run
    with pytest.raises(SetupError, match=r"mlflow writes to run .* already"):
        AzureMLCallback().open(run)
    assert first.service_id is not None


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("DISABLE_MLFLOW_INTEGRATION", "TRUE")
    with caplog.at_level(logging.WARNING):
        assert build_trackers("mlflow") == []
    assert "DISABLE_MLFLOW_INTEGRATION" in caplog.text
