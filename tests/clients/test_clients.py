"""Libraries and scripts written for the original's Trainer, unchanged, on both: the same numbers and files.

Each runs in two processes of its own, `python job.py` and `footplate drive job.py`. The libraries are
installed by the extra `clients`; `make test-slow` sees to that.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import transformers

import footplate

CLIENTS = Path(__file__).parent
CLOCKS = ("_runtime", "_per_second", "step_time", "_preparation_time")
OURS_IN_A_CHECKPOINT = {"manifest.json", "loader.pt"}
LIBRARIES = ["original", "footplate"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # two runs, each with seconds of imports


def run(library: str, script: str, *words: str) -> str:
    """Run a script under one of the two libraries and return what it printed."""
    drive = ["-m", "footplate", "drive"] if library == "footplate" else []
    done = subprocess.run(
        [sys.executable, *drive, f"{script}.py", *words],
        cwd=CLIENTS,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
    )
    assert done.returncode == 0, f"{script} under {library}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout + done.stderr


def without_clocks(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if not key.endswith(CLOCKS)}


# ---- libraries ----

JOBS = {
    "trl_sft": ("plain", "packed", "lora"),
    "trl_dpo": ("",),
    "trl_reward": ("",),
    "trl_kto": ("",),
    "trl_grpo": ("",),
    "peft_lora": ("",),
    "st_bi_encoder": ("",),
    "st_cross_encoder": ("",),
    "st_multi_dataset": ("",),
}
PACKAGES = {"trl": "trl", "peft": "peft", "st": "sentence_transformers"}


@pytest.mark.parametrize(("job", "kind"), [(job, kind) for job, kinds in JOBS.items() for kind in kinds])
def test_a_library_logs_the_same_numbers_to_the_last_bit(job, kind, tmp_path):
    package = PACKAGES[job.split("_")[0]]
    assert find_spec(package), f"{package} is missing: pip install -e .[clients]"
    results = []
    for library in LIBRARIES:
        (tmp_path / library).mkdir()
        run(library, job, str(tmp_path / library), kind)
        results.append(json.loads((tmp_path / library / "result.json").read_text(encoding="utf-8")))
    theirs, ours = results
    assert (theirs["library"], ours["library"]) == ("transformers", "footplate")
    assert [without_clocks(entry) for entry in ours["log"]] == [
        without_clocks(entry) for entry in theirs["log"]
    ]
    assert [list(entry) for entry in ours["log"]] == [list(entry) for entry in theirs["log"]]
    assert ours["weights"] == theirs["weights"]
    assert set(ours["files"]) - OURS_IN_A_CHECKPOINT == set(theirs["files"])
    assert sum("loss" in entry for entry in ours["log"]) == 6  # a comparison of nothing would hold


# ---- scripts in the style of the original's examples ----

COMMON = (
    "--do_train --do_eval --num_train_epochs 2 --per_device_train_batch_size 8 --learning_rate 5e-3 "
    "--logging_steps 2 --eval_strategy steps --eval_steps 6 --save_steps 6 --report_to none --use_cpu "
    "--seed 11"
)
SCRIPTS = {
    "classification": (
        "run_classification",
        "--model_name_or_path made --do_predict --warmup_steps 3 --lr_scheduler_type cosine",
    ),
    "causal language model": (
        "run_clm",
        "--load_best_model_at_end --metric_for_best_model accuracy --gradient_accumulation_steps 2",
    ),
    "masked language model": ("run_clm", "--masked --load_best_model_at_end --save_total_limit 2"),
    "translation": (
        "run_seq2seq",
        "--predict_with_generate --generation_max_length 20 --label_smoothing_factor 0.1",
    ),
    "question answering": (
        "run_qa",
        "--load_best_model_at_end --metric_for_best_model exact_match --weight_decay 0.1",
    ),
}
OURS_IN_A_RUN = {  # beside the original's files; not what a tool that loads the folder looks at
    "events.jsonl",
    "report.html",
    "log_history.csv",
    "samples.jsonl",
    "trackers",
    "footplate",
    ".footplate",
    "run.lock",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gives_the_same_losses_files_and_keys_without_an_edit(name, tmp_path):
    script, words = SCRIPTS[name]
    folders = [tmp_path / library for library in LIBRARIES]
    for library, folder in zip(LIBRARIES, folders, strict=True):
        run(library, script, "--output_dir", str(folder), *words.split(), *COMMON.split())
    theirs, ours = folders
    for file in ("trainer_state.json", "all_results.json", "train_results.json", "eval_results.json"):
        assert_same_results(read(ours / file), read(theirs / file), file)
    assert names_in(ours) - OURS_IN_A_RUN == names_in(theirs)
    for checkpoint in sorted(path.name for path in theirs.glob("checkpoint-*")):
        assert names_in(ours / checkpoint) - OURS_IN_A_CHECKPOINT == names_in(theirs / checkpoint)
    assert (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def assert_same_results(ours: dict[str, Any], theirs: dict[str, Any], file: str) -> None:
    if file == "trainer_state.json":
        histories = [[without_clocks(entry) for entry in state["log_history"]] for state in (ours, theirs)]
        assert histories[0] == histories[1]
        assert len(histories[0]) > 4
        assert theirs.keys() <= ours.keys()
        same = ("global_step", "max_steps", "epoch", "best_metric", "best_global_step", "num_train_epochs")
        assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    else:
        assert ours.keys() == theirs.keys(), file
        assert without_clocks(ours) == without_clocks(theirs), file


def test_no_setting_of_ours_has_the_name_of_a_librarys_own():
    """A library that adds a field of that name to the arguments gives it another meaning, and other values."""
    assert find_spec("trl"), "trl is missing: pip install -e .[clients]"
    import trl

    original = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    ours = {field.name for field in dataclasses.fields(footplate.TrainingArguments)} - original
    names = [name for name in dir(trl) if name.endswith("Config")]
    configs = [kind for name in names if dataclasses.is_dataclass(kind := getattr(trl, name, None))]
    assert len(configs) > 5
    for config in configs:
        assert not ours & ({field.name for field in dataclasses.fields(config)} - original), config
