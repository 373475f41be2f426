"""When a run names the command that makes an update again, and which command that is."""

from __future__ import annotations

import math
import random
import shlex
import sys
from types import ModuleType, SimpleNamespace

import pytest

import tiny
from footplate.training import hints
from footplate.training.hints import FEWEST_LOGS, Hints, find_script, is_spike, read_losses


def history(losses):
    return [{"loss": loss, "step": step} for step, loss in enumerate(losses, start=1)]


def noise(count, mean=2.0, width=0.1):
    draw = random.Random(0)
    return [draw.gauss(mean, width) for _ in range(count)]


@pytest.mark.parametrize(
    ("losses", "loss", "expected"),
    [
        (noise(FEWEST_LOGS), 20.0, True),
        (noise(FEWEST_LOGS - 1), 20.0, False),  # too few to tell
        (noise(40), 2.5, False),  # six deviations would do, and it is no more than a quarter above
        ([0.6931 + 1e-9 * number for number in range(40)], 0.6932, False),  # a loss that hardly moves
        (noise(40, width=1.0), 4.5, False),  # twice as high, in noise as wide
        ([5.0 - 0.05 * number for number in range(60)], 2.1, False),  # it falls
        ([*noise(30), math.nan], 20.0, True),
        (noise(40), math.nan, False),  # another message is about that
        (noise(40, mean=-5.0), 3.0, True),  # losses may be negative
        ([0.0] * 40, 0.0, False),
    ],
)
def test_a_spike_is_far_above_the_logs_before_it(losses, loss, expected):
    assert is_spike(loss, read_losses(history(losses))) == expected


def test_only_the_last_logs_count_and_evaluations_do_not():
    old = history([100.0] * 200)
    evaluations = [{"eval_loss": 50.0}] * 30
    entries = [entry for pair in zip(history(noise(30)), evaluations, strict=True) for entry in pair]
    before = read_losses([*old, *history(noise(20)), *entries])
    assert is_spike(20.0, before)
    assert max(before) < 3


def test_the_losses_of_a_run_are_kept_as_it_logs(caplog):
    watcher = Hints("run")
    for step, loss in enumerate([*noise(FEWEST_LOGS), math.nan], start=1):
        watcher.look({"loss": loss, "nonfinite": 1} if math.isnan(loss) else {"loss": loss}, [], step, None)
    assert len(caplog.messages) == 1
    watcher.look({"loss": 20.0}, [], 22, None)
    assert f"far above the {FEWEST_LOGS} logs before it" in caplog.messages[1]


def test_each_kind_is_said_once(caplog):
    watcher = Hints("run")
    for step in (31, 32):
        watcher.look({"loss": 30.0}, history(noise(30)), step, None)
        watcher.look({"loss": 1.0, "nonfinite": 2}, history(noise(30)), step, 30)
    spike, nonfinite = caplog.messages
    assert spike.startswith(
        "The loss logged at update 31 is 30, far above the 30 logs before it (mean 1.992, "
    )
    assert "footplate replay run --step 31 " in spike
    assert nonfinite.startswith("To see where NaN or infinity began: footplate replay run --step 30 ")


def test_a_process_that_does_not_write_says_nothing(caplog):
    watcher = Hints("run", num_ranks=2, speaks=False)
    watcher.look({"loss": 1.0, "nonfinite": 2}, [], 3, None)
    assert not caplog.messages


def test_several_processes_are_started_again_by_torchrun():
    words = Hints("my run", num_ranks=2).command(5)
    assert words.startswith("torchrun --nproc-per-node 2 -m footplate replay 'my run' --step 5 ")


@pytest.fixture
def started(monkeypatch):
    """Pretends that this process was started in some way."""

    def start(words, file=None, spec=None):
        main = ModuleType("__main__")
        if file is not None:
            main.__file__ = file
        main.__spec__ = None if spec is None else SimpleNamespace(name=spec)
        monkeypatch.setitem(sys.modules, "__main__", main)
        monkeypatch.setattr(sys, "argv", words)

    return start


def test_the_words_that_started_the_run_are_named_again(started, tmp_path):
    script = str(tmp_path / "train.py")
    started([script, "--rate", "1"], file=script)
    assert find_script("run") == ["SCRIPT"]  # there is no such file any more
    (tmp_path / "train.py").touch()
    assert find_script("run") == [script, "--rate", "1"]
    started(["/home/me/pkg/train.py", "-x"], file="/home/me/pkg/train.py", spec="pkg.train")
    assert find_script("run") == ["-m", "pkg.train", "-x"]
    started(["/home/me/pkg/__main__.py"], file="/home/me/pkg/__main__.py", spec="pkg.__main__")
    assert find_script("run") == ["-m", "pkg"]
    started(["ipykernel_launcher.py"], spec=None)
    assert find_script("run") == ["SCRIPT"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("--hub_token hf_abc --seed 3", "--hub_token ... --seed 3"),
        ("--hub-token=hf_abc=", "--hub-token=..."),
        ("--wandbApiKey abc -x", "--wandbApiKey ... -x"),
        ("+trainer.hub_token=hf_abc seed=3", "+trainer.hub_token=... seed=3"),
        ("--password a=b", "--password ..."),
        ("--use_auth_token --seed 3", "--use_auth_token --seed 3"),
        ("--tokenizer_name a --per_device_train_tokens 512", None),
        ("--pad_token <pad> --keep_columns id", None),
        ("data/key.txt token", None),
    ],
)
def test_a_secret_of_the_command_line_is_not_named(started, tmp_path, caplog, given, shown):
    (tmp_path / "train.py").touch()
    script = str(tmp_path / "train.py")
    started([script, *given.split()], file=script)
    Hints("run").tell_nonfinite(3)
    assert caplog.messages[0].endswith(shlex.join([script, *(shown or given).split()]))


def test_a_run_of_a_task_needs_no_script(started, tmp_path):
    started(["/usr/bin/footplate", "run", "qa"], file="/usr/bin/footplate")
    assert find_script(str(tmp_path)) == ["SCRIPT"]
    (tmp_path / "run.yaml").touch()
    assert find_script(str(tmp_path)) == []
    started(["/x/footplate/__main__.py", "run"], file="/x/footplate/__main__.py", spec="footplate.__main__")
    assert find_script(str(tmp_path)) == []


def test_in_the_block_nothing_is_named(caplog):
    with hints.silenced():
        Hints("run").tell_nonfinite(3)
    assert not caplog.messages
    Hints("run").tell_nonfinite(3)
    assert len(caplog.messages) == 1


def test_an_ordinary_run_names_no_command(tmp_path, caplog):
    data = tiny.regression_data()
    tiny.build_trainer(tmp_path, tiny.Regression(), data, max_steps=60, logging_steps=1).train()
    assert "footplate replay" not in caplog.text
