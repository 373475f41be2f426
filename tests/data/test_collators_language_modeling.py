"""Masked, causal, whole-word and permutation language modeling: batches and draws of the originals."""

from __future__ import annotations

import copy
import logging
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast
from transformers.data import data_collator as original

from footplate.data import collators

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["un", "##believ", "##able", "play", "##ing", "##ed", "the", "cat", "dog", "run", "##s", "ran", "."]
TEXTS = ["the unbelievable cat ran .", "dogs played", "unbelievable unbelievable running the dog ran runs ."]


def build_tokenizer(padding_side: str = "right", **special: Any) -> PreTrainedTokenizerFast:
    """A word-piece tokenizer with the special tokens of BERT."""
    vocabulary = {token: i for i, token in enumerate(SPECIAL + PIECES)}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        **special,
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=core, padding_side=padding_side, unk_token="[UNK]", **names
    )


def build_plain_tokenizer(**special: Any) -> PreTrainedTokenizerFast:
    """A word-level tokenizer: no pieces of words."""
    core = Tokenizer(
        models.WordLevel({"[UNK]": 0, "[MASK]": 1, "[PAD]": 2, "a": 3, "b": 4}, unk_token="[UNK]")
    )
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"mask_token": "[MASK]", "pad_token": "[PAD]", **special}
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]", **names)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def draws_after() -> tuple[float, float, float]:
    """The next number of each global generator: equal only if all consumed the same."""
    return torch.rand(1).item(), float(np.random.rand()), random.random()


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal type of batch, keys, kinds, dtypes, shapes and values."""
    assert type(ours) is type(theirs)
    assert sorted(ours.keys()) == sorted(theirs.keys())
    for name, expected in theirs.items():
        assert type(ours[name]) is type(expected), name
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].shape == expected.shape, name
        assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(expected)), name


def assert_same_run(ours: Any, theirs: Any, features: list[Any], num_batches: int = 3) -> None:
    """Several batches in a row are equal, and so is what is left of the generators."""
    for seed in (0, 7):
        seed_all(seed)
        our_batches = [ours(copy.deepcopy(features)) for _ in range(num_batches)]
        our_rest = draws_after()
        seed_all(seed)
        their_batches = [theirs(copy.deepcopy(features)) for _ in range(num_batches)]
        assert our_rest == draws_after()
        for our_batch, their_batch in zip(our_batches, their_batches, strict=True):
            assert_same(our_batch, their_batch)


def encode(tokenizer: Any, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    return [dict(tokenizer(text, **options)) for text in texts]


def as_ids(convert: Callable[[list[int]], Any]) -> Callable[[Any], list[Any]]:
    return lambda tokenizer: [convert(tokenizer(text)["input_ids"]) for text in TEXTS]


SOURCES: dict[str, Callable[[Any], list[Any]]] = {
    "dictionaries": lambda tokenizer: encode(tokenizer, TEXTS),
    "special tokens given": lambda tokenizer: encode(tokenizer, TEXTS, return_special_tokens_mask=True),
    "only input_ids": lambda tokenizer: [{"input_ids": tokenizer(text)["input_ids"]} for text in TEXTS],
    "one sample": lambda tokenizer: encode(tokenizer, TEXTS[:1]),
    "encodings": lambda tokenizer: [tokenizer(text) for text in TEXTS],
    "dictionaries of tensors": lambda tokenizer: [
        {name: torch.tensor(value) for name, value in sample.items()} for sample in encode(tokenizer, TEXTS)
    ],
    "lists": as_ids(list),
    "tuples": as_ids(tuple),
    "arrays": as_ids(np.array),
    "equal lists": lambda tokenizer: [[5, 6, 7, 8]] * 3,
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"mlm": False},
    {"mlm_probability": 0.6},
    {"mlm_probability": 1},
    {"mlm_probability": 0.0},
    {"mlm_probability": 0.5, "mask_replace_prob": 1.0, "random_replace_prob": 0.0},
    {"mlm_probability": 0.5, "mask_replace_prob": 0, "random_replace_prob": 1},
    {"mlm_probability": 0.5, "mask_replace_prob": 0.5, "random_replace_prob": 0.4},
    {"mlm_probability": 0.5, "mask_replace_prob": 0.5, "random_replace_prob": 0.0},
    {"mlm_probability": 0.5, "pad_to_multiple_of": 8},
    {"mlm": False, "pad_to_multiple_of": 8},
    {"mlm_probability": 0.5, "seed": 3},
]
SIDES = pytest.mark.parametrize("side", ["right", "left"])
KINDS = pytest.mark.parametrize("kind", ["pt", "np"])


@SIDES
@KINDS
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_language_modeling_equals_the_original(
    side: str, kind: str, settings: dict[str, Any], source: str
) -> None:
    tokenizer = build_tokenizer(side)
    ours = collators.DataCollatorForLanguageModeling(tokenizer, return_tensors=kind, **settings)
    theirs = original.DataCollatorForLanguageModeling(tokenizer, return_tensors=kind, **settings)
    for name in ("mlm", "mlm_probability", "mask_replace_prob", "random_replace_prob", "seed", "generator"):
        assert getattr(ours, name) == getattr(theirs, name)
    if settings.get("seed") is not None:  # each run below needs a fresh generator
        ours, theirs = fresh(ours), fresh(theirs)
    assert_same_run(ours, theirs, SOURCES[source](tokenizer))


def fresh(collator: Any) -> Callable[[list[Any]], Any]:
    """The collator, with its generator kept over the three batches of a run and renewed for the next run."""
    calls = 0

    def call(features: list[Any]) -> Any:
        nonlocal calls
        if calls % 3 == 0:
            collator.generator = None
        calls += 1
        return collator(features)

    return call


def test_a_seed_leaves_the_global_generator_alone() -> None:
    tokenizer = build_tokenizer()
    collator = collators.DataCollatorForLanguageModeling(tokenizer, seed=1)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = collator(encode(tokenizer, TEXTS)), collator(encode(tokenizer, TEXTS))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(first["labels"], second["labels"])


def test_a_seed_works_for_arrays_asked_for_at_the_call() -> None:
    tokenizer = build_tokenizer()
    features = encode(tokenizer, TEXTS)
    ours = collators.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5, seed=1)
    theirs = original.DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=0.5, seed=1, return_tensors="np"
    )
    assert_same(ours(features, return_tensors="np"), theirs(features))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_mask_as_with_the_original(num_workers: int) -> None:
    tokenizer = build_tokenizer()
    features = encode(tokenizer, TEXTS) * 4
    batches = []
    for module in (collators, original):
        collator = module.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.5, seed=5)
        loader = DataLoader(features, batch_size=3, collate_fn=collator, num_workers=num_workers)
        batches.append([dict(batch) for batch in loader])
    for ours, theirs in zip(*batches, strict=True):
        assert_same(ours, theirs)


def test_int32_tensors_keep_their_dtype() -> None:
    tokenizer = build_tokenizer()
    collator = collators.DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=0.9, mask_replace_prob=0.2
    )
    batch = collator([torch.tensor([5, 6, 7], dtype=torch.int32), torch.tensor([8, 9], dtype=torch.int32)])
    assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int32


def test_the_samples_are_not_masked_themselves() -> None:
    tokenizer = build_tokenizer()
    for features in ([{"input_ids": torch.arange(5, 12)}], [torch.arange(5, 12)], [np.arange(5, 12)]):
        before = copy.deepcopy(features)
        for kind in ("pt", "np"):
            collators.DataCollatorForLanguageModeling(tokenizer, mlm_probability=1.0)(
                features, return_tensors=kind
            )
        assert repr(features) == repr(before)


def test_an_empty_sequence_is_all_padding() -> None:
    for side in ("right", "left"):
        collator = collators.DataCollatorForLanguageModeling(build_tokenizer(side), mlm=False)
        for kind in ("pt", "np"):
            batch = collator([[5, 6], []], return_tensors=kind)
            assert batch["input_ids"].tolist() == [[5, 6], [0, 0]]


def test_an_override_without_offset_mapping_still_works() -> None:
    class Older(collators.DataCollatorForLanguageModeling):
        def torch_mask_tokens(self, inputs: Any, special_tokens_mask: Any = None) -> tuple[Any, Any]:
            return inputs, inputs * 0

    tokenizer = build_tokenizer()
    assert Older(tokenizer)(encode(tokenizer, TEXTS))["labels"].sum() == 0


WORD_SETTINGS: list[dict[str, Any]] = [
    {"mlm_probability": 0.5},
    {"mlm_probability": 0.2, "mask_replace_prob": 1.0, "random_replace_prob": 0.0},
    {"mlm_probability": 1.0},
]


@KINDS
@pytest.mark.parametrize("settings", WORD_SETTINGS, ids=str)
@pytest.mark.parametrize("with_mask", [True, False])
def test_whole_words_equal_the_original(kind: str, settings: dict[str, Any], with_mask: bool) -> None:
    tokenizer = build_tokenizer()
    texts = ["the unbelievable cat.", "unbelievable played ran", "cat played dogs the"]
    features = encode(tokenizer, texts, return_offsets_mapping=True, return_special_tokens_mask=with_mask)
    assert len({len(sample["input_ids"]) for sample in features}) == 1  # the original takes no others
    ours = collators.DataCollatorForLanguageModeling(tokenizer, True, True, return_tensors=kind, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = original.DataCollatorForLanguageModeling(
            tokenizer, True, True, return_tensors=kind, **settings
        )
    assert (ours.mask_replace_prob, ours.random_replace_prob) == (1.0, 0.0)
    assert (theirs.mask_replace_prob, theirs.random_replace_prob) == (1.0, 0.0)
    assert_same_run(ours, theirs, features, num_batches=6)


@SIDES
@KINDS
def test_whole_words_of_ragged_samples_are_masked_together(side: str, kind: str) -> None:
    tokenizer = build_tokenizer(side)
    features = encode(tokenizer, TEXTS, return_offsets_mapping=True)
    collator = collators.DataCollatorForLanguageModeling(tokenizer, True, True, 0.5, return_tensors=kind)
    seed_all(0)
    num_masked_words = 0
    for _ in range(20):
        batch = collator(features)
        assert "offset_mapping" not in batch
        for row, labels, sample in zip(batch["input_ids"], batch["labels"], features, strict=True):
            length = len(sample["input_ids"])
            span = slice(0, length) if side == "right" else slice(len(row) - length, None)
            masked = np.asarray(labels)[span] != -100
            assert np.count_nonzero(np.asarray(labels) != -100) == masked.sum()
            assert (np.asarray(row)[span][masked] == tokenizer.mask_token_id).all()
            assert np.asarray(row)[span][~masked].tolist() == np.array(sample["input_ids"])[~masked].tolist()
            tokens = tokenizer.convert_ids_to_tokens(sample["input_ids"])
            for i, token in enumerate(tokens):
                if token.startswith("##"):
                    assert masked[i] == masked[i - 1]
            assert not masked[0]
            assert not masked[-1]
            num_masked_words += masked.sum()
    assert num_masked_words > 0


def test_difference_the_original_cannot_pad_the_offsets_of_ragged_samples() -> None:
    tokenizer = build_tokenizer()
    features = encode(tokenizer, TEXTS, return_offsets_mapping=True)
    with pytest.raises(ValueError, match="Unable to create tensor"):
        original.DataCollatorForLanguageModeling(tokenizer, True, True, 0.5)(copy.deepcopy(features))


@KINDS
def test_whole_words_are_found_by_their_pieces_without_offsets(kind: str) -> None:
    tokenizer = build_tokenizer()
    collator = collators.DataCollatorForLanguageModeling(tokenizer, True, True, 0.5, return_tensors=kind)
    batches = []
    for options in ({}, {"return_offsets_mapping": True}):
        seed_all(1)
        # without punctuation, pieces and offsets agree on what a word is
        batches.append(
            collator(encode(tokenizer, ["unbelievable cat played", "dogs", "the running"], **options))
        )
    assert_same(*batches)


def test_the_older_name_masks_whole_words() -> None:
    tokenizer = build_tokenizer()
    older = collators.DataCollatorForWholeWordMask(tokenizer=tokenizer, mlm_probability=0.5)
    assert isinstance(older, collators.DataCollatorForLanguageModeling)
    newer = collators.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, mlm_probability=0.5)
    features = encode(tokenizer, TEXTS)
    assert_same_run(older, newer, features)


def test_offsets_are_dropped_where_nobody_asked_for_words() -> None:
    tokenizer = build_tokenizer()
    features = encode(tokenizer, TEXTS, return_offsets_mapping=True)
    for mlm in (True, False):
        batch = collators.DataCollatorForLanguageModeling(tokenizer, mlm=mlm)(features)
        assert "offset_mapping" not in batch
        assert batch["input_ids"].shape == batch["labels"].shape


def test_replacing_words_in_another_way_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = build_tokenizer()
    collators.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        collators.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, mask_replace_prob=0.5)
    assert "mask_replace_prob" in caplog.text


PERMUTATION_SETTINGS: list[dict[str, Any]] = [
    {},
    {"plm_probability": 0.5, "max_span_length": 3},
    {"plm_probability": 1.0, "max_span_length": 1},
]


@SIDES
@pytest.mark.parametrize("settings", PERMUTATION_SETTINGS, ids=str)
@pytest.mark.parametrize("source", [name for name in SOURCES if name != "one sample"])
def test_permutation_equals_the_original(side: str, settings: dict[str, Any], source: str) -> None:
    tokenizer = build_tokenizer(side)
    features = [even(sample) for sample in SOURCES[source](tokenizer)]
    ours = collators.DataCollatorForPermutationLanguageModeling(tokenizer, **settings)
    theirs = original.DataCollatorForPermutationLanguageModeling(tokenizer, **settings)
    assert_same_run(ours, theirs, features)


@SIDES
@pytest.mark.parametrize("settings", PERMUTATION_SETTINGS[:2], ids=str)
@pytest.mark.parametrize("source", ["dictionaries", "lists", "arrays", "equal lists"])
def test_permutation_of_arrays_equals_the_original(side: str, settings: dict[str, Any], source: str) -> None:
    tokenizer = build_tokenizer(side)
    features = [even(sample) for sample in SOURCES[source](tokenizer)]
    ours = collators.DataCollatorForPermutationLanguageModeling(tokenizer, return_tensors="np", **settings)
    theirs = original.DataCollatorForPermutationLanguageModeling(tokenizer, return_tensors="np", **settings)
    assert_same_run(ours, theirs, features)


def even(sample: Any) -> Any:
    """The sample without the last token where its length is odd."""
    if hasattr(sample, "keys"):
        return {name: even(value) for name, value in sample.items()}
    return sample[: len(sample) // 2 * 2]


def test_permutation_keeps_int32_tensors_apart_from_the_batch() -> None:
    features = [torch.arange(5, 11, dtype=torch.int32)]
    batch = collators.DataCollatorForPermutationLanguageModeling(build_tokenizer(), 1.0)(features)
    assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
    assert features[0].tolist() == list(range(5, 11))


def test_permutation_needs_no_pad_token_for_equal_lengths() -> None:
    tokenizer = build_plain_tokenizer(pad_token=None)
    batch = collators.DataCollatorForPermutationLanguageModeling(tokenizer)([[3, 4, 3, 4], [4, 3, 4, 3]])
    assert batch["perm_mask"].shape == (2, 4, 4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mlm_probability": 1.5}, ["mlm_probability=1.5", "0 to 1"]),
        ({"mlm_probability": -0.1}, ["mlm_probability=-0.1"]),
        ({"mlm_probability": None}, ["mlm_probability=None"]),
        ({"mlm_probability": float("nan")}, ["mlm_probability=nan"]),
        ({"mask_replace_prob": -1}, ["mask_replace_prob=-1"]),
        ({"random_replace_prob": 2, "mask_replace_prob": 0}, ["random_replace_prob=2"]),
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.3}, ["0.8", "0.3", "above 1"]),
        ({"mlm": False, "whole_word_mask": True}, ["whole_word_mask", "mlm=True"]),
        ({"whole_word_mask": 0.15}, ["mlm_probability=0.15"]),
        ({"tokenizer": build_tokenizer(mask_token=None)}, ["mask token", "mlm=False"]),
    ],
)
def test_bad_settings_are_refused_at_once(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as raised:
        collators.DataCollatorForLanguageModeling(**{"tokenizer": build_tokenizer(), **settings})
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"plm_probability": 0}, "plm_probability=0"),
        ({"plm_probability": 1.2}, "plm_probability=1.2"),
        ({"max_span_length": 0}, "max_span_length=0"),
        ({"tokenizer": build_tokenizer(mask_token=None)}, "mask token"),
    ],
)
def test_bad_settings_of_permutation_are_refused_at_once(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        collators.DataCollatorForPermutationLanguageModeling(**{"tokenizer": build_tokenizer(), **settings})


NO_PAD = build_tokenizer(pad_token=None)


@pytest.mark.parametrize(
    ("collator", "features", "words"),
    [
        (collators.DataCollatorForLanguageModeling(NO_PAD, mlm=False), [[5], [5, 6]], ["no pad token"]),
        (collators.DataCollatorForLanguageModeling(NO_PAD), [{"input_ids": [5]}], ["no pad token"]),
        (
            collators.DataCollatorForLanguageModeling(build_tokenizer()),
            [{"x": [5]}],
            ["'input_ids'", "['x']"],
        ),
        (collators.DataCollatorForLanguageModeling(build_tokenizer()), [], ["no samples"]),
        (
            collators.DataCollatorForLanguageModeling(build_tokenizer(), mlm=False),
            [{"input_ids": [5], "labels": [5]}, {"input_ids": [5, 6], "labels": [5, 6]}],
            ["'labels'", "(1,)", "(2,)"],
        ),
        (
            collators.DataCollatorForLanguageModeling(build_plain_tokenizer(), whole_word_mask=True),
            [{"input_ids": [3, 4]}],
            ["offset_mapping", "return_offsets_mapping=True"],
        ),
        (
            collators.DataCollatorForPermutationLanguageModeling(build_tokenizer()),
            [[5, 6, 7]],
            ["3 tokens", "even"],
        ),
        (
            collators.DataCollatorForPermutationLanguageModeling(NO_PAD),
            [[5, 6], [5, 6, 7, 8]],
            ["no pad token"],
        ),
        (
            collators.DataCollatorForPermutationLanguageModeling(build_tokenizer()),
            [{"x": [5]}],
            ["'input_ids'"],
        ),
        (collators.DataCollatorForPermutationLanguageModeling(build_tokenizer()), [], ["no samples"]),
    ],
)
def test_bad_input_is_explained(collator: Any, features: list[Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as raised:
        collator(features)
    for word in words:
        assert word in str(raised.value)
