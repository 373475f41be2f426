"""A resume with other data, another model or other versions says so in its table, and goes on if it can."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer, TrainerState

ROWS = tiny.regression_data(16)


def build(folder, rows=ROWS, model=None, **settings):
    arguments = tiny.arguments(
        folder, **{"save_strategy": "steps", "save_steps": 2, "max_steps": 4, **settings}
    )
    return Trainer(model or tiny.Regression(), arguments, train_dataset=rows)


def table_of(caplog):
    found = [r.getMessage() for r in caplog.records if "changed since the checkpoint" in r.getMessage()]
    return found[0] if found else ""


@pytest.fixture
def folder(tmp_path, caplog):
    build(tmp_path, max_steps=2).train()
    caplog.set_level(logging.WARNING)
    caplog.clear()
    return tmp_path


def edit_versions(folder, **versions):
    path = folder / "checkpoint-2" / "trainer_state.json"
    state = json.loads(path.read_text())
    state["stateful_callbacks"]["RunFacts"]["attributes"]["saved"]["versions"].update(versions)
    path.write_text(json.dumps(state))
    (path.parent / "manifest.json").unlink()  # its hashes are of the file before


def test_the_same_run_again_notices_nothing(folder, caplog):
    build(folder, max_steps=2).train(resume_from_checkpoint=True)
    assert table_of(caplog) == ""


def test_data_of_another_length_is_noticed_with_what_it_means(folder, caplog):
    assert build(folder, rows=[*ROWS, *ROWS[:4]]).train(resume_from_checkpoint=True).global_step == 4
    assert "len(train_dataset)" in table_of(caplog)
    assert "16" in table_of(caplog)
    assert "20" in table_of(caplog)
    assert "some may come twice and others never" in table_of(caplog)


def test_other_data_of_the_same_length_is_noticed(folder, caplog):
    other = [{**row, "x": row["x"] + 1} for row in ROWS]
    build(folder, rows=other).train(resume_from_checkpoint=True)
    assert "first row of train_dataset" in table_of(caplog)


def test_another_table_is_noticed_by_its_fingerprint(tmp_path, caplog):
    from datasets import Dataset as Table

    columns = {"x": [float(i) for i in range(16)], "labels": [1.0] * 16}
    build(tmp_path, rows=Table.from_dict(columns), max_steps=2).train()
    build(tmp_path, rows=Table.from_dict(columns), max_steps=2).train(resume_from_checkpoint=True)
    assert table_of(caplog) == ""
    changed = {**columns, "labels": [*columns["labels"][:-1], 9.0]}  # the last row alone
    build(tmp_path, rows=Table.from_dict(changed)).train(resume_from_checkpoint=True)
    assert "train_dataset" in table_of(caplog)
    assert "same size and first row" in table_of(caplog)


class Renamed(tiny.Regression):
    pass


class Wider(tiny.Regression):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(3))


def test_another_class_of_model_is_noticed_and_resumes(folder, caplog):
    assert build(folder, model=Renamed()).train(resume_from_checkpoint=True).global_step == 4
    assert "'Regression'" in table_of(caplog)
    assert "'Renamed'" in table_of(caplog)


def test_other_shapes_are_noticed_and_refused_as_ever(folder, caplog):
    with pytest.raises(ValueError, match="other sizes"):
        build(folder, model=Wider()).train(resume_from_checkpoint=True)
    assert "model" in table_of(caplog)


def test_other_versions_are_noticed_and_never_refused(folder, caplog):
    edit_versions(folder, torch="1.0", footplate="0.0.1")
    trainer = build(folder)
    assert trainer.train(resume_from_checkpoint=str(folder / "checkpoint-2")).global_step == 4
    assert "version of torch" in table_of(caplog)
    assert "version of footplate" in table_of(caplog)
    assert "'1.0'" in table_of(caplog)


def test_a_resumed_run_stores_its_own_facts(folder, caplog):
    build(folder, rows=[*ROWS, *ROWS[:4]]).train(resume_from_checkpoint=True)
    state = TrainerState.load_from_json(folder / "checkpoint-4" / "trainer_state.json")
    assert state.stateful_callbacks["RunFacts"]["attributes"]["saved"]["data"]["rows"] == 20


@pytest.mark.parametrize("damage", ["none", "a list", "no attributes"])
def test_a_checkpoint_without_facts_or_with_damaged_ones_resumes(folder, damage):
    path = folder / "checkpoint-2" / "trainer_state.json"
    state = json.loads(path.read_text())
    saved = state["stateful_callbacks"]
    if damage == "none":
        del saved["RunFacts"]
    else:
        saved["RunFacts"] = {"attributes": {"saved": [1, 2]}} if damage == "a list" else {"args": {}}
    path.write_text(json.dumps(state))
    (path.parent / "manifest.json").unlink()  # its hashes are of the file before
    assert build(folder).train(resume_from_checkpoint=str(path.parent)).global_step == 4


class Doubled(Trainer):
    def compute_loss(self, model, inputs, **kwargs):
        return 2 * super().compute_loss(model, inputs, **kwargs)


Changed = type("Doubled", (Trainer,), {})


def _compute_loss(self, model, inputs, **kwargs):
    return 3 * Trainer.compute_loss(self, model, inputs, **kwargs)


Changed.compute_loss = _compute_loss


def test_other_code_of_a_joint_is_noticed_and_never_refused(tmp_path, caplog):
    settings = {"save_strategy": "steps", "save_steps": 2}

    def build_mine(kind, max_steps):
        arguments = tiny.arguments(tmp_path, max_steps=max_steps, **settings)
        return kind(tiny.Regression(), arguments, train_dataset=ROWS, compute_metrics=lambda prediction: {})

    build_mine(Doubled, 2).train()
    caplog.set_level(logging.WARNING)
    build_mine(Doubled, 2).train(resume_from_checkpoint=True)
    assert table_of(caplog) == ""
    assert build_mine(Changed, 4).train(resume_from_checkpoint=True).global_step == 4
    assert "code of Doubled.compute_loss" in table_of(caplog)
    assert "harmless" in table_of(caplog)


def test_another_length_is_said_once(folder, caplog):
    build(folder, rows=[*ROWS, *ROWS[:4]]).train(resume_from_checkpoint=True)
    told = [r.getMessage() for r in caplog.records if "come twice" in r.getMessage()]
    assert len(told) == 1
