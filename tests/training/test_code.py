"""Other code of the user's own is told; the same code in another place, process or format is not."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap

import pytest
from torch import nn
from transformers import DataCollatorWithPadding
from transformers import Trainer as Original

import footplate
from footplate.training.code import hash_code

SOURCE = '''
import functools

def metrics(prediction, best={1, 2}, scale=2.0):
    """Of a prediction."""
    kinds = prediction in {"a", "b", "c", "d"}
    return {"score": scale * len([x for x in prediction if x]), "kinds": kinds}

class Mine:
    def forward(self, x):
        return (lambda y: y + 1)(x)

    @property
    def size(self):
        return 3
'''


def hashes(source: str, name: str = "script.py") -> dict[str, str]:
    namespace = {"__name__": "script"}
    exec(compile(textwrap.dedent(source), name, "exec"), namespace)
    return hash_code({"metrics": namespace["metrics"], "mine": namespace["Mine"]})


def test_the_same_code_is_the_same_elsewhere_and_written_otherwise():
    first = hashes(SOURCE)
    assert set(first) == {"python", "metrics", "Mine.forward", "Mine.size"}
    moved = "# a comment\n\n\n" + SOURCE.replace("Of a prediction.", "Of another.").replace(
        "x + 1", "x  +  1"
    )
    assert hashes(moved, "/elsewhere/other.py") == first


def test_every_process_gives_the_same(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    code = (
        "import json, mine; from footplate.training.code import hash_code; "
        "print(json.dumps(hash_code({'metrics': mine.metrics, 'mine': mine.Mine})))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert json.loads(found.pop()) == hashes(SOURCE)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("scale * len", "scale + len", "metrics"),
        ("scale=2.0", "scale=3.0", "metrics"),
        ('"d"}', '"e"}', "metrics"),
        ("y + 1", "y + 2", "Mine.forward"),
        ("return 3", "return 4", "Mine.size"),
    ],
)
def test_other_code_is_told_by_its_name(before, after, name):
    first, second = hashes(SOURCE), hashes(SOURCE.replace(before, after))
    assert [key for key in first if first[key] != second[key]] == [name]


def test_code_of_libraries_is_left_to_their_versions():
    parts = {
        "trainer": footplate.Trainer,
        "original": Original,
        "collator": DataCollatorWithPadding(None),
        "default": footplate.default_data_collator,
        "model": nn.Linear,
        "loss": nn.functional.mse_loss,
        "none": None,
    }
    assert set(hash_code(parts)) == {"python"}


def test_partials_methods_and_decorated_functions_are_looked_through():
    class Judge:
        def score(self, prediction):
            return {}

    @functools.wraps(Judge.score)
    def wrapped(*args):
        return Judge.score(*args)

    found = hash_code({"a": Judge().score, "b": functools.partial(Judge.score, None), "c": wrapped})
    assert found["a"] == found["b"] == found["c"]
