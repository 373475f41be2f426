"""Adapters of real PEFT models, to disk and back."""

import peft
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from footplate.checkpoint.weights import load_weights, save_weights


def tiny_bert():
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
    )


def lora(rank=2):
    return peft.LoraConfig(r=rank, target_modules=["query", "value"], modules_to_save=["classifier"])


def with_lora(seed, adapter="default", rank=2, base=tiny_bert):
    """A LoRA model all of whose adapter weights are random."""
    model = peft.get_peft_model(base(), lora(rank), adapter_name=adapter)
    return randomize(model, seed)


def randomize(model, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn_like(parameter))
    return model


def assert_same_weights(ours, theirs):
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("adapter", ["default", "mine"])
def test_an_adapter_comes_back_and_stays_trainable(adapter, tmp_path):
    saved, fresh = with_lora(1, adapter), with_lora(2, adapter)
    save_weights(saved, tmp_path)
    trainable = [name for name, parameter in fresh.named_parameters() if parameter.requires_grad]
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)
    assert [name for name, parameter in fresh.named_parameters() if parameter.requires_grad] == trainable
    assert not list(tmp_path.rglob("model.safetensors"))


def test_an_adapter_at_the_top_fills_the_active_one_whatever_its_name(tmp_path):
    saved, fresh = with_lora(1), with_lora(2, "mine")
    save_weights(saved, tmp_path)
    assert load_weights(fresh, tmp_path) == ([], [])
    expected = peft.get_peft_model_state_dict(saved)
    for name, tensor in peft.get_peft_model_state_dict(fresh, adapter_name="mine").items():
        assert torch.equal(tensor, expected[name])


def test_every_adapter_of_a_model_comes_back(tmp_path):
    def build(seed):
        model = with_lora(seed)
        model.add_adapter("second", lora(3))
        model.set_adapter("second")
        return randomize(model, seed + 1)

    saved, fresh = build(1), build(5)
    save_weights(saved, tmp_path)
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)
    (tmp_path / "second" / "adapter_model.safetensors").unlink()
    assert load_weights(fresh, tmp_path).missing_keys == ["every tensor of adapter 'second'"]


def test_adapters_pass_between_the_original_and_footplate(tmp_path):
    saved, fresh = with_lora(1), with_lora(2)
    arguments = TrainingArguments(tmp_path / "theirs", report_to="none", use_cpu=True)
    Trainer(saved, arguments).save_model()
    assert load_weights(fresh, tmp_path / "theirs") == ([], [])
    assert_same_weights(fresh, saved)

    save_weights(saved, tmp_path / "ours")
    fresh = with_lora(2)
    Trainer(fresh, arguments)._load_from_checkpoint(str(tmp_path / "ours"))
    assert_same_weights(fresh, saved)


def test_adapters_that_transformers_adds_by_itself_come_back(tmp_path):
    def build(seed):
        model = tiny_bert()
        model.add_adapter(peft.LoraConfig(r=2, target_modules=["query"]), adapter_name="mine")
        return randomize(model, seed)

    saved, fresh = build(1), build(2)
    save_weights(saved, tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def test_an_adapter_on_a_plain_module_comes_back(tmp_path):
    def build(seed):
        torch.manual_seed(0)
        base = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        return randomize(peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["0"])), seed)

    saved, fresh = build(1), build(2)
    save_weights(saved, tmp_path)
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def test_prompt_embeddings_come_back(tmp_path):
    def build(seed):
        config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
        return randomize(peft.get_peft_model(tiny_bert(), config), seed)

    saved, fresh = build(1), build(2)
    save_weights(saved, tmp_path)
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def test_a_compiled_model_with_an_adapter_comes_back(tmp_path):
    saved, fresh = with_lora(1), with_lora(2)
    save_weights(torch.compile(saved), tmp_path)
    assert load_weights(torch.compile(fresh), tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def test_an_adapter_of_another_rank_is_refused_by_name(tmp_path):
    save_weights(with_lora(1, rank=2), tmp_path)
    with pytest.raises(ValueError, match=r"lora_A\.weight is \(2, 8\) in the file and \(3, 8\) in the model"):
        load_weights(with_lora(1, rank=3), tmp_path)


def test_missing_and_unexpected_tensors_of_an_adapter_are_named(tmp_path):
    def with_targets(*targets):
        return peft.get_peft_model(tiny_bert(), peft.LoraConfig(r=2, target_modules=list(targets)))

    save_weights(with_targets("query"), tmp_path)
    result = load_weights(with_targets("value"), tmp_path)
    assert len(result.missing_keys) == len(result.unexpected_keys) == 2
    assert all("value.lora" in name for name in result.missing_keys)
    assert all("query.lora" in name for name in result.unexpected_keys)


def test_an_older_adapter_file_is_read(tmp_path):
    saved, fresh = with_lora(1), with_lora(2)
    torch.save(peft.get_peft_model_state_dict(saved), tmp_path / "adapter_model.bin")
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def test_a_model_without_adapters_is_told_to_be_wrapped(tmp_path):
    save_weights(with_lora(1), tmp_path)
    with pytest.raises(ValueError, match="wrap the model with PEFT"):
        load_weights(tiny_bert(), tmp_path)


def test_whole_weights_are_loaded_into_a_model_with_adapters(tmp_path):
    saved, fresh = with_lora(1), with_lora(2)
    torch.save(saved.state_dict(), tmp_path / "pytorch_model.bin")
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)
