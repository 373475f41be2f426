import re
import sys

import pytest
import torch
from safetensors.torch import load_file

from footplate.demo.__main__ import main, print_sample


@pytest.fixture
def keep_num_threads():
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def read_sample(printed):
    """The four fields of the first sample in `printed`, each on one line again."""
    pattern = r"  question (.*)  context (.*)  prediction (.*)  answer (.*?)\n\n"
    fields = re.search(pattern, printed, re.DOTALL).groups()
    return [re.sub(r"\s+", " ", field).strip() for field in fields]


@pytest.mark.usefixtures("keep_num_threads")
def test_the_demo_shows_samples_ends_with_metrics_and_saves_the_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo", "--steps", "2", "--output_dir", str(tmp_path)])
    main()
    printed = capsys.readouterr().out
    sample = re.search(
        r"update 1 of 2\n  question +\S.*\n(.*\n)+?  prediction +\S.*\n  answer +(\S.*)\n", printed
    )
    assert sample is not None
    assert sample.group(2) in re.sub(r"\s+", " ", sample.group(0).split("prediction")[0])
    summary = printed[printed.rindex("eval metrics") :]
    for name in ("eval_loss", "eval_exact_match", "eval_f1"):
        assert re.search(rf"{name} += +[0-9.]+", summary)
    assert "scores.1.weight" in load_file(tmp_path / "model.safetensors")


def test_a_sample_is_aligned_and_fits_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    print_sample("update 7", question="Who?", context="Ada Berg lives in Norwick. Leo Dahl lives in Tarnow.")
    assert capsys.readouterr().out.splitlines() == [
        "",
        "update 7",
        "  question    Who?",
        "  context     Ada Berg lives in Norwick.",
        "              Leo Dahl lives in Tarnow.",
        "",
    ]
