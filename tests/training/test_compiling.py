"""A model that torch compiles: how often it does, what is said of it, and that the run stays exact."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from torch import nn
from transformers import PreTrainedTokenizerFast

import tiny
from footplate import DataCollatorWithPadding, Trainer
from footplate.data.collators.multiples import PaddingToMultiples
from footplate.training.compiling import MANY_RECOMPILES, CompileWatch, find_varied, settle_problem_type

LOGGER = "footplate.training.compiling"


class Bag(nn.Module):
    """Classes of a mean over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> dict[str, torch.Tensor]:
        kept = attention_mask.unsqueeze(-1).float()
        logits = self.head((self.embedding(input_ids) * kept).sum(1) / kept.sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def build_tokenizer() -> PreTrainedTokenizerFast:
    words = {"[PAD]": 0, "[UNK]": 1}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=30, **special)


def ragged(num_samples: int) -> list[dict[str, Any]]:
    """Rows of three to thirty tokens, in no order."""
    rows = tiny.token_rows(num_samples, 30)
    return [{"input_ids": row[: 3 + 17 * i % 28], "label": i % 3} for i, row in enumerate(rows)]


@pytest.fixture
def graphs() -> Iterator[list[Any]]:
    """What the backend "counting" was asked to compile."""
    from torch._dynamo.backends.registry import _COMPILER_FNS, register_backend

    seen: list[Any] = []

    def counting(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph

    torch.compiler.reset()
    register_backend(counting, name="counting")  # type: ignore[arg-type]
    yield seen
    del _COMPILER_FNS["counting"]
    torch.compiler.reset()


def build(folder: Any, model: nn.Module, **settings: Any) -> Trainer:
    common = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 8, "num_train_epochs": 2}
    return Trainer(
        model,
        tiny.arguments(folder, **common, **settings),
        train_dataset=ragged(23),
        eval_dataset=ragged(13),
        processing_class=build_tokenizer(),
    )


# ---- how often ----

EVALUATED = {"eval_strategy": "steps", "eval_steps": 2}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1),
        ({"padding_multiple": 1}, 1),  # every width
        ({"gradient_accumulation_steps": 3}, 1),
        (EVALUATED, 2),
        ({"dataloader_drop_last": True}, 1),
    ],
)
def test_a_run_compiles_once_to_train_and_once_to_evaluate(tmp_path, graphs, settings, expected):
    trainer = build(tmp_path, Bag(), torch_compile_backend="counting", **settings)
    trainer.train()
    assert len(graphs) == expected
    watch = trainer._current_run.compiles
    assert (watch.num_compiles, watch.num_recompiles) == (expected, expected - 1)
    trainer.evaluate()
    trainer.evaluate()
    assert len(graphs) == 2  # evaluated with the model that training compiled


@pytest.mark.slow
def test_a_classifier_of_transformers_compiles_as_rarely(tmp_path, graphs):
    trainer = build(tmp_path, tiny.bert_classifier(), torch_compile_backend="counting", **EVALUATED)
    trainer.train()
    assert len(graphs) == 2
    assert trainer.model.config.problem_type == "single_label_classification"


def test_widths_that_nobody_announces_cost_one_compile_more(tmp_path, graphs):
    def collate(rows: list[Any]) -> Any:
        return DataCollatorWithPadding(build_tokenizer())(rows)

    trainer = build(tmp_path, Bag(), torch_compile_backend="counting")
    trainer.data_collator = collate
    trainer.train()
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("collator", "drops_last", "expected"),
    [
        (DataCollatorWithPadding(None), False, (0, 1)),
        (DataCollatorWithPadding(None), True, (1,)),
        (DataCollatorWithPadding(None, padding="max_length"), False, (0,)),
        (len, True, ()),
    ],
)
def test_the_sizes_that_differ(collator, drops_last, expected):
    assert find_varied(collator, drops_last) == expected


@pytest.mark.parametrize(
    ("labels", "num_labels"),
    [(torch.tensor([0, 2]), 3), (torch.zeros(2, 3), 3), (torch.tensor([0.5, 1.0]), 1)],
)
def test_the_kind_of_labels_is_that_of_the_first_forward(labels, num_labels):
    ids = torch.tensor([[1, 2], [3, 4]])
    expected = tiny.bert_classifier(num_labels)
    expected(input_ids=ids, labels=labels)
    model = tiny.bert_classifier(num_labels)
    settle_problem_type(model, labels)
    assert model.config.problem_type == expected.config.problem_type is not None


def test_a_kind_of_labels_that_is_set_stays():
    model = tiny.bert_classifier(problem_type="multi_label_classification")
    settle_problem_type(model, torch.tensor([0, 1]))
    assert model.config.problem_type == "multi_label_classification"
    other = tiny.gpt()
    settle_problem_type(other, torch.tensor([0, 1]))
    assert other.config.problem_type is None


# ---- what is said ----


def test_the_first_update_says_what_compiling_took(tmp_path, caplog):
    torch.compiler.reset()
    with caplog.at_level(logging.INFO, LOGGER):
        build(tmp_path, Bag(), torch_compile_backend="eager", log_level="info").train()
    told = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert len(told) == 1
    assert told[0].startswith("Compiled in ")
    assert "the first update took" in told[0]


def test_without_compiling_nothing_is_watched_or_said(tmp_path, caplog):
    trainer = build(tmp_path, Bag(), log_level="info")
    with caplog.at_level(logging.INFO, LOGGER):
        trainer.train()
    assert trainer._current_run.compiles is None
    assert [record for record in caplog.records if record.name == LOGGER] == []


def test_many_recompiles_are_warned_of_once_with_reason_and_settings(caplog):
    torch.compiler.reset()
    compiled = torch.compile(lambda x, flag: x + len(flag), backend="eager", dynamic=False)
    with CompileWatch() as watch:
        for size in range(2, 4 + MANY_RECOMPILES):
            compiled(torch.zeros(size), "a")
            watch.report(time.time())
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    for part in (f"{MANY_RECOMPILES} of them", "size mismatch", "padding_multiple", "dataloader_drop_last"):
        assert part in warnings[0]
    compiled(torch.zeros(50), "a")
    assert watch.num_compiles == 2 + MANY_RECOMPILES  # no longer watched


def test_the_compiler_is_not_imported_with_the_trainer():
    program = "import sys, footplate; footplate.Trainer; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# ---- what is saved ----


def test_a_compiled_run_resumes_to_the_last_bit(tmp_path):
    def run(resume: str | None = None) -> dict[str, torch.Tensor]:
        torch.compiler.reset()
        settings = {"save_strategy": "steps", "save_steps": 4, "gradient_accumulation_steps": 1}
        trainer = build(tmp_path, Bag(), torch_compile_backend="eager", **settings)
        trainer.train(resume_from_checkpoint=resume)
        return trainer.model.state_dict()

    whole = run()
    checkpoint = tmp_path / "checkpoint-4"
    assert load_file(checkpoint / "model.safetensors").keys() == Bag().state_dict().keys()
    resumed = run(str(checkpoint))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


# ---- which collator pads ----


def test_the_default_collator_pads_to_multiples_if_compiled(tmp_path):
    plain = build(tmp_path, Bag())
    assert type(plain.data_collator) is DataCollatorWithPadding
    assert plain.data_collator.pad_to_multiple_of is None
    compiled = build(tmp_path, Bag(), torch_compile_backend="eager").data_collator
    assert isinstance(compiled, PaddingToMultiples)
    assert (compiled.pad_to_multiple_of, compiled.widest) == (64, 30)
    asked = build(tmp_path, Bag(), padding_multiple=8).data_collator
    assert asked([{"input_ids": [1] * 9}])["input_ids"].shape == (1, 16)


def test_a_collator_of_the_user_stays_and_a_setting_without_effect_is_named(tmp_path, caplog):
    given = DataCollatorWithPadding(build_tokenizer())
    args = tiny.arguments(tmp_path, torch_compile_backend="eager", padding_multiple=16)
    trainer = Trainer(Bag(), args, data_collator=given)
    assert trainer.data_collator is given
    assert given.pad_to_multiple_of is None
    assert "padding_multiple=16: no effect, because a data_collator was given" in caplog.text


def test_the_model_limits_the_width_too(tmp_path):
    model = Bag()
    model.config = SimpleNamespace(max_position_embeddings=20)
    assert build(tmp_path, model, torch_compile_backend="eager").data_collator.widest == 20
