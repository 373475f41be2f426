"""Checkpoints of real runs: where they go on, what may change between sessions, how a run is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils.data import Dataset

import footplate
import tiny
from footplate import EarlyStoppingCallback, Trainer, TrainerCallback, get_last_checkpoint
from footplate.cli.main import main as command_line


def build(folder: Path, data: Any = None, *callbacks: TrainerCallback, **settings: Any) -> Trainer:
    chosen = {
        "max_steps": 12,
        "save_strategy": "steps",
        "save_steps": 4,
        "logging_steps": 2,
        "learning_rate": 0.05,
    }
    arguments = tiny.arguments(folder, **{**chosen, **settings})
    rows = data if data is not None else tiny.regression_data(40)
    return Trainer(
        tiny.Regression(), arguments, train_dataset=rows, eval_dataset=rows, callbacks=list(callbacks)
    )


def weights_of(trainer: Any) -> list[float]:
    return [value.item() for value in trainer.model.parameters()]


def history_of(trainer: Any) -> list[dict[str, Any]]:
    timed = ("runtime", "per_second")
    return [
        {key: value for key, value in entry.items() if not key.endswith(timed)}
        for entry in trainer.state.log_history
    ]


class StopAt(TrainerCallback):
    """Sends a signal after an update."""

    wants_step_data = False

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def stop_and_resume(folder: Path, step: int, make: Any) -> Trainer:
    with pytest.raises(SystemExit) as ending:
        make(folder, StopAt(step)).train()
    assert ending.value.code == 143
    trainer = make(folder)
    trainer.train(resume_from_checkpoint="auto")
    return trainer


def test_auto_starts_where_there_is_nothing_and_resumes_where_there_is(tmp_path):
    trainer = build(tmp_path, max_steps=4)
    trainer.train(resume_from_checkpoint="auto")
    longer = build(tmp_path, max_steps=4)
    assert longer.train(resume_from_checkpoint="auto").global_step == 4
    assert weights_of(longer) == weights_of(trainer)


# ---- where a run goes on ----


class Counting(Dataset):
    """Rows without contents that note who was read."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows, self.read = num_rows, []

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self.read.append(index)
        return {"x": torch.tensor(index / self.num_rows), "labels": torch.tensor(0.0)}


def test_nothing_that_was_seen_is_read_again(tmp_path):
    straight = Counting(64)
    build(tmp_path / "straight", straight, eval_strategy="no", max_steps=8).train()
    build(tmp_path / "run", Counting(64), max_steps=8, save_steps=5).train()
    subprocess.run(["rm", "-r", str(tmp_path / "run" / "checkpoint-8")], check=True)
    resumed = Counting(64)
    build(tmp_path / "run", resumed, max_steps=8).train(resume_from_checkpoint=True)
    assert resumed.read == straight.read[48:]  # the batch that was read ahead is in the checkpoint


def test_a_late_place_in_a_million_samples_is_reached_as_fast_as_an_early_one(tmp_path):
    seconds = {}
    for share in (0.01, 0.9):
        folder, step = tmp_path / str(share), int(1_000_000 * share / 1000)
        rows = Counting(1_000_000)
        first = build(folder, rows, max_steps=1000, per_device_train_batch_size=1000, save_steps=1)
        first.create_optimizer_and_scheduler(1000)
        first.state.global_step, first.state.max_steps = step, 1000
        first._current_run.feed.samples_done, first._current_run.feed.is_begun = step * 1000, True
        first.callback_handler.train_dataloader = None
        first._save_checkpoint(first.model, None)
        rows = Counting(1_000_000)
        resumed = build(
            folder, rows, max_steps=step + 1, per_device_train_batch_size=1000, save_strategy="no"
        )
        begun = time.perf_counter()
        resumed.train(resume_from_checkpoint=True)
        seconds[share] = time.perf_counter() - begun
        assert len(rows.read) == 2000  # the batch of the last update, and the one read ahead
    assert seconds[0.9] < 2 * seconds[0.01] + 1


@pytest.mark.parametrize(
    "change",
    [{"per_device_train_batch_size": 4}, {"gradient_accumulation_steps": 2}, {"dataloader_num_workers": 2}],
    ids=str,
)
def test_a_changed_setting_goes_on_at_the_right_sample(tmp_path, change):
    epoch = {"num_train_epochs": 1, "max_steps": -1}
    straight = Counting(40)
    build(tmp_path / "straight", straight, **epoch).train()
    build(tmp_path / "run", Counting(40), save_steps=2, **epoch).train()
    for later in ("checkpoint-4", "checkpoint-5"):
        subprocess.run(["rm", "-r", str(tmp_path / "run" / later)], check=True)

    seen: list[float] = []

    class Recorder(Trainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
            seen.extend((inputs["x"] * 40).round().int().tolist())
            return super().training_step(model, inputs, num_items_in_batch)

    chosen = {
        "learning_rate": 0.05,
        "logging_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        **epoch,
        **change,
    }
    arguments = tiny.arguments(tmp_path / "run", **chosen)
    Recorder(tiny.Regression(), arguments, train_dataset=Counting(40)).train(resume_from_checkpoint=True)
    assert seen == straight.read[16:]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"per_device_train_batch_size": 8}, {"per_device_train_batch_size": 2}),
        ({"gradient_accumulation_steps": 4}, {"gradient_accumulation_steps": 1}),
    ],
    ids=str,
)
def test_max_steps_are_made_with_smaller_updates_too(tmp_path, before, after):
    build(tmp_path, Counting(16), max_steps=8, save_steps=4, **before).train()
    longer = build(tmp_path, Counting(16), max_steps=14, save_steps=1, **after)
    longer.train(resume_from_checkpoint=True)
    assert longer.state.global_step == 14
    again = build(tmp_path, Counting(16), max_steps=14, save_steps=1, **after)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-11"))
    assert again.state.global_step == 14
    assert history_of(again)[:-1] == history_of(longer)[:-1]


class EndEpochAt(TrainerCallback):
    """Ends every epoch after some updates."""

    def __init__(self, num_updates: int, per_epoch: int) -> None:
        self.share = num_updates / per_epoch

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if abs(state.epoch % 1 - self.share) < 1e-6:
            control.should_epoch_stop = True


@pytest.mark.parametrize("step", [3, 4])
def test_a_run_whose_epochs_are_ended_early_goes_on_with_its_rates(tmp_path, step):
    settings = {"num_train_epochs": 3, "max_steps": -1, "save_steps": 1, "logging_steps": 1}

    def run(checkpoint: str | None) -> Trainer:
        trainer = build(tmp_path, Counting(40), EndEpochAt(2, 5), **settings)
        trainer.train(resume_from_checkpoint=checkpoint)
        return trainer

    straight, resumed = run(None), run(str(tmp_path / f"checkpoint-{step}"))
    assert resumed.state.max_steps == straight.state.max_steps == 15
    assert history_of(resumed) == history_of(straight)


# ---- the same results ----


@pytest.mark.parametrize("step", [3, 5, 8, 10])
def test_the_results_of_a_run_are_those_of_one_never_interrupted(tmp_path, step):
    def make(folder: Path, *callbacks: TrainerCallback) -> Trainer:
        return build(folder, None, *callbacks, eval_strategy="steps", eval_steps=3, eval_on_start=True)

    straight = make(tmp_path / "straight")
    expected = straight.train()
    resumed = stop_and_resume(tmp_path / "run", step, make)
    assert history_of(resumed) == history_of(straight)
    assert weights_of(resumed) == weights_of(straight)
    assert resumed.state.global_step == expected.global_step
    assert history_of(resumed)[-1]["train_loss"] == expected.training_loss


@pytest.mark.parametrize("step", [2, 3, 5])
def test_early_stopping_stops_at_the_same_step(tmp_path, step):
    def make(folder: Path, *callbacks: TrainerCallback) -> Trainer:
        trainer = build(
            folder,
            None,
            EarlyStoppingCallback(3),
            *callbacks,
            eval_strategy="steps",
            eval_steps=1,
            metric_for_best_model="score",
            greater_is_better=False,
        )
        # the measured score is a function of the step, so that both runs see the same ones
        trainer.compute_metrics = lambda prediction: {
            "score": [9.0, 3.0, 2.0, 2.5, 2.6, 2.7, 2.8][min(trainer.state.global_step, 6)]
        }
        return trainer

    straight = make(tmp_path / "straight")
    straight.train()
    resumed = stop_and_resume(tmp_path / "run", step, make)
    assert resumed.state.global_step == straight.state.global_step == 5
    assert history_of(resumed) == history_of(straight)


# ---- with transformers ----


def train_with(library: Any, folder: Path, steps: int, resume: Any = None) -> Any:
    arguments = tiny.arguments(
        folder, library, max_steps=8, save_strategy="steps", save_steps=4, logging_steps=1, learning_rate=1e-3
    )
    trainer = library.Trainer(tiny.bert_classifier(), arguments, train_dataset=tiny.classification_data(53))
    if steps < 8:
        trainer.add_callback(Ending(steps) if library is footplate else foreign(Ending(steps)))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


class Ending(TrainerCallback):
    wants_step_data = False

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if state.global_step >= self.step:
            control.should_training_stop = control.should_save = True
        return control


def foreign(callback: TrainerCallback) -> Any:
    class Foreign(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return callback.on_step_end(args, state, control)

    return Foreign()


@pytest.mark.parametrize(("first", "then"), [(transformers, footplate), (footplate, transformers)])
def test_a_run_begun_by_one_library_is_finished_by_the_other(tmp_path, first, then):
    straight = train_with(footplate, tmp_path / "straight", 8)
    train_with(first, tmp_path / "run", 4)
    resumed = train_with(then, tmp_path / "run", 8, resume=True)
    assert resumed.state.global_step == 8
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


# ---- more than was planned ----


def test_a_run_is_extended_past_its_planned_end(tmp_path):
    build(tmp_path, max_steps=8).train()
    longer = build(tmp_path, max_steps=8)
    assert longer.train(extend_to_steps=12, extend_policy="stretch").global_step == 12
    rates = [entry["learning_rate"] for entry in longer.state.log_history if "learning_rate" in entry]
    assert rates[-1] == pytest.approx(0.05 / 12)
    assert weights_of(longer) != weights_of(build(tmp_path))


def test_the_earlier_name_of_an_extension_works_with_a_notice(tmp_path, caplog):
    build(tmp_path, max_steps=4).train()
    assert build(tmp_path, max_steps=4).train(extend_to=6).global_step == 6
    assert "train(extend_to_steps=6)" in caplog.text


def test_extending_needs_something_to_extend(tmp_path):
    with pytest.raises(ValueError, match="no checkpoint"):
        build(tmp_path).train(extend_to_steps=20)


def test_a_change_that_would_make_another_run_is_refused(tmp_path):
    build(tmp_path, max_steps=4).train()
    with pytest.raises(ValueError, match="seed"):
        build(tmp_path, max_steps=8, seed=7).train(resume_from_checkpoint=True)


# ---- the clock, and signals ----


def test_the_time_allowed_ends_a_run_with_a_checkpoint(tmp_path):
    class Slow(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            time.sleep(0.05)

    short = build(tmp_path / "run", None, Slow(), max_time=0.12)
    step = short.train().global_step
    assert 0 < step < 12
    assert Path(get_last_checkpoint(str(tmp_path / "run"))).name == f"checkpoint-{step}"
    resumed = build(tmp_path / "run")
    resumed.train(resume_from_checkpoint=True)
    straight = build(tmp_path / "straight")
    straight.train()
    assert weights_of(resumed) == weights_of(straight)


def test_saves_come_by_the_clock(tmp_path):
    class Slow(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            time.sleep(0.03)

    build(tmp_path, None, Slow(), save_steps=1000, save_every=0.08).train()
    assert len(list(tmp_path.glob("checkpoint-*"))) >= 3


SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
import tiny
from footplate import Trainer, TrainerCallback

class Announce(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print("step", state.global_step, flush=True)
        time.sleep(0.02)

arguments = tiny.arguments({folder!r}, max_steps=500, save_strategy="steps", save_steps=1000)
Trainer(tiny.Regression(), arguments, train_dataset=tiny.regression_data(), callbacks=[Announce()]).train()
"""


def signal_at_step_3(tmp_path: Path, script: str, number: int) -> tuple[int, str]:
    """The exit code of a script that gets a signal after its third update, and what it printed then."""
    (tmp_path / "script.py").write_text(script.format(tests=str(Path(__file__).parent), folder=str(tmp_path)))
    command = [sys.executable, str(tmp_path / "script.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 3"):
            break
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]
    found = get_last_checkpoint(str(tmp_path))
    assert found is not None
    assert int(found.rsplit("-", 1)[1]) >= 3
    return process.returncode, output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda number: number.name)
def test_a_signal_seals_a_checkpoint_and_ends_the_process(tmp_path, number):
    assert signal_at_step_3(tmp_path, SCRIPT, number)[0] == 128 + number


def test_the_first_ctrl_c_seals_a_checkpoint_and_raises_keyboard_interrupt(tmp_path):
    code, _ = signal_at_step_3(tmp_path, SCRIPT, signal.SIGINT)
    # as Python ends after an interrupt that nobody caught; with torch's compiler loaded, that is 1
    assert code in (-signal.SIGINT, 1)


def test_what_waits_for_a_keyboard_interrupt_runs_after_the_checkpoint(tmp_path):
    indented = "".join(f"    {line}\n" for line in SCRIPT.strip().splitlines())
    script = (
        f"try:\n{indented}except KeyboardInterrupt:\n    import os\n    print(os.listdir({{folder!r}}))\n"
    )
    code, output = signal_at_step_3(tmp_path, script, signal.SIGINT)
    assert code == 0
    assert "checkpoint-" in output


def test_in_a_notebook_an_interrupt_seals_a_checkpoint_and_raises(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    # the kernel's own button sends SIGINT; here the cell sends it itself, at a known update
    ending = f"""
import os, signal
class Press(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            os.kill(os.getpid(), signal.SIGINT)
try:
    arguments = tiny.arguments({str(tmp_path)!r}, max_steps=50, save_strategy="steps", save_steps=1000)
    Trainer(
        tiny.Regression(), arguments, train_dataset=tiny.regression_data(), callbacks=[Press()]
    ).train()
    print("went on")
except KeyboardInterrupt:
    print("interrupted", [name for name in os.listdir({str(tmp_path)!r}) if name.startswith("checkpoint")])
"""
    start = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tiny
from footplate import Trainer, TrainerCallback
"""
    cells = [nbformat.v4.new_code_cell(start), nbformat.v4.new_code_cell(ending)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    printed = "".join(output.get("text", "") for output in notebook.cells[1].outputs)
    assert "interrupted ['checkpoint-3']" in printed


def test_the_command_lists_the_checkpoints_of_a_run(tmp_path, capsys):
    build(tmp_path, eval_strategy="steps", eval_steps=4, load_best_model_at_end=True).train()
    (tmp_path / "checkpoint-4" / "model.safetensors").write_bytes(b"cut")
    command_line(["checkpoints", str(tmp_path)])
    printed = capsys.readouterr().out
    for word in ("4", "8", "12", "best", "last"):
        assert word in printed
    command_line(["checkpoints", str(tmp_path), "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == 3
