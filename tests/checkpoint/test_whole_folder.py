"""A folder whose every file footplate wrote, resumed by the original's Trainer, to the last bit."""

import shutil

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from footplate.checkpoint.arguments import save_arguments
from footplate.checkpoint.optimizer import load_optimizer, load_schedule, save_optimizer, save_schedule
from footplate.checkpoint.rng import load_rng, save_rng
from footplate.checkpoint.weights import load_weights, save_weights


class Noisy(nn.Module):
    """A regression with dropout, so that a lost random state would show."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x, labels=None):
        return {"loss": (self.layers(x).squeeze(-1) - labels).pow(2).mean()}


def tiny_bert():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForSequenceClassification(BertConfig(vocab_size=20, **sizes))


def rows_for(build):
    generator = torch.Generator().manual_seed(3)
    if build is Noisy:
        return [
            {"x": torch.randn(3, generator=generator), "labels": torch.tensor(float(i))} for i in range(8)
        ]
    ids = torch.randint(0, 20, (8, 5), generator=generator)
    return [{"input_ids": row, "labels": torch.tensor(i % 2)} for i, row in enumerate(ids)]


def build_trainer(build, folder):
    set_seed(0)
    arguments = TrainingArguments(
        folder,
        max_steps=8,
        per_device_train_batch_size=2,
        save_steps=3,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    return Trainer(build(), arguments, train_dataset=rows_for(build))


@pytest.mark.parametrize("build", [Noisy, tiny_bert])
def test_the_original_resumes_from_files_that_were_read_and_written_anew(build, tmp_path):
    straight = build_trainer(build, tmp_path / "run")
    straight.train()
    theirs, ours = tmp_path / "run" / "checkpoint-3", tmp_path / "again" / "checkpoint-3"

    carrier = build_trainer(build, tmp_path / "carrier")
    carrier.create_optimizer_and_scheduler(8)
    assert load_weights(carrier.model, theirs) == ([], [])
    assert load_optimizer(carrier.optimizer, theirs)
    assert load_schedule(carrier.lr_scheduler, theirs)
    assert load_rng(theirs)

    save_weights(carrier.model, ours)
    save_optimizer(carrier.optimizer, ours)
    save_schedule(carrier.lr_scheduler, ours)
    save_rng(ours)
    save_arguments(carrier.args.to_dict(), ours)
    shutil.copy(theirs / "trainer_state.json", ours)
    assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}

    resumed = build_trainer(build, tmp_path / "again")
    resumed.train(resume_from_checkpoint=str(ours))
    for name, tensor in straight.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
