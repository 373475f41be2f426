"""Changes to a model for one run are those of the original, and end with the run."""

from __future__ import annotations

import copy
import itertools
import sys

import pytest
import torch
import transformers
from torch import nn
from transformers.integrations.neftune import activate_neftune
from transformers.trainer_utils import align_special_tokens as original_align

import tiny
from footplate.training import patches

IDS = torch.arange(12).reshape(2, 6)


def adapted():
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        tiny.gpt(), LoraConfig(task_type="CAUSAL_LM", target_modules=["c_attn"], fan_in_fan_out=True)
    )


def embed(model, seed=3):
    """The input embeddings of a few ids, after seeding."""
    torch.manual_seed(seed)
    return model.get_input_embeddings()(IDS).detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("alpha", [0.1, 5, 15.0])
@pytest.mark.parametrize("build", [tiny.gpt, tiny.bert_classifier, adapted])
def test_noise_is_the_originals_to_the_last_bit(build, alpha, dtype):
    model = build().to(dtype).train()
    clean = embed(model)
    with patches.embedding_noise(model, alpha):
        found = embed(model)
    assert torch.equal(embed(model), clean)  # gone with the run
    handle = activate_neftune(model, alpha)
    expected = embed(model)
    handle.remove()
    assert torch.equal(found, expected)
    assert not torch.equal(found, clean)


def test_noise_is_added_only_while_the_model_trains():
    model = tiny.gpt().eval()
    clean = embed(model)
    with patches.embedding_noise(model, 5.0):
        assert torch.equal(embed(model), clean)


def test_noise_ends_where_a_run_fails():
    model = tiny.gpt().train()
    clean = embed(model)
    with pytest.raises(KeyError), patches.embedding_noise(model, 5.0):
        raise KeyError
    assert torch.equal(embed(model), clean)


def test_noise_reaches_a_compiled_model():
    model = tiny.gpt().train()
    with patches.embedding_noise(torch.compile(model, backend="eager"), 5.0):
        assert len(model.get_input_embeddings()._forward_hooks) == 1


def test_noise_needs_embeddings_and_no_noise_needs_nothing():
    with (
        pytest.raises(ValueError, match=r"neftune_noise_alpha=5.0.*Regression"),
        patches.embedding_noise(tiny.Regression(), 5.0),
    ):
        pass
    with patches.embedding_noise(tiny.Regression(), None):
        pass


class Recomputes(nn.Module):
    def gradient_checkpointing_enable(self, **kwargs):
        self.received = kwargs


def test_recomputing_is_turned_on_with_its_settings(tmp_path):
    model = Recomputes()
    patches.enable_recompute(model, tiny.arguments(tmp_path))
    assert not hasattr(model, "received")
    patches.enable_recompute(model, tiny.arguments(tmp_path, gradient_checkpointing=True))
    assert model.received == {"gradient_checkpointing_kwargs": None}
    settings = {"use_reentrant": True, "every_n_layers": 2, "offload": True}
    args = tiny.arguments(tmp_path, gradient_checkpointing=True, gradient_checkpointing_kwargs=settings)
    patches.enable_recompute(model, args)
    assert model.received == {
        "gradient_checkpointing_kwargs": {"use_reentrant": True},
        "every_n_layers": 2,
        "offload": True,
    }
    assert set(args.gradient_checkpointing_kwargs) == set(settings)  # the arguments stay whole


@pytest.mark.parametrize("settings", [None, {"use_reentrant": False}, {"every_n_layers": 2}], ids=str)
def test_a_model_of_transformers_recomputes(settings, tmp_path):
    model = tiny.gpt()
    args = tiny.arguments(tmp_path, gradient_checkpointing=True, gradient_checkpointing_kwargs=settings)
    patches.enable_recompute(model, args)
    assert model.is_gradient_checkpointing


def test_a_model_that_cannot_recompute_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"activation_checkpointing=True.*Regression"):
        patches.enable_recompute(tiny.Regression(), tiny.arguments(tmp_path, gradient_checkpointing=True))


def test_missing_fused_kernels_name_their_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)  # as where it is not installed
    patches.apply_fused_kernels(tiny.Regression(), tiny.arguments(tmp_path))
    with pytest.raises(ImportError, match="pip install liger-kernel"):
        patches.apply_fused_kernels(tiny.Regression(), tiny.arguments(tmp_path, use_liger_kernel=True))


class Tokenizer(transformers.PreTrainedTokenizerFast):
    """A tokenizer with the special tokens it is told to have."""

    def __init__(self, bos, eos, pad):
        from tokenizers import Tokenizer, models

        words = {word: k for k, word in enumerate("abcdefgh")}
        names = {"bos_token": bos, "eos_token": eos, "pad_token": pad}
        super().__init__(
            tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="a")),
            **{name: token for name, token in names.items() if token is not None},
        )


def special_tokens(model):
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    holders = [model.config, getattr(model, "generation_config", None)]
    return [[getattr(holder, name, None) for name in names] for holder in holders]


@pytest.mark.parametrize("eos_before", [None, 2, 0, [2, 3], [0, 2]], ids=str)
@pytest.mark.parametrize(
    "tokens", list(itertools.product([None, "a"], [None, "c", "e"], [None, "d"])), ids=str
)
def test_special_tokens_are_aligned_as_by_the_original(tokens, eos_before):
    model = tiny.gpt()
    model.config.eos_token_id = model.generation_config.eos_token_id = eos_before
    other = copy.deepcopy(model)
    original_align(other, Tokenizer(*tokens))
    patches.align_special_tokens(model, Tokenizer(*tokens))
    assert special_tokens(model) == special_tokens(other)


def test_special_tokens_of_an_encoder_are_aligned_as_by_the_original(caplog):
    model, other = tiny.bert_classifier(), tiny.bert_classifier()
    original_align(other, Tokenizer(None, None, "h"))
    patches.align_special_tokens(model, Tokenizer(None, None, "h"))
    assert special_tokens(model) == special_tokens(other)
    assert model.config.pad_token_id == 7
    assert "'pad_token_id': 7" in caplog.text


class Processor:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer


@pytest.mark.parametrize(
    ("build", "processing"),
    [(tiny.gpt, None), (tiny.Regression, Tokenizer(None, None, "h")), (tiny.gpt, object())],
)
def test_where_there_are_no_tokens_to_align_nothing_changes(build, processing, caplog):
    model = build()
    before = special_tokens(model) if hasattr(model, "config") else None
    patches.align_special_tokens(model, processing)
    assert (special_tokens(model) if hasattr(model, "config") else None) == before
    assert not caplog.records


def test_the_tokenizer_inside_a_processor_counts():
    model = tiny.gpt()
    patches.align_special_tokens(model, Processor(Tokenizer(None, None, "h")))
    assert model.config.pad_token_id == 7


def test_the_newer_name_is_called_first_and_the_older_setting_may_come_late(tmp_path):
    class Newer(Recomputes):
        def activation_checkpointing_enable(self, **kwargs):
            self.received = {"newer": kwargs}

    args = tiny.arguments(tmp_path)
    args.gradient_checkpointing = True
    model = Newer()
    patches.enable_recompute(model, args)
    assert model.received == {"newer": {"activation_checkpointing_kwargs": None}}
