"""The examples in the documents run, and the files they name exist."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import footplate
import tiny

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def code_blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def run_page(tmp_path, monkeypatch):
    """Runs the examples of a page one after the other, as a reader would, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, **given: Any) -> dict[str, Any]:
        names = {"__name__": "example", **given}
        for number, block in enumerate(code_blocks(ROOT / "docs" / name)):
            exec(compile(block, f"{name}, block {number}", "exec", dont_inherit=True), names)
        return names

    return run


@pytest.mark.parametrize("document", ["README.md", "docs/index.md"])
def test_the_import_that_changes_can_be_made_before_and_after(document):
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)
    before, after = diff.splitlines()
    assert before.startswith("- from transformers import ")
    assert after.removeprefix("+ ") == before.removeprefix("- ").replace("transformers", "footplate")
    for line in (before, after):
        exec(line[2:], {})


def test_the_first_run_finds_the_arms_of_two_spirals(run_page, tmp_path, capsys):
    names = run_page("start.md")
    assert names["trainer"].state.epoch == 42
    assert max(names["trainer"].history["eval_accuracy"]) > 0.95
    assert "[0 1 0 1]" in capsys.readouterr().out
    named = {"report.html", "events.jsonl", "log_history.csv", "samples.jsonl"}
    assert named <= {path.name for path in (tmp_path / "runs" / "first").iterdir()}


@pytest.mark.slow  # two processes that load torch
def test_the_first_run_goes_on_after_ctrl_c(tmp_path):
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert "Set `num_train_epochs=4000`" in page
    script = code_blocks(ROOT / "docs" / "start.md")[0]
    (tmp_path / "train.py").write_text(script.replace("num_train_epochs=40,", "num_train_epochs=4000,"))
    command = [sys.executable, "train.py"]
    resumed = []
    for _ in range(2):
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=tmp_path, text=True, **streams) as run:
            begins = next(line for line in run.stderr if line.startswith("event=run_begin"))
            resumed.append(re.findall(r"resumed_step=(\d+)", begins))
            time.sleep(1.5)
            run.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in run.stderr.read()
    assert resumed[0] == []
    assert int(resumed[1][0]) > 0


def test_the_loop_of_the_pictures_gives_the_weights_of_the_trainer(run_page, capsys):
    names = run_page("how-it-works.md")
    assert names["state"]["global_step"] == 6
    assert "model.safetensors" in capsys.readouterr().out


def test_every_change_to_the_trainer_works(run_page, capsys):
    names = run_page("changing-the-trainer.md")
    printed = capsys.readouterr().out
    assert "Samples (eval) at step 30" in printed
    assert "Samples (train) at step 20" in printed
    assert "step 20: [" in printed
    assert "evaluation will give neither eval_loss nor metrics" in names["heard"][0]


def test_the_guide_names_every_joint():
    docs = ROOT / "docs"
    guide = (docs / "changing-the-trainer.md").read_text(encoding="utf-8")
    table = guide.split("## Methods to override")[1].split("```")[0]
    named = re.findall(
        r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "| `" in line)
    )
    (listed,) = re.findall(
        r"^The joints: (.*?)\.", (docs / "architecture.md").read_text("utf-8"), re.S | re.M
    )
    assert sorted(named) == sorted(re.findall(r"`(\w+)`", listed))
    assert [name for name in named if not hasattr(footplate.Trainer, name)] == []


def test_the_glue_classifier_learns_negation(run_page, tmp_path, capsys):
    names = run_page("case-glue.md")
    assert names["metrics"]["eval_negated_accuracy"] > 0.9
    assert len((tmp_path / "runs/glue/predictions.tsv").read_text().splitlines()) == 21
    assert "not" in capsys.readouterr().out


def test_the_chat_model_learns_to_be_friendly(run_page, capsys):
    run_page("case-chat.md")
    printed = capsys.readouterr().out
    assert "it is white , my friend" in printed
    assert "step 80: yellow" in printed


def test_each_mistake_of_the_page_is_explained(run_page, capsys):
    run_page("troubleshooting.md")
    printed = capsys.readouterr().out
    for words in (
        "returned no loss",
        "does not pad",
        "Did you mean 'learning_rate'",
        "Update 1 has loss inf",
    ):
        assert words in printed


@pytest.mark.parametrize(
    ("column", "value"), [("labels", 7), ("labels", 1.0), ("input_ids", torch.tensor([99, 0, 0]))]
)
def test_what_torch_says_is_explained(column, value, tmp_path):
    guide = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    section = guide.split("## What torch says")[1].split("\n## ")[0]
    row = {"input_ids": torch.tensor([1, 2, 3]), "labels": 1}

    class Sorter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(8, 3)

        def forward(self, input_ids, labels=None):
            logits = self.table(input_ids).mean(1)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    trainer = tiny.build_trainer(tmp_path / "run", Sorter(), [{**row, column: value}] * 4, max_steps=1)
    with pytest.raises((RuntimeError, IndexError)) as error:
        trainer.train()
    said = [words.split(" … ") for words in re.findall(r"^\| \*(.+?)\* \|", section, flags=re.MULTILINE)]
    assert len(said) == 6
    assert any(all(part in str(error.value) for part in parts) for parts in said), error.value


def test_evaluation_gives_each_set_its_metrics(run_page, capsys):
    names = run_page("evaluation.md")
    assert names["metrics"]["eval_new_accuracy"] > 0.8
    assert "new is hardest around row" in capsys.readouterr().out
    assert names["streaming"].evaluate()["eval_accuracy"] > 0.8
    assert isinstance(names["limited"].predict(names["make_points"](200)).predictions, np.memmap)


def test_a_run_begins_and_then_goes_on_from_its_newest_checkpoint(run_page, tmp_path):
    for num_steps in (2, 4):
        settings = {"max_steps": num_steps, "save_strategy": "steps", "save_steps": 2, "logging_steps": 1}
        trainer = tiny.build_trainer(tmp_path / "run", tiny.Regression(), tiny.regression_data(8), **settings)
        run_page("checkpoints.md", TrainingArguments=footplate.TrainingArguments, trainer=trainer)
    steps = [entry["step"] for entry in trainer.state.log_history if "loss" in entry]
    assert steps == [1, 2, 3, 4]


def test_a_billion_rows_are_sought_in_at_once(run_page):
    first_batch = run_page("data.md")["first_batch"]
    assert len(set(first_batch)) == 8
    assert all(0 <= index < 1_000_000_000 for index in first_batch)


def test_generation_learns_its_answers(run_page, capsys):
    assert run_page("generation.md")["trainer"].state.best_metric == 1.0
    assert "['red <end>', 'green <end>', 'blue <end>']" in capsys.readouterr().out


def test_question_answering_learns_its_answers(run_page, capsys):
    names = run_page("question_answering.md")
    assert names["metrics"]["eval_exact_match"] > 90
    assert "{'id': '0', 'prediction_text': 'ada'}" in capsys.readouterr().out


def test_samples_are_shown(run_page, capsys):
    run_page("samples.md")
    printed = capsys.readouterr().out
    assert "Samples (eval) at step 100" in printed
    assert "Samples (train) at step 100" in printed


def test_a_tracker_of_ones_own_is_told_of_the_run(run_page, tmp_path, capsys):
    names = run_page("trackers.md")
    assert names["args"].report_to == ["tensorboard"]
    tiny.build_trainer(
        tmp_path / "run",
        tiny.Regression(),
        tiny.regression_data(8),
        options={"callbacks": [names["Printed"]()]},
        max_steps=2,
        logging_steps=1,
    ).train()
    printed = capsys.readouterr().out
    assert "of 2 updates" in printed
    assert "train/loss" in printed


def test_the_report_is_made_in_python(run_page, tmp_path, capsys):
    (tmp_path / "half").mkdir()
    begin = '{"kind": "begin", "time": 1, "run_id": "half", "first_step": 0, "max_steps": 9}\n'
    (tmp_path / "half" / "events.jsonl").write_text(begin)
    assert run_page("report.md")["interrupted"] == ["half"]
    assert "eval_loss" in capsys.readouterr().out
    assert (tmp_path / "curves.html").stat().st_size > 50_000


def test_a_run_is_planned_in_python(run_page, capsys):
    assert run_page("planning.md")["plan"].duration.updates == 8
    assert "4 ranks, full_shard" in capsys.readouterr().out


def test_a_damaged_row_is_found_in_an_update_that_is_made_again(run_page, capsys):
    names = run_page("replay.md")
    assert names["found"].is_same
    assert [row.number for row in names["found"].nonfinite_rows] == [37]
    printed = capsys.readouterr().out
    assert "It came out as logged, to the last bit" in printed
    assert "the data of row 37 holds NaN or infinity in x" in printed
    assert "Compared with runs/slower" in printed


def test_a_run_is_checked_before_it_begins(run_page, capsys):
    names = run_page("check.md")
    assert names["trainer"].state.global_step == 0
    printed = capsys.readouterr().out
    assert "FAILED  best metric" in printed
    assert "change    nothing" in printed


def test_a_learning_rate_is_found_for_four_classes(run_page, tmp_path, capsys):
    assert 0.005 < run_page("learning-rate.md")["found"].suggestion < 0.1
    assert "where the loss falls fastest; 5e-05 is set" in capsys.readouterr().out
    assert (tmp_path / "lr.html").stat().st_size > 20_000


def test_a_run_is_profiled_and_its_model_shown(run_page, capsys):
    run_page("profile.md")
    printed = capsys.readouterr().out
    assert "Model on cpu: an update takes " in printed
    page = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    table = printed[printed.index("module  ") :].strip()
    assert f"```\n{table}\n```" in page


def test_a_search_finds_settings_for_a_line(run_page, tmp_path, capsys):
    best = run_page("search.md")["best"]
    assert str(best.objective) in capsys.readouterr().out
    assert (tmp_path / best.run_summary.best_checkpoint).is_dir()


def test_a_card_describes_a_line(run_page, tmp_path, capsys):
    run_page("hub.md")
    assert "on the points on a line dataset." in capsys.readouterr().out
    assert (tmp_path / "runs" / "line" / "training_curves.svg").is_file()


def test_conversations_about_capitals_are_written(run_page, tmp_path):
    run_page("tasks.md")
    written = [(tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("train", "dev")]
    assert [len(lines) for lines in written] == [560, 8]
    assert not set(written[0]) & set(written[1])


def test_every_page_with_examples_is_run():
    pages = {path.name for path in (ROOT / "docs").glob("*.md") if code_blocks(path)}
    run = set(re.findall(r'run_page\("([a-z_-]+\.md)"', Path(__file__).read_text(encoding="utf-8")))
    # test_moving.py and tasks/test_recipes.py run these: one takes its whole process over, one is a file
    assert pages - {"moving.md", "recipes.md"} == run


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) + re.findall(r'(?:src|href)="([^"#:]+)"', text)
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_file_tree_of_the_architecture_page_is_there():
    tree = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## The files")[1]
    named = set(re.findall(r"\b([a-z_]+\.py)\b", tree))
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").glob("*.py"), *(ROOT / "tools").glob("*.py")]
    assert named - {path.name for path in sources} == set()
    folders = set(re.findall(r"^  ([a-z]+)/", tree, flags=re.MULTILINE))
    packages = {path.parent.name for path in (ROOT / "src" / "footplate").glob("*/__init__.py")}
    assert folders == packages
