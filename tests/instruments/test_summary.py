"""`footplate.summarize`: a model in numbers, and as a table."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import footplate
import tiny


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 8)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])
        self.head = nn.Linear(8, 100, bias=False)


def test_the_table_shows_blocks_shares_and_memory():
    model = Tagger()
    model.embed.weight.requires_grad_(False)
    assert str(footplate.summarize(model)).splitlines() == [
        "module                  class           parameters  trained  type      memory",
        "Tagger                  Tagger               1,816      56%  float32  7.26 kB",
        " embed                  Embedding              800        -  float32  3.20 kB",
        " layers.0 ... layers.2  3 x Sequential         216     100%  float32    864 B",
        "  0                     3 x Linear             216     100%  float32    864 B",
        "  1                     3 x Tanh                 -",
        " head                   Linear                 800     100%  float32  3.20 kB",
        "",
        "parameters  1,816, 1,016 trained (56%), in 13 modules",
        "weights     7.26 kB float32",
        "training    19.5 kB: weights and buffers 7.26 kB, gradients 4.06 kB, AdamW 8.16 kB",
        "            activations come on top: `trainer.plan()` measures them",
    ]


@pytest.mark.parametrize("optimizer", ["adamw_torch", "sgd", "adafactor"])
def test_the_state_of_the_optimizer_is_what_a_run_allocates(optimizer, tmp_path):
    args = tiny.arguments(tmp_path, optim=optimizer, max_steps=1)
    trainer = footplate.Trainer(tiny.Regression(), args, train_dataset=tiny.regression_data(8))
    planned = footplate.summarize(trainer.model, args)
    trainer.train()
    states = trainer.optimizer.state.values()
    held = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
    assert planned.optimizer_bytes == sum(value.nbytes for value in held)
    parts = (planned.weight_bytes, planned.buffer_bytes, planned.gradient_bytes, planned.optimizer_bytes)
    assert planned.training_bytes == sum(parts)


def test_an_optimizer_that_cannot_be_tried_is_counted_as_adam(tmp_path):
    args = tiny.arguments(tmp_path)
    args.optim = "adamw_bnb_8bit"
    summary = footplate.summarize(tiny.Regression(), args)
    assert summary.optimizer == "Adam"
    assert summary.optimizer_bytes == 2 * summary.gradient_bytes
    assert "counted as Adam" in summary.notes[0]


def test_no_line_is_wider_than_a_terminal_and_json_holds_everything():
    names = {f"{'a_long_name_' * 9}{number}": nn.Linear(number + 1, 2) for number in range(9)}
    summary = footplate.summarize(nn.Sequential(nn.ModuleDict(names), nn.BatchNorm1d(2)).to("meta"))
    text = str(summary)
    assert max(map(len, text.splitlines())) <= 99
    assert "numbers in buffers" in text
    assert text.endswith("note        on the meta device: no memory is taken yet")
    told = json.loads(json.dumps(summary.to_dict()))
    assert told["parameters"] == summary.parameters
    assert len(told["lines"]) == len(summary.lines)


def test_one_is_no_plural_and_what_is_no_model_is_refused():
    one = nn.Linear(2, 2)
    one.register_buffer("count", torch.zeros(()))
    text = str(footplate.summarize(one))
    assert "in 1 module\n" in text
    assert "; 1 number in buffers, 4 B" in text
    with pytest.raises(TypeError, match="not str"):
        footplate.summarize("gpt2")


def test_compiled_and_parallel_models_are_shown_without_their_wrappers():
    model = Tagger()
    assert str(footplate.summarize(nn.DataParallel(torch.compile(model)))) == str(footplate.summarize(model))


def test_depth_is_for_the_reader_to_choose():
    assert {line.depth for line in footplate.summarize(Tagger(), depth=1).lines} == {0, 1}


def test_the_few_trained_parameters_of_an_adapter_are_told():
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["c_attn"], r=2, fan_in_fan_out=True))
    summary = footplate.summarize(adapted)
    trained, total = adapted.get_nb_trainable_parameters()
    assert (summary.trainable, summary.parameters) == (trained, total)
    assert f"{trained:,} trained (" in str(summary)
    (blocks,) = [line for line in summary.lines if line.name == "h.0 ... h.1"]
    assert blocks.trainable == trained
