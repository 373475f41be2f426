"""The parts of a model that are gathered one at a time."""

from __future__ import annotations

import pytest
from torch import nn

import tiny
from footplate.distributed.fsdp_layers import choose_layers
from footplate.planning.units import count_units, find_units, read_layer_names, sort_units


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)


def stack():
    return nn.ModuleDict({"embed": nn.Embedding(10, 4), "layers": nn.ModuleList([Block(), Block()])})


@pytest.mark.parametrize("build", [stack, tiny.gpt, tiny.bert_classifier, lambda: nn.Linear(2, 2)])
def test_units_are_those_that_training_shards(build):
    from footplate.arguments.fsdp_config import FsdpSettings

    model = build()
    assert find_units(model) == sort_units(model, choose_layers(model, FsdpSettings()))


def test_named_classes_are_found_in_the_order_of_the_model():
    model = stack()
    assert find_units(model, ["Linear"]) == [layer.inner for layer in model["layers"]]
    first, second = model["layers"]
    first.own = nn.Linear(2, 2)
    assert sort_units(model, [second, first.inner, first]) == [first, second]


def test_a_list_that_only_holds_units_is_none_itself():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    assert find_units(nn.ModuleList([model])) == [*model]


def test_shared_and_frozen_weights_are_counted_rightly():
    model = stack()
    model["layers"][0].inner.weight.requires_grad_(False)
    model["layers"][1].inner.bias = model["layers"][0].inner.bias
    root, units = count_units(model, find_units(model))
    assert root == (40, 40)
    assert units == [(20, 4), (16, 16)]


def test_layer_names_come_from_the_settings(tmp_path):
    args = tiny.arguments(tmp_path)
    assert read_layer_names(args) == []
    args.fsdp_config = {"transformer_layer_cls_to_wrap": "Block"}
    assert read_layer_names(args) == ["Block"]
