"""Settings are read without torch, and a file cannot choose code."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch

from footplate.checkpoint.arguments import TRAINING_ARGS_NAME, load_arguments, save_arguments
from footplate.checkpoint.settings_file import MAX_BYTES, SETTINGS_NAME, read_settings


def test_it_reads_what_the_other_reader_reads_and_imports_no_torch(tmp_path):
    assert SETTINGS_NAME == TRAINING_ARGS_NAME
    save_arguments({"metric_for_best_model": "f1", "rates": [1e-3, None], "nested": {"a": True}}, tmp_path)
    assert read_settings(tmp_path) == load_arguments(tmp_path)
    code = (
        "import sys; from footplate.checkpoint.settings_file import read_settings\n"
        "print(read_settings(sys.argv[1])['metric_for_best_model'], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["f1", "False"]


class Touch:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("kind", ["code", "huge", "no zip", "empty", "tensor"])
def test_a_file_that_is_not_plain_settings_runs_nothing(tmp_path, kind):
    path, made = tmp_path / SETTINGS_NAME, tmp_path / "made"
    if kind == "tensor":
        torch.save(torch.zeros(2), path)
    elif kind in ("code", "huge"):
        content = pickle.dumps(Touch(str(made)) if kind == "code" else {"a": "x" * (MAX_BYTES + 1)})
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("training_args/data.pkl", content)
    else:
        path.write_bytes(b"" if kind == "empty" else b"no zip at all")
    with pytest.raises(ValueError):
        read_settings(tmp_path)
    assert not made.exists()


def test_a_missing_file_and_a_pipe_are_errors_at_once(tmp_path):
    with pytest.raises(OSError):
        read_settings(tmp_path)
    os.mkfifo(tmp_path / SETTINGS_NAME)
    with pytest.raises((OSError, ValueError)):
        read_settings(tmp_path)
