"""Two processes give the numbers of transformers with two processes, to the last bit."""

from __future__ import annotations

import pytest
import torch

from footplate import Trainer
from ranks_training import jobs, original, small
from ranks_training.small import differences

JOBS = ("theirs", "ours", "theirs_saved", "ours_saved", "theirs_on_ours", "ours_on_theirs")
CASES = (
    *("plain", "accumulated", "max_steps", "drop_last", "split", "stream"),
    *("gpt", "gpt_own_tokens", "gpt_norms"),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    results = jobs.together(folder, *(f"original.{name}" for name in JOBS))
    return {name.split(".")[1]: ranks for name, ranks in results.items()}


def comparable(result, without=("eval_loss",)):
    """A result without the loss of evaluations: the original counts rows twice that fill up a batch."""
    history = [{key: None if key in without else entry[key] for key in entry} for entry in result["history"]]
    return {**result, "history": history, "predictions": None}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rank", [0, 1])
def test_logs_weights_and_tokens_are_the_originals(found, case, rank):
    ours, theirs = found["ours"][rank][case], found["theirs"][rank][case]
    # after a last update that was not logged, the original's train_loss is that of each rank alone
    without = ("eval_loss", "train_loss") if case == "max_steps" else ("eval_loss",)
    assert not differences(comparable(ours, without), comparable(theirs, without))
    assert len(ours["history"]) > 3


@pytest.mark.parametrize("case", CASES[:6])
def test_predictions_are_the_originals(found, case):
    """The last batch is not filled up, so a row in it may differ in its last bit."""
    ours, theirs = (found[name][0][case]["predictions"] for name in ("ours", "theirs"))
    assert not differences(ours, theirs, tolerance=1e-6)


@pytest.mark.parametrize("case", ["plain", "accumulated", "max_steps", "split", "stream"])
def test_the_loss_of_an_evaluation_is_that_of_one_process(found, case, tmp_path):
    ours = found["ours"][0][case]
    model = small.Classifier()
    model.load_state_dict({name: torch.tensor(value) for name, value in ours["weights"].items()})
    args = small.arguments(tmp_path, per_device_eval_batch_size=3)
    alone = Trainer(model, args, eval_dataset=original.numbers(11, seed=2), data_collator=small.collate)
    last = [entry["eval_loss"] for entry in ours["history"] if "eval_loss" in entry][-1]
    assert alone.evaluate()["eval_loss"] == last


@pytest.mark.parametrize("name", ["theirs_on_ours", "ours_on_theirs"])
@pytest.mark.parametrize("rank", [0, 1])
def test_each_goes_on_from_a_checkpoint_of_the_other(found, name, rank):
    resumed, whole = found[name][rank], found["theirs_saved"][rank]
    for key in ("weights", "step"):
        assert not differences(resumed[key], whole[key])
    losses = [[entry.get("loss") for entry in run["history"]] for run in (resumed, whole)]
    assert losses[0] == losses[1]
