"""What ranks send to each other."""

from __future__ import annotations

import pytest

from footplate.planning.traffic import Group, choose_group, plan_traffic


def sent(sharding, world_size, accumulation=1, ranks_per_node=8, **options):
    group = choose_group(sharding, world_size, ranks_per_node)
    found = plan_traffic(
        sharding,
        group,
        weight_bytes=800,
        root_bytes=80,
        gradient_bytes=1600,
        accumulation=accumulation,
        **options,
    )
    return {transfer.name: transfer.num_bytes for transfer in found}


def test_ddp_reduces_all_gradients_once():
    assert sent("none", 4, accumulation=3) == {"all-reduce of gradients": 2400}
    assert sent("none", 4, buffer_bytes=7)["broadcast of buffers"] == 7


def test_full_sharding_gathers_twice_and_keeps_the_root():
    assert sent("full_shard", 8) == {
        "all-gather of weights, forward": 700,
        "all-gather of weights, backward": 630,
        "reduce-scatter of gradients": 1400,
    }


def test_accumulation_gathers_again_and_reduces_once_unless_told_to():
    found = sent("full_shard", 8, accumulation=4)
    assert found["all-gather of weights, forward"] == 2800
    assert found["reduce-scatter of gradients"] == 1400
    each = sent("full_shard", 8, accumulation=4, reduces_each_batch=True)
    assert each["reduce-scatter of gradients"] == 5600


def test_weights_that_stay_are_not_gathered_in_backward():
    assert list(sent("shard_grad_op", 2)) == ["all-gather of weights, forward", "reduce-scatter of gradients"]


def test_hybrid_shards_inside_a_machine_and_reduces_shards_between_them():
    assert choose_group("hybrid", 32, 8) == Group(8, 4)
    found = sent("hybrid", 32)
    assert found["all-gather of weights, forward"] == 700
    assert found["all-reduce between copies"] == 300  # 2 * 3/4 of an eighth


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="Choose one of none, shard_grad_op"):
        choose_group("zero", 2, 8)
    with pytest.raises(ValueError, match="must be a multiple"):
        choose_group("hybrid", 12, 8)
