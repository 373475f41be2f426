import json
import re
import sys

import pytest
import torch
from safetensors.torch import load_file

from footplate.demo.__main__ import main


@pytest.fixture
def keep_num_threads():
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.mark.usefixtures("keep_num_threads")
def test_the_demo_shows_samples_ends_with_metrics_and_saves_the_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo", "--steps", "2", "--output_dir", str(tmp_path)])
    main()
    printed = capsys.readouterr().out
    assert "Samples (eval) at step 2" in printed
    lines = (tmp_path / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    samples = [json.loads(line) for line in lines]
    assert len(samples) == 5
    assert all(sample["target"] in sample["context"] and "?" in sample["input"] for sample in samples)
    summary = printed[printed.rindex("eval metrics") :]
    for name in ("eval_loss", "eval_exact_match", "eval_f1"):
        assert re.search(rf"{name} += +[0-9.]+", summary)
    assert "scores.1.weight" in load_file(tmp_path / "model.safetensors")
