"""Weights of every kind of model, to disk and back, between footplate and the original."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    MixtralConfig,
    MixtralForCausalLM,
    Trainer,
    TrainingArguments,
)

from footplate.checkpoint.weights import load_weights, save_weights


class Tied(nn.Module):
    """An embedding that is its own output layer, with a buffer and a strided parameter."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(7, 4)
        self.output = nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight
        self.strided = nn.Parameter(torch.randn(3, 5).t())
        self.register_buffer("counts", torch.arange(3) + seed)


def linear(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))


def tiny_bert(seed):
    torch.manual_seed(seed)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
    )


def tiny_gpt(seed):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2))


def tiny_mixtral(seed):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_local_experts": 2}
    return MixtralForCausalLM(
        MixtralConfig(vocab_size=20, num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, **sizes)
    )


def assert_same_weights(ours, theirs):
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def original_trainer(model, folder):
    return Trainer(model, TrainingArguments(folder, report_to="none", use_cpu=True))


MODELS = [linear, Tied, tiny_bert, tiny_gpt, tiny_mixtral]


@pytest.mark.parametrize("build", MODELS)
def test_weights_come_back_to_the_last_bit(build, tmp_path):
    saved, fresh = build(0), build(1)
    save_weights(saved, tmp_path / "new" / "folder")
    parameters = dict(fresh.named_parameters())
    assert load_weights(fresh, tmp_path / "new" / "folder") == ([], [])
    assert_same_weights(fresh, saved)
    assert all(parameters[name] is parameter for name, parameter in fresh.named_parameters())


@pytest.mark.parametrize("build", [linear, tiny_bert, tiny_gpt])
def test_what_the_original_wrote_is_read(build, tmp_path):
    saved, fresh = build(0), build(1)
    original_trainer(saved, tmp_path).save_model()
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


# a tied plain module is left out: the original can neither write one nor bear a missing name in one
@pytest.mark.parametrize("build", [linear, tiny_bert, tiny_gpt])
def test_the_original_reads_what_was_written(build, tmp_path):
    saved, fresh = build(0), build(1)
    save_weights(saved, tmp_path)
    original_trainer(fresh, tmp_path)._load_from_checkpoint(str(tmp_path))
    assert_same_weights(fresh, saved)


@pytest.mark.parametrize("build", [tiny_bert, tiny_gpt, tiny_mixtral])
def test_a_transformers_model_writes_what_save_pretrained_writes(build, tmp_path):
    model = build(0)
    save_weights(model, tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()} == theirs


def test_a_tied_tensor_is_stored_once_and_both_names_are_known(tmp_path):
    save_weights(Tied(), tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"output.weight": "embedding.weight", "format": "pt"}
        assert set(file.keys()) == {"embedding.weight", "strided", "counts"}
    fresh = Tied(1)
    load_weights(fresh, tmp_path)
    assert fresh.output.weight is fresh.embedding.weight
    other_reader = Tied(1)
    load_model(other_reader, tmp_path / "model.safetensors")
    assert_same_weights(other_reader, fresh)


def test_a_model_that_no_longer_ties_gets_both_tensors(tmp_path):
    saved, untied = Tied(0), Tied(1)
    save_weights(saved, tmp_path)
    untied.output.weight = nn.Parameter(torch.zeros(7, 4))
    assert load_weights(untied, tmp_path) == ([], [])
    assert torch.equal(untied.output.weight, saved.embedding.weight)


def test_views_of_one_memory_are_stored_each_for_itself(tmp_path):
    class Views(nn.Module):
        def __init__(self, values):
            super().__init__()
            self.register_buffer("first", values[:4])
            self.register_buffer("second", values[2:])
            self.register_buffer("empty", values[:0])
            self.register_buffer("empty_too", values[:0])

    save_weights(Views(torch.arange(6.0)), tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["first"].tolist() == [0, 1, 2, 3]
    assert stored["second"].tolist() == [2, 3, 4, 5]
    assert {"empty", "empty_too"} < set(stored)


def compiled(model):
    return torch.compile(model)


def compiled_inside(model):
    name, child = next(iter(model.named_children()))
    model.set_submodule(name, torch.compile(child))
    return model


def in_parallel(model):
    return nn.DataParallel(torch.compile(model))


@pytest.mark.parametrize("build", [linear, Tied, tiny_bert, tiny_gpt])
@pytest.mark.parametrize("wrap", [compiled, compiled_inside, in_parallel])
def test_wrappers_leave_no_trace_in_the_file(build, wrap, tmp_path):
    save_weights(wrap(build(0)), tmp_path)
    assert load_file(tmp_path / "model.safetensors").keys() <= build(0).state_dict().keys()
    plain, wrapped = build(1), wrap(build(1))
    assert load_weights(plain, tmp_path) == ([], [])
    assert load_weights(wrapped, tmp_path) == ([], [])
    assert_same_weights(plain, build(0))
    assert [tensor.tolist() for tensor in wrapped.state_dict().values()] == [
        tensor.tolist() for tensor in plain.state_dict().values()
    ]


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_names_in_a_given_state_are_cleaned_on_both_ways(prefix, tmp_path):
    saved, fresh = linear(0), linear(1)
    state = {prefix + name: tensor for name, tensor in saved.state_dict().items()}
    save_weights(saved, tmp_path / "cleaned", state_dict=state)
    assert load_file(tmp_path / "cleaned" / "model.safetensors").keys() == saved.state_dict().keys()
    save_file(state, tmp_path / "model.safetensors")
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def test_a_part_that_is_called_module_keeps_its_name(tmp_path):
    def build(seed):
        return nn.ModuleDict({"module": linear(seed)})

    fresh = build(1)
    save_weights(build(0), tmp_path)
    assert "module.0.weight" in load_file(tmp_path / "model.safetensors")
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, build(0))


def test_a_state_given_by_the_caller_is_what_a_transformers_model_writes(tmp_path):
    model = tiny_bert(0)
    other = {f"module.{name}": tensor for name, tensor in tiny_bert(5).state_dict().items()}
    save_weights(model, tmp_path, state_dict=other)
    load_weights(model, tmp_path)
    assert_same_weights(model, tiny_bert(5))


def test_shards_of_safetensors_are_read(tmp_path):
    saved, fresh = tiny_bert(0), tiny_bert(1)
    saved.save_pretrained(tmp_path, max_shard_size="2KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def save_bin_shards(state, folder):
    weight_map = {name: f"pytorch_model-0000{i % 2 + 1}-of-00002.bin" for i, name in enumerate(state)}
    for shard in set(weight_map.values()):
        torch.save({name: state[name] for name in state if weight_map[name] == shard}, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("build", [linear, Tied, tiny_gpt])
def test_files_of_older_versions_are_read(build, is_sharded, tmp_path):
    saved, fresh = build(0), build(1)
    if is_sharded:
        save_bin_shards(saved.state_dict(), tmp_path)
    else:
        torch.save(saved.state_dict(), tmp_path / "pytorch_model.bin")
    assert load_weights(fresh, tmp_path) == ([], [])
    assert_same_weights(fresh, saved)


def test_an_incomplete_set_of_shards_is_refused_before_anything_is_loaded(tmp_path):
    model = linear(1)
    save_bin_shards(linear(0).state_dict(), tmp_path)
    (tmp_path / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(ValueError, match=r"pytorch_model-00002-of-00002\.bin"):
        load_weights(model, tmp_path)
    assert_same_weights(model, linear(1))


def test_an_index_cannot_point_out_of_its_folder(tmp_path):
    outside, folder = tmp_path / "outside.safetensors", tmp_path / "folder"
    folder.mkdir()
    save_file(linear(0).state_dict(), outside)
    index = {"weight_map": {"0.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"\.\./outside"):
        load_weights(linear(1), folder)


def test_missing_and_unexpected_tensors_are_named(tmp_path):
    state = linear(0).state_dict()
    state["extra"] = state.pop("0.bias")
    save_file(state, tmp_path / "model.safetensors")
    result = load_weights(linear(1), tmp_path)
    assert result.missing_keys == ["0.bias"]
    assert result.unexpected_keys == ["extra"]


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_weight_that_state_dict_leaves_out_is_missing_unless_it_is_tied(tmp_path, is_tied):
    class Lossy(Tied):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            return {name: value for name, value in state.items() if name != "output.weight"}

    model = Lossy()
    if not is_tied:
        model.output.weight = nn.Parameter(torch.zeros(7, 4))
    save_weights(model, tmp_path)
    assert load_weights(model, tmp_path).missing_keys == ([] if is_tied else ["output.weight"])


def test_a_transformers_model_with_another_head_says_what_it_lacks(tmp_path):
    tiny_gpt(0).save_pretrained(tmp_path)
    fresh = tiny_bert(1)
    before = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
    result = load_weights(fresh, tmp_path)
    assert "classifier.weight" in result.missing_keys
    assert "transformer.wte.weight" in result.unexpected_keys
    assert all(torch.equal(before[name], tensor) for name, tensor in fresh.state_dict().items())


def test_other_shapes_are_refused_by_name_and_nothing_changes(tmp_path):
    save_weights(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)), tmp_path)
    model = linear(1)
    with pytest.raises(ValueError, match=r"0\.weight is \(5, 3\) in the file and \(4, 3\) in the model"):
        load_weights(model, tmp_path)
    assert_same_weights(model, linear(1))


def test_a_folder_without_weights_says_what_was_looked_for(tmp_path):
    with pytest.raises(ValueError, match=r"holds no weights: looked for model\.safetensors"):
        load_weights(linear(0), tmp_path)


def test_a_file_cut_short_says_so(tmp_path):
    save_weights(linear(0), tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read; it may be cut short"):
        load_weights(linear(1), tmp_path)


def test_state_that_is_no_tensor_is_named_when_saving(tmp_path):
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"version": 1}

    with pytest.raises(TypeError, match="_extra_state"):
        save_weights(Odd(2, 2), tmp_path)


def test_a_bin_file_that_is_no_dictionary_is_refused(tmp_path):
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="holds a list"):
        load_weights(linear(0), tmp_path)


def test_lazy_parameters_take_the_shape_of_the_file(tmp_path):
    save_weights(nn.Linear(3, 2), tmp_path)
    lazy = nn.LazyLinear(2)
    load_weights(lazy, tmp_path)
    assert lazy.weight.shape == (2, 3)
