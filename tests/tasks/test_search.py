"""`footplate search`: settings for a task, and the best model as the result."""

import json

import pytest

from footplate.checkpoint.lock import LOCK_NAME
from footplate.cli.main import main
from footplate.tasks.common import parsing
from footplate.tasks.common.parsing import save_settings
from tasks import small
from tasks.test_classification import sentences

SPACE = """
learning_rate: {low: 1e-6, high: 1e-2, log: true}
per_device_train_batch_size: [8, 16]
"""


@pytest.fixture
def words(tmp_path):
    """Flags of a small task, and a space."""
    named = [{**row, "label": "yes" if row["label"] else "no"} for row in sentences(80, 0)]
    train_file = small.write_csv(tmp_path / "train.csv", named)
    (tmp_path / "space.yaml").write_text(SPACE)
    given = ["classification", "--space", tmp_path / "space.yaml", "--train_file", train_file, "--use_cpu"]
    given += ["--output_dir", tmp_path / "out", "--max_seq_length", 16, "--num_train_epochs", 4]
    return [*map(str, given), "--report_to", "none", *small.from_scratch("bert")]


def trials_in(folder):
    lines = (folder / "search" / "trials.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def test_the_best_model_of_a_search_answers(words, tmp_path, capsys, monkeypatch):
    held = []

    def save_while_watched(recipe, name, folder):
        held.append((folder / LOCK_NAME).exists())
        save_settings(recipe, name, folder)

    monkeypatch.setattr(parsing, "save_settings", save_while_watched)
    assert main(["search", *words, "--trials", "3", "--backend", "random"]) == 0
    printed = capsys.readouterr().out
    assert held == [True]
    trials = trials_in(tmp_path / "out")
    best = min(trials, key=lambda trial: trial["values"][0])
    assert f"The best is trial {best['number']}:" in printed
    kept = tmp_path / "out" / best["folder"] / best["checkpoint"] / "model.safetensors"
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == kept.read_bytes()
    assert (tmp_path / "out" / best["folder"] / "report.html").is_file()
    answers = small.answers_of(tmp_path / "out", "the film was good", "so bad a day")
    assert [set(answer) >= {"label", "score"} for answer in answers] == [True, True]

    assert main(["search", *words, "--trials", "4", "--backend", "random"]) == 0
    assert trials_in(tmp_path / "out")[:3] == trials
    assert len(trials_in(tmp_path / "out")) == 4


def test_a_wrong_use_is_said_in_one_line(words, tmp_path, capsys):
    (tmp_path / "wrong.yaml").write_text("learning_rat: [1]\n")
    (tmp_path / "early.yaml").write_text("bf16: [true, false]\n")
    for given, text in [
        ([*words[:2], str(tmp_path / "wrong.yaml"), *words[3:]], "Did you mean learning_rate?"),
        (["train.py"], "'train.py' is not a file"),
        ([*words[:2], str(tmp_path / "early.yaml"), *words[3:]], "bf16 is read when the Trainer is made"),
        ([*words[:2], str(tmp_path / "none.yaml"), *words[3:]], "There is no file"),
    ]:
        assert main(["search", *given]) == 2
        assert text in capsys.readouterr().err
    assert main(["search", "--help"]) == 0
    assert "--space" in capsys.readouterr().out
