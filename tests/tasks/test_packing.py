"""Several sequences in one row: they do not see each other, and their loss is that of each alone."""

import random

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from footplate.tasks.common.packing import FLAT, MASK, POSITIONS, PackedCollator, find_collator, pack_rows

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
PLACES = {"vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0}
KINDS = {
    "llama": {**SMALL, "num_key_value_heads": 1},
    "mistral": {**SMALL, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 4},
    "opt": {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 2},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}


def build(kind, attention="eager"):
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**{**PLACES, **KINDS[kind]})
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).double().eval()


def sequences(count, seed=0):
    chance = random.Random(seed)
    made = {"input_ids": [], "labels": []}
    for _ in range(count):
        tokens = [chance.randrange(3, 64) for _ in range(chance.randrange(3, 12))]
        said = chance.randrange(1, len(tokens))
        made["input_ids"].append(tokens)
        made["labels"].append([-100] * said + tokens[said:])
    return made


def loss_of(model, batch):
    """The sum over all tokens that carry loss, and their number; transformers would sum in float32."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    scores, labels = model(**inputs).logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()
    assert scores.dtype == torch.float64
    return torch.nn.functional.cross_entropy(scores, labels, reduction="sum"), int((labels != -100).sum())


def mean_loss(model, batches):
    """The mean over all tokens that carry loss."""
    sums, counts = zip(*(loss_of(model, batch) for batch in batches), strict=True)
    return sum(sums) / sum(counts)


def each_alone(rows):
    return [{name: torch.tensor([row[name]]) for name in ("input_ids", "labels")} for row in rows_of(rows)]


def rows_of(batch):
    return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("way", [POSITIONS, MASK, FLAT])
def test_the_loss_of_packed_rows_is_that_of_the_same_rows_alone(attention, way):
    model, rows = build("llama", attention), sequences(20)
    packed = rows_of(pack_rows(rows, 24))
    assert len(packed) < 12
    collator = PackedCollator(0, way, None if attention == "sdpa" else torch.float64)
    with torch.no_grad():
        loss = mean_loss(model, [collator(packed)])
        assert abs(loss - mean_loss(model, each_alone(rows))) < 1e-9
        # without what keeps them apart, they see each other
        joined = {name: value for name, value in collator(packed).items() if name in ("input_ids", "labels")}
        assert abs(mean_loss(model, [joined]) - loss) > 1e-4


def test_gradients_of_packed_rows_are_those_of_the_same_rows_alone():
    model, rows = build("llama", "sdpa"), sequences(12)
    found = []
    for batches in ([PackedCollator(0, POSITIONS)(rows_of(pack_rows(rows, 24)))], each_alone(rows)):
        model.zero_grad()
        mean_loss(model, batches).backward()
        found.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
    assert torch.allclose(*found, rtol=0, atol=1e-9)


def test_every_sequence_is_packed_once_and_fits():
    rows = sequences(200)
    packed = pack_rows(rows, 16)
    lengths = [len(ids) for ids in packed["input_ids"]]
    assert max(lengths) <= 16
    assert sum(lengths) / (16 * len(lengths)) > 0.97
    starts = [[place for place, at in enumerate(row) if at == 0] for row in packed["position_ids"]]
    pieces = [
        ids[start:end]
        for ids, row in zip(packed["input_ids"], starts, strict=True)
        for start, end in zip(row, [*row[1:], len(ids)], strict=True)
    ]
    assert sorted(pieces) == sorted(rows["input_ids"])
    firsts = [labels[at] for labels, row in zip(packed["labels"], starts, strict=True) for at in row]
    assert set(firsts) == {-100}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("kind", "way"), [("llama", POSITIONS), ("mistral", POSITIONS), ("opt", MASK)])
def test_the_way_of_a_model_is_found_by_trying(kind, way, attention):
    model = build(kind, attention).train()
    collator = find_collator(model, 0)
    assert collator.way == way
    assert model.training
    rows = sequences(9)
    model.eval()
    with torch.no_grad():
        loss = mean_loss(model, [collator(rows_of(pack_rows(rows, 24)))])
        assert abs(loss - mean_loss(model, each_alone(rows))) < 1e-9


@pytest.mark.parametrize("kind", ["bloom", "mamba"])
def test_a_model_that_looks_across_is_found_out(kind):
    assert find_collator(build(kind), 0) is None
