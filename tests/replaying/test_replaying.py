"""An update that is made again has the bits of the log, and says what was in it."""

from __future__ import annotations

import json
import math
import random
import shutil
from functools import partial

import pytest

import footplate
import tiny
from footplate.instruments.measures import ModuleMeasure
from footplate.integrations.base import TrackerCallback
from footplate.replaying.folder import read_run
from footplate.replaying.text import show_modules
from replayed import NUM_ROWS, Masked, Noisy, builder, contents

SETUPS = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 3, "lr_scheduler_type": "cosine"},
    "workers": {"dataloader_num_workers": 2, "gradient_accumulation_steps": 2, "max_steps": 8},
    "evaluation": {"eval_strategy": "steps", "eval_steps": 3, "loss_weighting": "items"},
    "precision": {"bf16": True, "gradient_accumulation_steps": 2},
}


def train(folder, **options):
    build = builder(folder, **options)
    build().train()
    return build


@pytest.mark.parametrize("name", SETUPS)
def test_random_updates_come_out_as_logged_to_the_last_bit(name, tmp_path):
    """Dropout and augmentation in all of them; 20 updates are chosen at random over the runs."""
    build = train(tmp_path / "run", **SETUPS[name])
    before, record = contents(tmp_path / "run"), read_run(tmp_path / "run")
    for step in random.Random(name).sample(range(1, record.last_step + 1), 4):
        found = footplate.replay(tmp_path / "run", step, build)
        log = record.logs[step]
        assert (found.loss, found.grad_norm) == (pytest.approx(log["loss"]), log["grad_norm"])
        assert found.learning_rate == log["learning_rate"]
        assert found.is_same
        assert found.compared_steps == list(range(found.first_step + 1, step + 1))
        assert found.first_step == (step - 1) // 4 * 4
        assert found.first_nonfinite is None
        assert all(row.number is not None for row in found.rows)
    assert contents(tmp_path / "run") == before


def test_the_rows_are_those_that_the_update_was_made_of(tmp_path):
    build = train(tmp_path / "run", gradient_accumulation_steps=2, keep_columns=["id"])
    for step in (4, 5, 6):  # the first after a checkpoint begins with a batch that was read before it
        found = footplate.replay(tmp_path / "run", step, build)
        assert len(found.rows) in (5, 6)
        for row in found.rows:
            assert f"id={row.number}" in str(row.shown["input"])
            assert row.loss > 0
            assert row.is_finite
        assert [(row.micro_batch, row.place) for row in found.rows][:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_modules_have_ranges_gradients_and_the_size_of_the_update(tmp_path):
    found = footplate.replay(tmp_path / "run", 7, train(tmp_path / "run"))
    modules = {module.name: module for module in found.modules}
    assert list(modules) == ["first.0", "first.1", "first.2", "first", "second", "(model)"]
    assert modules["first.1"].low == 0.0
    assert modules["first.1"].grad_norm is None
    squares = sum(modules[name].grad_norm ** 2 for name in ("first.0", "second"))
    assert math.sqrt(squares) == pytest.approx(found.grad_norm, rel=1e-6)
    assert 0 < modules["second"].update_ratio < 1


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_the_table_of_modules_names_them_in_any_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    names = [f"base_model.model.layers.{layer}.attn.{one}_proj.lora_A" for layer in (0, 11) for one in "qkv"]
    numbers = {"low": -0.0123, "high": 0.0456, "grad_norm": 0.00123, "weight_norm": 1.23, "update_norm": 4e-5}
    modules = [ModuleMeasure(name, "Linear", **numbers) for name in names]
    lines = show_modules(modules, shows_all=True).splitlines()
    assert max(map(len, lines[1:])) <= columns
    for name, line in zip(names, lines[3:], strict=True):
        assert line.split()[0].removeprefix("…") in name
        assert name[-16:] in line
        assert "0.00123" in line
    assert ("kind" in lines[1]) == (columns >= 100)


def test_a_nan_planted_in_a_layer_is_found_by_row_module_and_update(tmp_path, caplog):
    model = partial(Noisy, fails_at=(7, "first.1", 2))
    build = train(tmp_path / "run", model=model)
    hint = next(line for line in caplog.messages if "footplate replay" in line)
    step = int(hint.split("--step ")[1].split()[0])
    assert step == 7
    found = footplate.replay(tmp_path / "run", step, build)
    assert found.first_nonfinite.name == "first.1"
    (row,) = found.nonfinite_rows
    assert (row.micro_batch, row.place, row.nonfinite_in) == (0, 2, "first.1")
    text = str(found)
    assert "first.1 (ReLU) is the first module whose output is not" in text
    assert f"in row {row.number}" in text
    assert found.is_same  # NaN is as logged, too


@pytest.mark.parametrize("logging_steps", [1, 12])
def test_the_update_that_was_not_finite_is_named_however_seldom_a_run_logs(logging_steps, tmp_path, caplog):
    model = partial(Noisy, fails_at=(6, "second", 0))
    train(tmp_path / "run", model=model, logging_steps=logging_steps, on_nonfinite="skip")
    hints = [line for line in caplog.messages if "footplate replay" in line]
    assert len(hints) == 1
    assert f"footplate replay {tmp_path / 'run'} --step 6" in hints[0]


def test_an_update_that_raises_is_made_again_up_to_its_error(tmp_path, caplog):
    model = partial(Noisy, fails_at=(6, "second", 1))
    build = builder(tmp_path / "run", model=model, on_nonfinite="raise", save_on_error=False)
    with pytest.raises(FloatingPointError):
        build().train()
    assert "--step 6" in caplog.text
    found = footplate.replay(tmp_path / "run", 6, build)
    assert found.error.startswith("FloatingPointError: Update 6")
    assert found.first_nonfinite.name == "second"
    assert [row.place for row in found.nonfinite_rows] == [1]


def test_a_damaged_row_of_the_data_is_found_by_its_number(tmp_path, caplog):
    build = train(tmp_path / "run", data=Masked(NUM_ROWS, damaged=17), on_nonfinite="skip", max_steps=10)
    step = int(next(line for line in caplog.messages if "--step" in line).split("--step ")[1].split()[0])
    found = footplate.replay(tmp_path / "run", step, build)
    assert [row.number for row in found.nonfinite_rows] == [17]
    assert found.nonfinite_rows[0].nonfinite_inputs == ["x"]
    assert not math.isfinite(found.nonfinite_rows[0].loss)
    assert "the data of row 17 holds NaN or infinity in x" in str(found)


def test_after_the_damage_an_earlier_update_is_named(tmp_path):
    build = train(tmp_path / "run", model=partial(Noisy, fails_at=(6, "second", 0)), max_steps=8)
    text = str(footplate.replay(tmp_path / "run", 8, build))
    assert "were damaged before this update" in text
    assert "update 6 was the first that is not finite: --step 6" in text


def test_a_compiled_model_gets_no_hooks(tmp_path):
    options = {"torch_compile": True, "torch_compile_backend": "eager", "max_steps": 6}
    build = train(
        tmp_path / "run", model=tiny.Regression, data=tiny.regression_data(), collate=None, **options
    )
    found = footplate.replay(tmp_path / "run", 6, build)
    assert found.is_same
    assert all(module.low is None for module in found.modules)
    assert all(module.grad_norm is not None for module in found.modules)
    assert "With torch_compile no output of a module is seen" in str(found)


def test_outputs_that_are_computed_again_in_backward_count_once(tmp_path):
    tests = {"model": tiny.bert_classifier, "collate": None, "data": tiny.classification_data(NUM_ROWS)}
    plain = train(tmp_path / "plain", **tests)
    saving = train(tmp_path / "saving", **tests, gradient_checkpointing=True)
    found = [
        footplate.replay(tmp_path / name, 6, build, save=tmp_path / f"{name}.json")
        for name, build in (("plain", plain), ("saving", saving))
    ]
    assert all(part.is_same for part in found)
    assert found[0].modules == found[1].modules  # hashes of all outputs and gradients too


# ---- where it starts ----


def test_what_was_rotated_away_is_made_again_from_what_is_there(tmp_path):
    build = train(tmp_path / "run")
    for step in (8, 12, 16):
        shutil.rmtree(tmp_path / "run" / f"checkpoint-{step}")
    found = footplate.replay(tmp_path / "run", 15, build)
    assert (found.first_step, found.is_same) == (4, True)
    assert "made again from checkpoint-4 (10 updates before it" in str(found)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, caplog):
    build = train(tmp_path / "run")
    weights = tmp_path / "run" / "checkpoint-12" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"bits")
    found = footplate.replay(tmp_path / "run", 14, build)
    assert (found.first_step, found.is_same) == (8, True)
    assert "checkpoint-12 is damaged and passed over" in caplog.text


def test_a_run_without_checkpoints_is_made_again_from_its_start(tmp_path, capsys):
    build = train(tmp_path / "run", save_strategy="no", max_steps=6)
    found = footplate.replay(tmp_path / "run", 5, build)
    assert (found.checkpoint, found.is_same, len(found.compared_steps)) == (None, True, 5)
    assert "From the start of the run: 4 updates before update 5" in capsys.readouterr().err


def test_a_run_made_again_from_its_start_with_other_settings_or_weights_is_judged(tmp_path, caplog):
    train(tmp_path / "run", save_strategy="no", max_steps=6)
    other = builder(tmp_path / "run", save_strategy="no", max_steps=6, learning_rate=0.02)
    found = footplate.replay(tmp_path / "run", 3, other)
    assert (found.is_same, found.changed) == (False, ["learning_rate"])
    assert "learning_rate  0.01  0.02  applied" in caplog.text
    unseeded = builder(tmp_path / "run", model=partial(Noisy, seed=1), save_strategy="no", max_steps=6)
    found = footplate.replay(tmp_path / "run", 3, unseeded)
    assert (found.is_same, found.changed) == (False, [])
    assert "only if its model begins with the same weights" in str(found)


def test_checkpoints_that_are_gone_are_asked_for(tmp_path):
    build = train(tmp_path / "run", max_steps=10, save_total_limit=1)
    with pytest.raises(ValueError, match=r"are gone: .* wrote some at 4\. .* add --from-start to make all 6"):
        footplate.replay(tmp_path / "run", 7, build)
    assert footplate.replay(tmp_path / "run", 7, build, from_start=True).is_same


def test_an_update_that_was_not_logged_is_judged_by_the_logs_before_it(tmp_path):
    build = train(tmp_path / "run", logging_steps=3)
    found = footplate.replay(tmp_path / "run", 8, build)
    assert (found.compared_steps, found.is_same) == ([6], True)
    assert "This update was not logged; the 1 log on the way" in str(found)


# ---- what is refused, and what is noticed ----


def test_steps_that_the_run_does_not_have_are_refused(tmp_path):
    build = train(tmp_path / "run", max_steps=6)
    with pytest.raises(ValueError, match="ended with update 6, so it has no update 7"):
        footplate.replay(tmp_path / "run", 7, build)
    with pytest.raises(ValueError, match="updates count from 1"):
        footplate.replay(tmp_path / "run", 0, build)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    build = train(tmp_path / "run", max_steps=6)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is not the folder of a run"):
        footplate.replay(tmp_path / "empty", 2, build)
    with pytest.raises(ValueError, match="Did you mean"):
        footplate.replay(tmp_path / "run" / "checkpoint-4", 2, build)
    with pytest.raises(ValueError, match="is not a folder"):
        footplate.replay(tmp_path / "nowhere", 2, build)
    with pytest.raises(ValueError, match="does not say which script trained"):
        footplate.replay(tmp_path / "run", 2)


def test_a_change_of_settings_is_shown_and_blamed(tmp_path, caplog):
    train(tmp_path / "run")
    found = footplate.replay(tmp_path / "run", 10, builder(tmp_path / "run", learning_rate=0.02))
    assert not found.is_same
    assert found.exit_code == 1
    assert {entry.key for entry in found.mismatches} >= {"learning_rate"}
    assert "What has changed since the checkpoint: learning_rate." in str(found)
    assert "applied: the curve continues with this as its highest rate" in caplog.text
    assert "output_dir" not in found.changed


def test_a_change_of_data_is_shown_and_blamed(tmp_path, caplog):
    train(tmp_path / "run")
    found = footplate.replay(tmp_path / "run", 10, builder(tmp_path / "run", data=Masked(NUM_ROWS, 3)))
    assert "What has changed since the checkpoint" in caplog.text
    assert any("data" in name for name in found.changed)


def test_a_setting_that_no_resume_allows_is_refused(tmp_path):
    train(tmp_path / "run")
    with pytest.raises(ValueError, match="seed: was 42, is 1"):
        footplate.replay(tmp_path / "run", 10, builder(tmp_path / "run", seed=1))


@pytest.mark.parametrize("step", [2, 6])
def test_a_replay_rehearses_nothing(tmp_path, caplog, step):
    caplog.set_level("INFO")
    build = train(tmp_path / "run", max_steps=6, rehearsal="full")
    assert "The rehearsal:" in caplog.text
    caplog.clear()
    found = footplate.replay(tmp_path / "run", step, build)
    assert (found.is_same, found.changed) == (True, [])
    assert "rehearsal" not in caplog.text


class Sending(TrackerCallback):
    """Notes what a tracker would send."""

    name = "sending"
    sent: list[str] = []

    def open(self, run):
        self.sent.append("open")

    def write(self, values, step):
        self.sent.append(f"log {step}")


@pytest.mark.parametrize("way", ["add_callback", "the handler", "an evaluation before it"])
def test_a_tracker_that_the_script_adds_to_its_trainer_sends_nothing(tmp_path, way):
    build = train(tmp_path / "run", max_steps=6)

    def build_and_add():
        trainer = build()
        if way == "the handler":
            trainer.callback_handler.add_callback(Sending())
        else:
            trainer.add_callback(Sending())
        if way == "an evaluation before it":
            trainer.evaluate()
        return trainer

    Sending.sent.clear()
    footplate.replay(tmp_path / "run", 5, build_and_add)
    assert Sending.sent == []
    build_and_add().evaluate()  # outside of a replay it does
    assert Sending.sent


# ---- two runs ----


def test_two_runs_are_compared_at_the_same_update(tmp_path):
    build = train(tmp_path / "a")
    train(tmp_path / "b")
    assert footplate.replay(tmp_path / "a", 6, build, compare=tmp_path / "b").differences == []
    train(tmp_path / "c", learning_rate=0.02)
    found = footplate.replay(tmp_path / "a", 1, build, compare=tmp_path / "c")
    assert [(entry.what, entry.module) for entry in found.differences] == [("update", "first.0")]
    found = footplate.replay(tmp_path / "a", 6, build, compare=tmp_path / "c")
    assert [entry.what for entry in found.differences] == ["weights", "output", "gradient", "update"]
    assert "first in first.0 (Linear) (norm" in str(found)


def test_a_run_is_compared_with_what_was_saved_of_another(tmp_path):
    build = train(tmp_path / "a")
    train(tmp_path / "b", seed=3)
    footplate.replay(tmp_path / "b", 2, build, own_settings=True, save=tmp_path / "b.json")
    found = footplate.replay(tmp_path / "a", 2, build, compare=tmp_path / "b.json")
    assert "rows" in [entry.what for entry in found.differences]
    (tmp_path / "other.json").write_text(json.dumps({"no": "measures"}))
    with pytest.raises(ValueError, match="does not hold what a replay measured"):
        footplate.replay(tmp_path / "a", 2, build, compare=tmp_path / "other.json")
