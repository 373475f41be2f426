"""Footplate in the place of the Trainer of transformers; each program in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent


def run(program: str, *words: str) -> dict[str, Any]:
    """What a program of its own printed as JSON on its last line, and its log under "log"."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "log": done.stderr}


QUICK = """
import json, sys
import footplate
footplate.take_over()
import transformers
from transformers import Trainer, TrainingArguments as Arguments, default_data_collator
found = [transformers.Trainer, Trainer, Arguments, default_data_collator, transformers.TrainerCallback]
ours = [footplate.Trainer, footplate.Trainer, footplate.TrainingArguments, footplate.default_data_collator,
        footplate.TrainerCallback]
print(json.dumps({"same": [a is b for a, b in zip(found, ours)],
                  "loaded": "transformers.trainer" in sys.modules}))
"""


def test_names_at_the_top_are_footplates_and_the_originals_trainer_is_not_even_loaded():
    result = run(QUICK)
    assert all(result["same"])
    assert not result["loaded"]
    said = [line for line in result["log"].splitlines() if "footplate's now" in line]
    assert len(said) == 1
    assert "Trainer, Seq2SeqTrainer, TrainingArguments, TrainerCallback and" in said[0]


PATHS = """
import importlib, json, pickle, sys
import footplate
footplate.take_over()
import transformers.trainer as module
import transformers.trainer_pt_utils, transformers.integrations
from transformers.trainer import Trainer, TrainerState
from transformers.trainer_utils import IntervalStrategy, validate_quantization_for_training
from transformers.trainer_utils import validate_quantization_for_training as again
from transformers.integrations import WandbCallback
from transformers.integrations.integration_utils import is_wandb_available
from transformers.data.data_collator import DataCollatorWithPadding
from transformers.optimization import get_scheduler
from transformers.hf_argparser import HfArgumentParser
from transformers.training_args_seq2seq import Seq2SeqTrainingArguments
import transformers
star = {}
exec("from transformers.trainer_callback import *", star)
pairs = [(Trainer, "Trainer"), (module.Trainer, "Trainer"), (transformers.trainer.Trainer, "Trainer"),
    (TrainerState, "TrainerState"), (IntervalStrategy, "IntervalStrategy"), (WandbCallback, "WandbCallback"),
    (transformers.integrations.WandbCallback, "WandbCallback"), (is_wandb_available, "is_wandb_available"),
    (transformers.trainer_pt_utils.nested_concat, "nested_concat"),
    (DataCollatorWithPadding, "DataCollatorWithPadding"), (get_scheduler, "get_scheduler"),
    (HfArgumentParser, "HfArgumentParser"), (Seq2SeqTrainingArguments, "Seq2SeqTrainingArguments"),
    (star["TrainerCallback"], "TrainerCallback"), (star["EarlyStoppingCallback"], "EarlyStoppingCallback"),
    (transformers.Seq2SeqTrainer, "Seq2SeqTrainer")]
result = {"wrong": [name for found, name in pairs if found is not getattr(footplate, name)]}
# what the original uses itself is the original's: its functions read the module's dictionary
seq2seq = importlib.import_module("transformers.trainer_seq2seq")
result["bases"] = vars(seq2seq)["Seq2SeqTrainer"].__mro__[1].__module__
result["globals"] = vars(module)["Trainer"].train.__globals__["TrainerState"].__module__
# libraries and tests assign to modules: they see what they assigned, the original does not
module.Trainer = "patched"
result["assigned"] = [module.Trainer, vars(module)["Trainer"].__name__]
module.Trainer = Trainer
# a value that the original pickled is read as footplate's
pickled = pickle.loads(b"ctransformers.trainer_utils\\nIntervalStrategy\\n(S'steps'\\ntR.")
result["pickled"] = type(pickled).__module__
before = transformers.Trainer.__module__
footplate.hand_back()
from transformers import Trainer as original
after = [original, module.Trainer, transformers.trainer.TrainerState]
result["back"] = [before, *(kind.__module__ for kind in after)]
footplate.take_over()
result["again"] = transformers.trainer.Trainer.__module__
print(json.dumps(result))
"""


@pytest.mark.slow
def test_every_path_to_a_name_leads_to_footplate_and_the_original_keeps_its_own():
    result = run(PATHS)
    assert result["wrong"] == []
    assert result["bases"] == "transformers.trainer"
    assert result["globals"] == "transformers.trainer_callback"
    assert result["assigned"] == ["patched", "Trainer"]
    assert result["pickled"] == "footplate.outputs"
    assert result["back"][0] == "footplate.trainer.trainer"
    assert result["back"][1:] == ["transformers.trainer"] * 2 + ["transformers.trainer_callback"]
    assert result["again"] == "footplate.trainer.trainer"
    lines = [line for line in result["log"].splitlines() if "validate_quantization_for_training" in line]
    assert len(lines) == 1
    assert "is the original's: footplate has no validate_quantization_for_training" in lines[0]


LATE = """
import json, sys
import footplate, transformers
from transformers import Trainer, set_seed as seed
original, original_seed = Trainer, seed
footplate.take_over()
result = {"rebound": [Trainer is footplate.Trainer, seed is footplate.set_seed]}
footplate.hand_back()
result["back"] = [Trainer is original, seed is original_seed]
class Mine(Trainer): pass
Mine.__module__ = "some_library.trainers"
try:
    footplate.take_over()
except ValueError as error:
    result["refused"] = str(error)
result["after"] = transformers.Trainer is original
print(json.dumps(result))
"""


@pytest.mark.slow
def test_names_imported_before_are_exchanged_and_a_library_built_before_is_refused():
    result = run(LATE)
    assert result["rebound"] == [True, True]
    assert result["back"] == [True, True]
    assert "some_library.trainers.Mine" in result["refused"]
    assert "before importing some_library" in result["refused"]
    assert result["after"]


TWO_WORLDS = """
import json, sys
from transformers import TrainerCallback, TrainerState
from transformers.trainer_utils import IntervalStrategy
class Old(TrainerCallback):  # of a library that was imported before
    def __init__(self): self.seen = []
    def on_log(self, args, state, control, logs=None, **kwargs):
        self.seen.append(state.global_step)
        if state.global_step == 3: control.should_training_stop = True
old, their_state, their_steps = Old(), TrainerState, IntervalStrategy.STEPS
import footplate, tiny, torch
footplate.take_over()
import transformers
data = tiny.regression_data(16)
arguments = transformers.TrainingArguments(sys.argv[1], max_steps=5, logging_steps=1, report_to="none",
    use_cpu=True, save_strategy="steps", save_steps=3, logging_strategy=their_steps, disable_tqdm=True)
trainer = transformers.Trainer(tiny.Regression(), arguments, train_dataset=data, eval_dataset=data,
    callbacks=[old])
trainer.train()
loaded = vars(sys.modules["transformers.trainer_callback"])["TrainerState"].load_from_json(
    sys.argv[1] + "/checkpoint-3/trainer_state.json")
result = {"seen": old.seen, "step": trainer.state.global_step, "theirs": loaded.global_step,
    "strategy": arguments.logging_strategy == their_steps,
    "prediction": type(transformers.EvalPrediction([1], [2])).__module__}
import transformers.trainer, transformers.training_args  # the original still works, with its own parts only
theirs = {name: vars(sys.modules[f"transformers.{home}"])[name]
    for name, home in [("Trainer", "trainer"), ("TrainingArguments", "training_args")]}
own = theirs["Trainer"](tiny.Regression(), theirs["TrainingArguments"](sys.argv[1] + "/own", max_steps=2,
    report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True), train_dataset=data)
own.train()
parts = [own.state, own.callback_handler]
result["original"] = [own.state.global_step, *(type(part).__module__ for part in parts)]
# and so do models, which ask for names of the Trainer's modules now and then
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=20,
    bos_token_id=0, eos_token_id=0))
result["generated"] = model.generate(torch.tensor([[1, 2]]), max_new_tokens=2, do_sample=False).shape[1]
print(json.dumps(result))
"""


@pytest.mark.slow
def test_objects_of_both_worlds_meet_and_the_original_still_works(tmp_path):
    result = run(TWO_WORLDS, str(tmp_path))
    assert result["seen"][:3] == [1, 2, 3]
    assert result["step"] == 3
    assert result["theirs"] == 3
    assert result["strategy"]
    assert result["prediction"] == "footplate.outputs"
    assert result["original"] == [2, "transformers.trainer_callback", "transformers.trainer_callback"]
    assert 3 <= result["generated"] <= 4


def test_hand_back_without_take_over_changes_nothing():
    import footplate

    footplate.hand_back()
