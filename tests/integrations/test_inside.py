"""Nothing is uploaded that a link leads to outside of the run's folder."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.integrations.dagshub import DagsHubCallback
from footplate.integrations.dvclive import DVCLiveCallback
from footplate.integrations.inside import stays_inside
from footplate.integrations.mlflow import MLflowCallback
from footplate.integrations.run import Run
from footplate.integrations.tensorboard import TensorBoardCallback


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run" / "checkpoint-2").mkdir(parents=True)
    (tmp_path / "run" / "latest").symlink_to("checkpoint-2")
    (tmp_path / "secret").write_text("of somebody else")
    return tmp_path / "run"


def test_links_within_the_folder_are_fine_and_others_are_named(folder, caplog):
    assert stays_inside(folder, folder)
    assert stays_inside(folder / "checkpoint-2", folder)
    (folder / "checkpoint-2" / "notes").symlink_to("../../secret")
    assert not stays_inside(folder, folder)
    assert not stays_inside(folder / "checkpoint-2", folder)
    assert "checkpoint-2/notes is a link" in caplog.text


class Live:
    """Notes what would be uploaded."""

    def __init__(self) -> None:
        self.uploaded: list[str] = []

    def log_artifact(self, path: str, **options: Any) -> None:
        self.uploaded.append(path)

    def log_metric(self, *values: Any) -> None: ...

    def end(self) -> None: ...


@pytest.mark.parametrize("log_model", [True, "all"])
@pytest.mark.parametrize("leads_out", [False, True])
def test_dvclive_uploads_no_folder_with_a_link_out_of_it(folder, log_model, leads_out):
    if leads_out:
        (folder / "checkpoint-2" / "notes").symlink_to(folder.parent / "secret")
    live = Live()
    callback = DVCLiveCallback(live, log_model=log_model)
    callback.run = Run("abc", "a-name", str(folder))
    callback.write_checkpoint(str(folder / "checkpoint-2"), 2)
    callback.end({}, 2)
    assert len(live.uploaded) == (0 if leads_out else 1)


@pytest.mark.parametrize("leads_out", [False, True])
def test_dagshub_uploads_no_folder_with_a_link_out_of_it(folder, monkeypatch, leads_out):
    uploaded = []

    class Repo:
        def __init__(self, **options: Any) -> None: ...

        def directory(self, name: str) -> Any:
            return self

        def add_dir(self, path: str) -> None:
            uploaded.append(path)

    if leads_out:
        (folder / "notes").symlink_to(folder.parent / "secret")
    monkeypatch.setenv("HF_DAGSHUB_LOG_ARTIFACTS", "1")
    monkeypatch.setattr("dagshub.upload.Repo", Repo)
    monkeypatch.setattr("footplate.integrations.dagshub._find_token", lambda: "token")
    monkeypatch.setattr(MLflowCallback, "end", lambda self, metrics, step: None)
    callback = DagsHubCallback()
    callback.run = Run("abc", "a-name", str(folder))
    callback._uri = "https://dagshub.com/owner/repository.mlflow"
    callback.end({}, 2)
    assert uploaded == ([] if leads_out else [str(folder)])


@pytest.mark.parametrize("tracker", [TensorBoardCallback, DVCLiveCallback])
def test_a_ledger_of_somebody_else_names_no_folder_to_write_to(folder, tracker, monkeypatch, caplog):
    monkeypatch.chdir(folder.parent)
    foreign = folder.parent / "of_somebody_else"
    (foreign / "plots" / "metrics").mkdir(parents=True)
    table = foreign / "plots" / "metrics" / "loss.tsv"
    table.write_text("step\tloss\n1\t2.0\n9\t1.0\n")
    callback = tracker()
    callback.open(Run("abc", "a-name", str(folder), first_step=1, service_id=str(foreign)))
    callback.close()
    assert table.read_text() == "step\tloss\n1\t2.0\n9\t1.0\n"
    assert sorted(path.name for path in foreign.rglob("*")) == ["loss.tsv", "metrics", "plots"]
    assert "is not where this run writes" in caplog.text
