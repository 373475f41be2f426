from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers import Trainer as OriginalTrainer
from transformers.trainer_pt_utils import get_parameter_names as originals_names

from footplate.optim.groups import (
    build_optimizer,
    build_parameter_groups,
    decay_parameter_names,
    get_parameter_names,
    named_rates,
)

SMALL = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}


class Plain(nn.Module):
    """A module of one's own: odd names, a bare parameter, a frozen part, a norm by name only."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.register_parameter("absent", None)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4, bias=False))
        self.final_norm = nn.Linear(4, 4)
        self.normalizer = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 2)


MODELS = {
    "bert": lambda: BertForSequenceClassification(BertConfig(**SMALL)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "plain": Plain,
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def names_of(model, parameters):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for parameter in parameters]


def describe(model, groups):
    return {group["name"]: names_of(model, group["params"]) for group in groups}


def test_parameters_that_decay_are_the_originals(model):
    assert decay_parameter_names(model) == OriginalTrainer.get_decay_parameter_names(None, model)
    assert decay_parameter_names(model)


@pytest.mark.parametrize("types", [[], [nn.LayerNorm], [nn.Embedding, nn.Linear]])
@pytest.mark.parametrize("patterns", [None, [], ["bias"], [r"^norm", r"\.0\.", r"^attention"]])
def test_names_outside_forbidden_layers_are_the_originals(model, types, patterns):
    assert get_parameter_names(model, types, patterns) == originals_names(model, types, patterns)


def test_without_rules_the_two_groups_are_the_originals(model):
    decaying = OriginalTrainer.get_decay_parameter_names(None, model)
    trainable = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    first, second = build_parameter_groups(model, decay_parameter_names(model), 0.1, 1e-3)
    assert first.keys() == second.keys() == {"params", "weight_decay"}
    assert (first["weight_decay"], second["weight_decay"]) == (0.1, 0.0)
    assert names_of(model, first["params"]) == [name for name, _ in trainable if name in decaying]
    assert names_of(model, second["params"]) == [name for name, _ in trainable if name not in decaying]


@pytest.mark.parametrize(
    "rules",
    [
        [{"match": r"classifier|lm_head|ln_f", "lr": 1e-2}],
        [{"match": "(?i)norm|ln_"}, {"match": "."}],
        [{"layer_decay": 0.9}],
        [
            {"match": r"\.0\.", "layer_decay": 0.5, "lr": 1e-2, "name": "first"},
            {"layer_decay": 0.9, "weight_decay": 0.3},
        ],
    ],
)
@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_groups_share_out_every_trainable_parameter_once(kind, rules):
    model = MODELS[kind]()
    next(model.parameters()).requires_grad_(False)
    groups = build_parameter_groups(model, decay_parameter_names(model), 0.1, 1e-3, rules)
    shared_out = [name for group in groups for name in names_of(model, group["params"])]
    assert sorted(shared_out) == sorted(
        name for name, value in model.named_parameters() if value.requires_grad
    )
    assert len({group["name"] for group in groups}) == len(groups)
    decaying = set(decay_parameter_names(model))
    for group in groups:
        assert group["params"]
        does_decay = {name in decaying for name in names_of(model, group["params"])}
        assert does_decay == {group["weight_decay"] > 0}
        assert group["name"].endswith("no_decay") == (group["weight_decay"] == 0)


def test_a_rule_sets_rate_and_decay_of_what_it_matches():
    model = Plain()
    rules = [{"match": r"^head\.", "lr": 0.5, "weight_decay": 0.3, "name": "top"}]
    groups = build_parameter_groups(model, decay_parameter_names(model), 0.1, 1e-3, rules)
    assert [(group["name"], group["lr"], group["weight_decay"]) for group in groups] == [
        ("rest", 1e-3, 0.1),
        ("rest/no_decay", 1e-3, 0.0),
        ("top", 0.5, 0.3),
        ("top/no_decay", 0.5, 0.0),
    ]
    assert describe(model, groups)["top"] == ["head.weight"]
    assert describe(model, groups)["top/no_decay"] == ["head.bias"]


def test_the_first_rule_that_matches_wins():
    model = Plain()
    rules = [{"match": "body.0", "lr": 0.5}, {"match": "body", "lr": 0.25}]
    names = describe(model, build_parameter_groups(model, decay_parameter_names(model), 0.1, 1e-3, rules))
    assert names["body.0"] == ["body.0.weight"]
    assert names["body"] == ["body.2.weight"]
    assert names["body/no_decay"] == ["body.1.weight", "body.1.bias"]


def test_layer_decay_falls_from_head_to_embeddings():
    model = MODELS["bert"]()
    rules = [{"match": "^classifier", "lr": 1.0, "name": "head"}, {"layer_decay": 0.5}]
    groups = build_parameter_groups(model, decay_parameter_names(model), 0.0, 0.8, rules)
    assert {group["name"]: group["lr"] for group in groups} == {
        "head": 1.0,
        "head/no_decay": 1.0,
        "layer_decay/head": 0.8,
        "layer_decay/head/no_decay": 0.8,
        "layer_decay/block.1": 0.4,
        "layer_decay/block.1/no_decay": 0.4,
        "layer_decay/block.0": 0.2,
        "layer_decay/block.0/no_decay": 0.2,
        "layer_decay/embeddings": 0.1,
        "layer_decay/embeddings/no_decay": 0.1,
    }
    assert describe(model, groups)["layer_decay/head"] == ["bert.pooler.dense.weight"]


def test_numbers_may_be_text_as_yaml_gives_them():
    groups = build_parameter_groups(Plain(), [], 0.0, 1e-3, [{"match": "head", "lr": "1e-2"}])
    assert groups[-1]["lr"] == 1e-2


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([{"match": "haed"}], "the pattern 'haed' matches no trainable parameter"),
        ([{"match": "^frozen"}], "the pattern '\\^frozen' matches no trainable parameter"),
        ([{"match": "head("}], r"'head\(' is not a regular expression"),
        (
            [{"match": "head", "rate": 1.0}],
            r"has \['rate'\]; a rule may have match, lr, weight_decay, layer_decay, name",
        ),
        ([{"lr": 1.0}], "neither 'match' nor 'layer_decay'"),
        ([{"match": "head", "lr": "fast"}], "lr='fast' .* is not a number"),
        ([{"match": "head", "weight_decay": -1}], "weight_decay=-1 .* must not be negative"),
        ([{"layer_decay": 1.5}], r"layer_decay=1\.5 must be above 0"),
        (
            [{"match": "head"}, {"match": "head.weight"}],
            "earlier rules match all parameters of rule 'head.weight'",
        ),
        ([{"match": "head", "name": "a"}, {"match": "body", "name": "a"}], "two groups would be named 'a'"),
        ([{"match": "head", "name": "rest"}], "two groups would be named 'rest'"),
    ],
)
def test_wrong_rules_are_refused(rules, message):
    model = Plain()
    with pytest.raises(ValueError, match=message):
        build_parameter_groups(model, decay_parameter_names(model), 0.1, 1e-3, rules)


def test_build_optimizer_keeps_names_and_rates_of_the_groups(make_args, make_model, take_updates):
    model = make_model()
    args = make_args(param_groups=[{"match": r"^3\.", "lr": 0.5, "name": "top"}])
    optimizer = build_optimizer(torch.optim.AdamW, {"lr": 0.25}, model, args, decay_parameter_names(model))
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert rates == {"rest": 0.25, "rest/no_decay": 0.25, "top": 0.5, "top/no_decay": 0.5}
    take_updates(model, optimizer)
    restored = build_optimizer(torch.optim.AdamW, {"lr": 0.25}, model, args, decay_parameter_names(model))
    restored.load_state_dict(optimizer.state_dict())
    assert [group["name"] for group in restored.param_groups] == list(rates)


def test_build_optimizer_lets_a_factory_sort_the_parameters(make_args, make_model):
    class Factory:
        def __call__(self, model, lr):
            return torch.optim.SGD(model[1].parameters(), lr=lr)

    model = make_model()
    optimizer = build_optimizer(Factory, {"lr": 0.5}, model, make_args(), [])
    assert optimizer.param_groups[0]["params"] == list(model[1].parameters())


def test_groups_of_the_builder_replace_the_arguments(make_args, make_model, caplog):
    model = make_model()
    kwargs = {"lr": 0.5, "params": [{"params": list(model[3].parameters())}]}
    args = make_args(param_groups=[{"match": "weight"}])
    optimizer = build_optimizer(torch.optim.SGD, kwargs, model, args, [])
    assert len(optimizer.param_groups) == 1
    assert "params" in kwargs
    assert "param_groups has no effect" in caplog.text


def test_rates_are_logged_under_the_names_of_their_groups(make_args, make_model):
    model = make_model()
    args = make_args(param_groups=[{"match": r"^3\.weight", "lr": 0.5, "name": "top"}])
    named = build_optimizer(torch.optim.SGD, {"lr": 0.25}, model, args, decay_parameter_names(model))
    assert named_rates(named) == {
        "learning_rate/rest": 0.25,
        "learning_rate/rest/no_decay": 0.25,
        "learning_rate/top": 0.5,
    }
    plain = build_optimizer(torch.optim.SGD, {"lr": 0.25}, model, make_args(), decay_parameter_names(model))
    assert named_rates(plain) == {}
