"""An update of a run of two processes is made again by two processes, bit for bit."""

from __future__ import annotations

import pytest

import ranks
from ranks_training import jobs
from ranks_training.replaying import STEPS

KINDS = ("rows", "workers", "stream", "sharded")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return jobs.together(tmp_path_factory.mktemp("replaying"), *(f"replaying.{kind}" for kind in KINDS))


@pytest.mark.parametrize("kind", KINDS)
def test_updates_of_two_ranks_come_out_as_logged(kind, found):
    first, second = found[f"replaying.{kind}"]
    assert first == second
    assert first["is_untouched"]
    for step, update in zip(STEPS, first["found"], strict=True):
        assert update["is_same"]
        assert update["compared"] == list(range(update["first_step"] + 1, step + 1))
        assert {rank for rank, *_ in update["rows"]} == {0, 1}
        assert {"first", "last"} <= set(update["modules"])
        if kind != "sharded":
            assert all(loss > 0 for loss in update["losses"])
        if kind in ("rows", "workers"):
            for _, number, shown in update["rows"]:
                assert f"id={number}" in shown


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from ranks_training import resuming
resuming.build(Path(sys.argv[1]), "rows", save_strategy="steps", save_steps=4).train()
"""


def test_a_script_is_replayed_by_torchrun(tmp_path):
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    tests = str(jobs.SCRIPT.parents[1])
    assert ranks.torchrun(script, str(folder), tests).code == 0
    words = ["replay", str(folder), "--step", "7", str(script), str(folder), tests]
    ended = ranks.torchrun("-m", "footplate", *words)
    assert ended.code == 0, ended.output
    assert ended.output.count("It came out as logged, to the last bit") == 1
    alone = jobs.ranks.subprocess.run(
        [jobs.sys.executable, "-m", "footplate", *words], capture_output=True, text=True, check=False
    )
    assert "The run had 2 processes, and this replay has 1" in alone.stdout
    assert "torchrun --nproc-per-node 2 -m footplate replay" in alone.stdout
