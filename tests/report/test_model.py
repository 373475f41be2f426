"""The model in the report: what a run tells, and what anybody may have written into its journal."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import tiny
from footplate import Trainer, TrainerCallback
from footplate.instruments.outline import Outline
from footplate.report.model import ModelTree
from footplate.report.page import build_page, describe_runs
from footplate.report.source import RunSource


def events_of(folder, kind="model"):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def train(folder, given=None, resume=None, **settings):
    args = tiny.arguments(folder, **{"report": True, "max_steps": 4, **settings})
    trainer = Trainer(tiny.gpt(), args, train_dataset=tiny.causal_data(16), **(given or {}))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_a_run_tells_its_model_once_in_a_few_kilobytes(tmp_path):
    trainer = train(tmp_path)
    (event,) = events_of(tmp_path)
    assert event["parameters"] == sum(value.numel() for value in trainer.model.parameters())
    assert event["tied"] == [["lm_head.weight", "transformer.wte.weight"]]
    assert event["optimizer"] == "AdamW"
    states = [v for state in trainer.optimizer.state.values() for v in state.values() if v.dim()]
    assert event["optimizer_bytes"] == sum(value.nbytes for value in states)
    assert len(json.dumps(event)) < 4000


def test_a_resumed_run_takes_the_place_of_what_was_told_before(tmp_path):
    train(tmp_path, save_strategy="steps", save_steps=2)
    (before,) = events_of(tmp_path)
    changed = tiny.gpt()
    changed.register_buffer("extra", torch.zeros(1000), persistent=False)
    args = tiny.arguments(tmp_path, report=True, max_steps=6, save_strategy="steps", save_steps=2)
    Trainer(changed, args, train_dataset=tiny.causal_data(16)).train(resume_from_checkpoint=True)
    assert len(events_of(tmp_path)) == 2
    source = RunSource(tmp_path)
    source.update()
    shown = source.data.notes["model"].to_plain()
    assert shown["parameters"] == before["parameters"]
    assert shown["buffer_bytes"] == before["buffer_bytes"] + 4000


def test_a_run_is_the_same_with_and_without_a_report(tmp_path):
    torch.manual_seed(3)
    plain = train(tmp_path / "plain", report=False, logging_steps=1)
    told = train(tmp_path / "told", report=True, logging_steps=1)
    assert not (tmp_path / "plain" / "events.jsonl").exists()
    losses = [[entry.get("loss") for entry in one.state.log_history] for one in (plain, told)]
    assert losses[0] == losses[1]
    pairs = zip(plain.model.parameters(), told.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_model_that_cannot_be_read_does_not_stop_the_run(tmp_path):
    class Odd(tiny.Regression):
        @property
        def original_name(self):
            raise RuntimeError("it has none")

    args = tiny.arguments(tmp_path, report=True, max_steps=2)
    trainer = Trainer(Odd(), args, train_dataset=tiny.regression_data(16))
    trainer.train()
    assert trainer.state.global_step == 2
    assert events_of(tmp_path) == []


def test_a_callback_hears_of_the_model_also_without_a_report(tmp_path):
    heard = []

    class Hears(TrainerCallback):
        def on_note(self, args, state, control, kind, values, **kwargs):
            heard.append((kind, values["parameters"]))

    train(tmp_path, {"callbacks": [Hears()]}, report=False)
    assert [kind for kind, _ in heard] == ["model"]


GOOD = Outline(nn.Sequential(nn.Linear(2, 3), nn.ReLU())).to_note()


@pytest.mark.parametrize(
    "changed",
    [
        {"lines": None},
        {"lines": []},
        {"lines": [["short"]]},
        {"lines": [GOOD["lines"][0], {"depth": 3}]},
        {"lines": "text"},
    ],
)
def test_lines_of_another_form_are_left_out(changed):
    tree = ModelTree()
    tree.add({**GOOD, **changed})
    assert tree.to_plain() is None


def test_values_of_another_kind_become_plain_ones_and_long_ones_are_cut():
    tree = ModelTree()
    line = [1e9, "n" * 5000, {"a": 1}, -3, True, "7", float("nan"), None, ["x"], float("inf")]
    totals = {"model": 3, "parameters": float("nan"), "tied": [["a"], 3, ["b" * 9999, "c", "d"]] * 9}
    tree.add({**GOOD, **totals, "optimizer": ["x"], "lines": [line] * 999})
    shown = tree.to_plain()
    assert len(shown["lines"]) == 60
    first = shown["lines"][0]
    assert (first["depth"], first["count"], first["parameters"], first["num_bytes"]) == (40, 0, 0, 0)
    assert len(first["name"]) <= 120
    assert (first["kind"], first["dtype"], first["tied"]) == ("", "", "")
    assert shown["parameters"] == 0
    assert len(json.dumps(shown, allow_nan=False)) < 40_000


# ---- in the browser ----

HOSTILE = "<img src=x onerror=\"document.title = 'pwned'\">"


def show(chromium, written, note, **window):
    written.begin()
    written.write("model", step=0, **note)
    source = RunSource(written.folder)
    source.update()
    path = written.folder / "report.html"
    path.write_text(build_page(describe_runs([source.data])), encoding="utf-8")
    chromium.show(path.as_uri(), **window)


def note_of(model, **more):
    return {**Outline(model).to_note(), "optimizer": "AdamW", "optimizer_bytes": 8_000_000, **more}


def test_the_tree_is_shown_with_totals_in_words(chromium, written):
    model = tiny.gpt()
    model.transformer.wpe.weight.requires_grad_(False)
    show(chromium, written, note_of(model))
    words = chromium.find("#model .about-model").text
    total = sum(value.numel() for value in model.parameters())
    trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
    assert words.startswith(f"{total:,} parameters, {trained:,} of them trained (")
    assert "AdamW 8 MB" in words
    assert "Shared, and counted once: lm_head.weight is transformer.wte.weight." in words
    rows = chromium.run("return [...document.querySelectorAll('#model tbody tr')].map((r) => r.innerText)")
    (blocks,) = [row for row in rows if "h.0 ... h.1" in row]
    assert "2 \N{MULTIPLICATION SIGN} GPT2Block" in blocks
    assert "100 %" in blocks
    indents = chromium.run(
        "return [...document.querySelectorAll('#model .module')]"
        ".map((m) => parseFloat(getComputedStyle(m).paddingLeft))"
    )
    assert indents[0] == 0 < indents[1] < indents[2]
    widths = chromium.run(
        "return [...document.querySelectorAll('#model tbody tr:first-child .share i')]"
        ".map((i) => i.offsetWidth)"
    )
    assert widths[0] > 10 * widths[1] > 0
    assert chromium.errors() == []


def test_a_long_tree_is_folded_and_fits_a_phone(chromium, written):
    parts = {f"part_{n}": nn.Sequential(nn.Linear(n + 1, 2), nn.ReLU()) for n in range(15)}
    show(chromium, written, note_of(nn.ModuleDict(parts)), width=390)
    assert not chromium.run("return document.querySelector('#model details').open")
    chromium.run("document.querySelector('#model details').open = true")
    assert chromium.run("return document.documentElement.scrollWidth") <= 390
    assert chromium.run("return document.querySelector('#model .scroll').scrollWidth") <= 390
    assert chromium.errors() == []


def test_names_of_modules_stay_text(chromium, written):
    note = note_of(nn.Linear(2, 2))
    note["lines"][0][1] = note["lines"][0][2] = note["model"] = note["optimizer"] = HOSTILE
    note["tied"], note["num_tied"] = [[HOSTILE, HOSTILE]], 1
    show(chromium, written, note)
    assert HOSTILE in chromium.find("#model tbody").text
    assert "pwned" not in chromium.driver.title
    assert chromium.errors() == []


def test_a_run_without_a_model_has_no_such_section(chromium, written):
    written.begin()
    source = RunSource(written.folder)
    source.update()
    path = written.folder / "report.html"
    path.write_text(build_page(describe_runs([source.data])), encoding="utf-8")
    chromium.show(path.as_uri())
    assert chromium.run("return document.querySelector('#model')") is None
