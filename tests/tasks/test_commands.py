"""The commands around a run: tasks, inspect, run, predict, new."""

import io
import json
import os
import subprocess
import sys

import pytest

from footplate.cli.main import main
from tasks import small
from tasks.test_classification import sentences


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that has learned to tell good from bad."""
    folder = tmp_path_factory.mktemp("finished")
    named = [{**row, "label": "yes" if row["label"] else "no"} for row in sentences(160, 0)]
    train_file = small.write_csv(folder / "train.csv", named)
    words = ["--train_file", train_file, "--output_dir", folder / "out", "--do_train", "--do_eval"]
    words += ["--learning_rate", "3e-3", "--per_device_train_batch_size", 16, "--max_seq_length", 16]
    words += ["--num_train_epochs", 5, "--report_to", "none", *small.from_scratch("bert")]
    assert main(["run", "classification", *map(str, words)]) == 0
    return folder


def test_a_finished_run_answers_for_a_file_and_for_lines_as_they_come(finished, capsys, monkeypatch):
    rows = sentences(8, 3)
    test_file = small.write_csv(finished / "new.csv", [{"sentence": row["sentence"]} for row in rows])
    capsys.readouterr()
    assert main(["predict", str(finished / "out"), "--input", str(test_file)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [answer["label"] for answer in answers] == ["yes" if row["label"] else "no" for row in rows]
    assert all(0.5 < answer["score"] <= 1 for answer in answers)
    typed = 'the film was good\n\n{"sentence": "so bad a day"}\n{"text": "no such column"}\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["predict", str(finished / "out"), "--input", "-"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [answer.get("label") for answer in answers] == ["yes", "no", None]
    assert "sentence" in answers[2]["error"]


def test_a_run_is_repeated_by_its_file_of_settings_to_the_last_bit(finished, tmp_path):
    assert main(["run", str(finished / "out" / "run.yaml"), "--output_dir", str(tmp_path / "again")]) == 0
    assert small.losses_in(tmp_path / "again") == small.losses_in(finished / "out")
    first, second = finished / "out" / "model.safetensors", tmp_path / "again" / "model.safetensors"
    assert first.read_bytes() == second.read_bytes()


def test_a_finished_run_is_not_made_again_but_gone_on_with(finished, caplog):
    words = [str(finished / "out" / "run.yaml"), "--num_train_epochs", "6"]
    assert small.losses_in(finished / "out")[-1]["step"] == 50
    assert main(["run", *words]) == 0
    assert "Training goes on from" in caplog.text
    assert small.losses_in(finished / "out")[-1]["step"] == 60


def test_inspect_shows_rows_tokens_and_what_is_cut_off(finished, tmp_path, capsys):
    words = ["--train_file", str(finished / "train.csv"), "--max_seq_length", "6", "--rows", "1"]
    assert main(["inspect", "classification", *words, *small.from_scratch("bert")]) == 0
    shown = capsys.readouterr().out
    assert "6 tokens: [CLS]" in shown
    assert "label: " in shown
    assert "160 rows became 160 features" in shown
    assert "cut off: 160 of 160 rows" in shown
    assert "no): 80" in shown


def test_every_task_is_listed_with_a_command_that_its_own_parser_takes(capsys):
    from footplate.tasks.common.catalog import TASKS, find_recipe
    from footplate.tasks.common.parsing import build_parser

    assert main(["tasks"]) == 0
    shown = capsys.readouterr().out
    for name in TASKS:
        kind = find_recipe(name)
        assert f"footplate run {name} {kind.example}" in shown
        known = build_parser(kind)._option_string_actions
        flags = [word for word in kind.example.split() if word.startswith("--")]
        assert flags, name
        assert [flag for flag in flags if flag not in known] == [], name


def test_help_has_the_flags_that_matter_and_help_all_has_all(capsys):
    assert main(["run", "qa", "--help"]) == 0
    short = capsys.readouterr().out
    assert "--train_file" in short
    assert "--version_2_with_negative" in short
    assert "--adam_beta1" not in short
    assert len(short.splitlines()) < 30
    assert main(["run", "qa", "--help-all"]) == 0
    assert "--adam_beta1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "clasification"], "Did you mean"),
        (["run", "classification", "--output_dir", "x"], "nothing to do"),
        (["run", "classification", "--output_dir", "x", "--do_train"], "no data"),
        (["run", "qa", "--output_dir", "x", "--do_train", "--train_file", "no.json"], "no such file"),
        (["run", "qa", "--output_dir", "x", "--max_seq_lenght", "3"], "max_seq_length"),
        (["predict", "nowhere", "--input", "-"], "not the folder of a run"),
    ],
)
def test_mistakes_are_answered_in_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert main([*words, "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_script_of_ones_own_runs_by_itself_and_by_the_command(finished, tmp_path):
    script = tmp_path / "mine.py"
    assert main(["new", "classification", str(script)]) == 0
    text = script.read_text()
    assert '"predict_results.txt"' in text
    script.write_text(text.replace('"predict_results.txt"', '"my_answers.txt"'))
    words = [str(finished / "out" / "run.yaml"), "--output_dir", str(tmp_path / "own"), "--max_steps", "2"]
    words += ["--do_predict", "--test_file", str(finished / "train.csv"), "--max_predict_samples", "5"]
    done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "own" / "my_answers.txt").read_text().startswith("index\tprediction\n0\t")
    assert main(["run", str(script), *words, "--overwrite_output_dir"]) == 0
    assert main(["new", "classification", str(script)]) == 2


def test_an_evaluation_alone_leaves_the_settings_of_training_as_they_are(finished):
    kept = {name: (finished / "out" / name).read_bytes() for name in ("run.yaml", "task.json", "README.md")}
    words = ["--do_train=False", "--do_eval", "--validation_file", str(finished / "train.csv")]
    words += ["--model_name_or_path", str(finished / "out"), "--train_tokenizer=False"]
    assert main(["run", str(finished / "out" / "run.yaml"), *words]) == 0
    assert {name: (finished / "out" / name).read_bytes() for name in kept} == kept


def test_a_shell_completes_tasks_and_flags(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    ask = "; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _footplate; echo ${COMPREPLY[@]}"
    for words, expected in (("footplate run glu", "glue"), ("footplate run qa --doc_", "--doc_stride")):
        command = f"source {script}; COMP_WORDS=({words}){ask}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [expected]


@pytest.mark.parametrize("command", ["inspect", "predict"])
def test_a_command_leaves_no_temporary_folder(finished, tmp_path, command):
    words = {
        "inspect": ["classification", "--train_file", finished / "train.csv", *small.from_scratch("bert")],
        "predict": [finished / "out", "--input", finished / "train.csv"],
    }[command]
    subprocess.run(
        [sys.executable, "-m", "footplate", command, *map(str, words)],
        check=True,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert list(tmp_path.glob("footplate-*")) == []
