"""TensorBoard's event files, read back by TensorBoard itself."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html
from tensorboard.plugins.hparams import plugin_data_pb2
from torch.utils.tensorboard import SummaryWriter

import tiny
from footplate import Trainer, TrainerCallback
from footplate.integrations.run import Run
from footplate.integrations.tensorboard import TensorBoardCallback, _as_table

STEPS = list(range(1, 9))


@pytest.fixture(autouse=True)
def no_folder_from_outside(monkeypatch):
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)


class Config:
    def to_dict(self) -> dict[str, Any]:
        return {"hidden_size": 2, "nested": {"name": "line"}}


def build(folder: Path, *callbacks: Any, **settings: Any) -> Trainer:
    often = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    chosen = {"max_steps": 8, "logging_steps": 1, "learning_rate": 0.05, **often}
    args = tiny.arguments(folder, **{**chosen, **settings})
    model, data = tiny.Regression(), tiny.regression_data()
    model.config = Config()
    return Trainer(model, args, train_dataset=data, eval_dataset=data[:8], callbacks=list(callbacks))


def tracker_of(trainer: Trainer) -> TensorBoardCallback:
    return next(c for c in trainer.callback_handler.callbacks if isinstance(c, TensorBoardCallback))


def find_runs(folder: Path) -> list[Path]:
    """What TensorBoard calls a run: every folder with event files in it."""
    return sorted({file.parent for file in folder.rglob("events.out.tfevents.*")})


def load(folder: Path) -> EventAccumulator:
    everything = {"scalars": 0, "tensors": 0}
    return EventAccumulator(str(folder), size_guidance=everything).Reload()


def curve(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


def text(events: EventAccumulator, tag: str) -> list[tuple[int, str]]:
    found = events.Tensors(f"{tag}/text_summary")
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in found]


def hparams(events: EventAccumulator) -> dict[str, Any]:
    try:
        found = events.PluginTagToContent("hparams")
    except KeyError:  # nothing was written for it
        return {}
    parsed = {tag: plugin_data_pb2.HParamsPluginData.FromString(content) for tag, content in found.items()}
    return {
        tag.removeprefix("_hparams_/"): getattr(data, data.WhichOneof("data")) for tag, data in parsed.items()
    }


def expected(trainer: Trainer) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for entry in trainer.state.log_history:
        for key, value in entry.items():
            tag = f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}"
            if key != "step":
                curves.setdefault(tag, []).append((entry["step"], pytest.approx(value, rel=1e-6)))
    return curves


def test_every_key_and_step_is_there_under_its_heading(tmp_path):
    trainer = build(tmp_path, report_to="tensorboard")
    trainer.train()
    trainer.predict(tiny.regression_data()[:8], metric_key_prefix="ood")
    assert tracker_of(trainer).finish(30)
    (run,) = find_runs(tmp_path)
    name = rf"[A-Z][a-z]{{2}}\d\d_\d\d-\d\d-\d\d_{re.escape(socket.gethostname())}"
    assert re.fullmatch(name, run.name)
    assert run.parent == tmp_path / "runs"
    events = load(run)
    curves = expected(trainer)
    assert [step for step, _ in curves["train/loss"]] == STEPS
    for tag, points in curves.items():
        assert curve(events, tag) == points
    tags = set(events.Tags()["scalars"])
    assert {tag for tag in tags if not tag.startswith("ood/")} == set(curves)
    assert [step for step, _ in curve(events, "ood/loss")] == [8]


def test_settings_and_model_are_shown_as_they_are(tmp_path):
    trainer = build(tmp_path, report_to="tensorboard", run_name="<b> *name*")
    trainer.train()
    assert tracker_of(trainer).finish(30)
    events = load(find_runs(tmp_path)[0])
    ((step, shown),) = text(events, "args")
    assert step == 0
    assert all(line.startswith("    ") for line in shown.splitlines())  # a block of code
    assert json.loads(shown)["run_name"] == "<b> *name*"
    assert json.loads(text(events, "model_config")[0][1]) == Config().to_dict()


def test_hparams_are_written_once_at_the_end_without_a_second_run(tmp_path):
    trainer = build(tmp_path, report_to="tensorboard")
    seen = []

    class Look(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            tracker_of(trainer).wait_for_service()
            seen.append(hparams(load(find_runs(tmp_path)[0])))

    trainer.add_callback(Look)
    trainer.train()
    assert tracker_of(trainer).finish(30)
    assert seen == [{}] * 8
    runs = find_runs(tmp_path)
    assert len(runs) == 1
    found = hparams(load(runs[0]))
    values = found["session_start_info"].hparams
    assert values["learning_rate"].number_value == 0.05
    assert values["lr_scheduler_type"].string_value == "linear"
    assert values["use_cpu"].number_value == 1  # the writer of torch has no other truth
    assert values["hidden_size"].number_value == 2
    assert json.loads(values["nested"].string_value) == {"name": "line"}
    metrics = {info.name.tag for info in found["experiment"].metric_infos}
    assert metrics == set(expected(trainer))  # the curves that are there are what runs are compared by
    assert found["session_end_info"].status == 1  # STATUS_SUCCESS: 1


def test_samples_are_a_table_that_shows_what_it_holds(tmp_path):
    trainer = build(tmp_path, report_to="tensorboard")
    trainer.train()
    rows = [
        {"input": "a|b\nc", "prediction": "<script>alert(1)</script>", "target": 1.5},
        {"input": "*bold* `code` [x](y) 한국어", "note": "more"},
    ]
    trainer._event("on_samples", samples=rows, source="eval")
    assert tracker_of(trainer).finish(30)
    events = load(find_runs(tmp_path)[0])
    ((step, shown),) = text(events, "eval/samples")
    assert step == 8
    assert shown.splitlines() == [
        "| input | prediction | target | note |",
        "| --- | --- | --- | --- |",
        r"| a\|b<br>c | &lt;script&gt;alert(1)&lt;/script&gt; | 1.5 |  |",
        r"| \*bold\* \`code\` \[x\](y) 한국어 |  |  | more |",
    ]


def test_the_page_of_tensorboard_shows_the_cells_unchanged():
    cells = ["<script>x</script>", "*a* _b_ `c`", "a|b", "[x](http://y)", "# head", "\\ ~~z~~"]
    shown = markdown_to_safe_html(_as_table([{"input": cell} for cell in cells]))
    found = re.findall("<td>(.*?)</td>", shown, flags=re.DOTALL)
    assert [html.unescape(cell) for cell in found] == cells


def test_words_in_logs_are_text(tmp_path):
    trainer = build(tmp_path, report_to="tensorboard")
    trainer.log({"note": "good", "score": 1})
    assert tracker_of(trainer).finish(30)
    events = load(find_runs(tmp_path)[0])
    assert text(events, "train/note") == [(0, "good")]
    assert curve(events, "train/score") == [(0, 1.0)]


def test_the_folder_may_be_named_by_argument_or_variable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "from_variable")
    for settings, folder in (({"logging_dir": "from_argument"}, "from_argument"), ({}, "from_variable")):
        trainer = build(tmp_path / "out", report_to="tensorboard", **settings)
        trainer.train()
        assert tracker_of(trainer).finish(30)
        assert find_runs(tmp_path / folder) == [tmp_path / folder]
    assert find_runs(tmp_path / "out") == []


def test_each_trial_of_a_search_has_a_folder_of_its_own(tmp_path, monkeypatch):
    for given in (None, str(tmp_path / "given")):
        for trial in ("one", "two"):
            tracker = TensorBoardCallback()
            tracker.open(Run("a", "a", str(tmp_path / "out"), logging_dir=given, trial=trial))
            tracker.close()
    assert find_runs(tmp_path / "given") == [tmp_path / "given" / "one", tmp_path / "given" / "two"]
    assert {run.name for run in find_runs(tmp_path / "out")} == {"one", "two"}


class CrashAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise RuntimeError("crash")


def test_a_resumed_run_goes_on_in_its_folder_and_drops_what_lies_past_it(tmp_path):
    broken = build(tmp_path / "a", CrashAt(7), report_to="tensorboard", save_on_error=False)
    with pytest.raises(RuntimeError, match="crash"):
        broken.train()
    assert tracker_of(broken).finish(30)
    os.rename(tmp_path / "a", tmp_path / "b")  # the run may move in between
    shutil.rmtree(tmp_path / "b" / "checkpoint-6")
    resumed = build(tmp_path / "b", report_to="tensorboard", seed=42)
    resumed.train(resume_from_checkpoint=True)
    assert tracker_of(resumed).finish(30)
    (run,) = find_runs(tmp_path)
    assert len(list(run.glob("events*"))) == 2
    events = load(run)
    for tag, points in expected(resumed).items():
        assert curve(events, tag) == points  # the speed of the evaluation at step 6 is the second one's
    assert [step for step, _ in text(events, "args")] == [0, 4]


def test_a_writer_of_ones_own_is_used_and_left_open(tmp_path):
    writer = SummaryWriter(str(tmp_path / "mine"))
    tracker = TensorBoardCallback(writer)
    trainer = build(tmp_path / "out", tracker)
    trainer.train()
    assert tracker.tb_writer is writer
    assert tracker.finish(30)
    writer.add_scalar("after", 1.0, 9)
    writer.close()
    events = load(tmp_path / "mine")
    assert curve(events, "train/loss") == expected(trainer)["train/loss"]
    assert curve(events, "after") == [(9, 1.0)]
    assert find_runs(tmp_path / "out") == []


def test_a_subclass_of_old_may_write_with_the_writer_itself(tmp_path):
    class Mine(TensorBoardCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            super().on_log(args, state, control, logs=logs, **kwargs)
            self.tb_writer.add_scalar("mine", 2.0, state.global_step)

    tracker = Mine()
    build(tmp_path, tracker, eval_strategy="no").train()
    assert tracker.finish(30)
    events = load(find_runs(tmp_path)[0])
    assert curve(events, "mine") == [(step, 2.0) for step in (*STEPS, 8)]


def test_without_tensorboard_its_twin_writes_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it were not installed
    trainer = build(tmp_path, report_to="tensorboard")
    trainer.train()
    tracker = tracker_of(trainer)
    assert type(tracker.tb_writer).__module__.startswith("tensorboardX")
    trainer._event("on_samples", samples=[{"input": "a"}], source="eval")
    assert tracker.finish(30)
    (run,) = find_runs(tmp_path)
    events = load(run)
    for tag, points in expected(trainer).items():
        assert curve(events, tag) == points
    assert hparams(events)["session_start_info"].hparams["learning_rate"].number_value == 0.05
    assert text(events, "eval/samples") == [(8, "| input |\n| --- |\n| a |")]


def test_without_both_the_error_names_the_extra(tmp_path, monkeypatch, caplog):
    for module in ("torch.utils.tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, module, None)
    trainer = build(tmp_path, TensorBoardCallback())
    trainer.train()
    assert "pip install footplate[tensorboard]" in caplog.text
    assert trainer.state.global_step == 8


def test_the_curves_are_those_of_the_original(tmp_path):
    tags = {}
    for library in (transformers, sys.modules["footplate"]):
        folder = tmp_path / library.__name__
        data = tiny.regression_data()
        settings = {"max_steps": 4, "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 2}
        trainer = tiny.build_trainer(
            folder, tiny.Regression(), data, data[:8], library, report_to="tensorboard", **settings
        )
        trainer.train()
        if library is not transformers:
            assert tracker_of(trainer).finish(30)
        events = load(find_runs(folder)[0])
        timeless = [t for t in events.Tags()["scalars"] if not t.endswith(("runtime", "per_second"))]
        tags[library.__name__] = {tag: curve(events, tag) for tag in timeless}
    assert tags["footplate"] == tags["transformers"]
