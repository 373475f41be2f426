"""Collators that pad with a tokenizer, against the originals."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration
from transformers.data import data_collator as original
from transformers.utils import PaddingStrategy

from footplate.data import collators

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]


def build_tokenizer(padding_side: str = "right", **special: Any) -> PreTrainedTokenizerFast:
    """A word-level tokenizer over ten letters."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", **special}
    return PreTrainedTokenizerFast(
        tokenizer_object=core, padding_side=padding_side, unk_token="[UNK]", model_max_length=24, **special
    )


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal type of batch, keys in order, kinds, dtypes, shapes and values."""
    assert type(ours) is type(theirs)
    assert list(ours.keys()) == list(theirs.keys())
    for name, expected in theirs.items():
        assert type(ours[name]) is type(expected), name
        if not hasattr(expected, "dtype"):
            assert ours[name] == expected
            continue
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].shape == expected.shape, name
        assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(expected)), name


def sequences(lengths: list[int], **columns: Any) -> list[dict[str, Any]]:
    """Samples of these lengths; a column is a function of the sample's number and length."""
    features = []
    for number, length in enumerate(lengths):
        sample: dict[str, Any] = {"input_ids": [5 + (number + i) % 10 for i in range(length)]}
        sample.update({name: make(number, length) for name, make in columns.items()})
        features.append(sample)
    return features


def ones(_: int, length: int) -> list[int]:
    return [1] * length


def tags(number: int, length: int) -> list[int]:
    return [(number + i) % 3 for i in range(length)]


def number_of(number: int, _: int) -> int:
    return number


SIDES = pytest.mark.parametrize("side", ["right", "left"])
KINDS = pytest.mark.parametrize("kind", ["pt", "np"])
PADDINGS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": "longest"},
        {"padding": "max_length", "max_length": 12},
        {"padding": "max_length"},
        {"padding": PaddingStrategy.MAX_LENGTH, "max_length": 10, "pad_to_multiple_of": 4},
        {"pad_to_multiple_of": 8},
    ],
)
RAGGED = [3, 7, 1, 5]


@SIDES
@KINDS
@PADDINGS
@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"label": number_of},
        {"label_ids": number_of, "attention_mask": ones},
        {"labels": number_of, "token_type_ids": tags},
        {"label": number_of, "label_ids": number_of},
        {"special_tokens_mask": ones, "label": lambda number, _: number / 3},
    ],
)
def test_padding_equals_the_original(
    side: str, kind: str, options: dict[str, Any], columns: dict[str, Any]
) -> None:
    tokenizer = build_tokenizer(side)
    features = sequences(RAGGED, **columns)
    ours = collators.DataCollatorWithPadding(tokenizer, return_tensors=kind, **options)
    theirs = original.DataCollatorWithPadding(tokenizer, return_tensors=kind, **options)
    assert_same(ours(copy.deepcopy(features)), theirs(copy.deepcopy(features)))


@pytest.mark.parametrize("convert", [torch.tensor, np.array])
def test_padding_takes_tensors_and_arrays_and_encodings(convert: Any) -> None:
    tokenizer = build_tokenizer()
    features = [
        {name: convert(value) for name, value in s.items()} for s in sequences(RAGGED, label=number_of)
    ]
    encodings = [tokenizer("a b c"), tokenizer("d")]
    for batch in (features, encodings):
        ours = collators.DataCollatorWithPadding(tokenizer)
        assert_same(ours(batch), original.DataCollatorWithPadding(tokenizer)(batch))


@SIDES
@KINDS
@PADDINGS
@pytest.mark.parametrize("name", ["labels", "label"])
def test_token_labels_equal_the_original(side: str, kind: str, options: dict[str, Any], name: str) -> None:
    tokenizer = build_tokenizer(side)
    for columns in ({name: tags}, {name: tags, "attention_mask": ones}, {}):
        features = sequences(RAGGED, **columns)
        ours = collators.DataCollatorForTokenClassification(tokenizer, label_pad_token_id=-7, **options)
        theirs = original.DataCollatorForTokenClassification(tokenizer, label_pad_token_id=-7, **options)
        assert_same(ours(features, return_tensors=kind), theirs(features, return_tensors=kind))


@KINDS
@pytest.mark.parametrize(
    "make",
    [
        lambda number, length: tags(number, 7),  # padded already
        lambda number, length: np.array(tags(number, length)),
        lambda number, length: tuple(tags(number, length)),
        lambda number, length: [value + 0.7 for value in tags(number, length)],
        lambda number, length: [value == 1 for value in tags(number, length)],
        lambda number, length: [],
    ],
)
def test_token_labels_of_any_kind_equal_the_original(kind: str, make: Any) -> None:
    tokenizer = build_tokenizer()
    features = sequences(RAGGED, labels=make)
    ours = collators.DataCollatorForTokenClassification(tokenizer, return_tensors=kind)
    assert_same(
        ours(features), original.DataCollatorForTokenClassification(tokenizer, return_tensors=kind)(features)
    )


def test_token_labels_may_be_tensors_or_have_a_second_dimension() -> None:
    tokenizer = build_tokenizer()
    as_tensors = sequences(RAGGED, labels=lambda number, length: torch.tensor(tags(number, length)))
    two_dimensional = sequences([4, 4], labels=lambda number, length: [[number, i] for i in range(length)])
    for features in (as_tensors, two_dimensional):
        ours = collators.DataCollatorForTokenClassification(tokenizer)
        assert_same(ours(features), original.DataCollatorForTokenClassification(tokenizer)(features))


@SIDES
@KINDS
@PADDINGS
@pytest.mark.parametrize("convert", [list, np.array, torch.tensor])
def test_targets_equal_the_original(side: str, kind: str, options: dict[str, Any], convert: Any) -> None:
    tokenizer = build_tokenizer(side)
    features = sequences(RAGGED, labels=lambda number, length: convert(tags(number, 9 - length)))
    ours = collators.DataCollatorForSeq2Seq(tokenizer, return_tensors=kind, **options)
    theirs = original.DataCollatorForSeq2Seq(tokenizer, return_tensors=kind, **options)
    assert_same(ours(features), theirs(features))
    assert_same(ours(features, return_tensors="np"), theirs(features, return_tensors="np"))


@pytest.mark.parametrize("padding", [False, "do_not_pad", PaddingStrategy.DO_NOT_PAD])
@pytest.mark.parametrize("convert", [list, np.array, torch.tensor])
def test_targets_of_equal_length_need_no_padding(padding: Any, convert: Any) -> None:
    tokenizer = build_tokenizer()
    features = sequences([4, 4], labels=lambda number, length: convert(tags(number, 6)))
    ours = collators.DataCollatorForSeq2Seq(tokenizer, padding=padding)
    assert_same(ours(features), original.DataCollatorForSeq2Seq(tokenizer, padding=padding)(features))


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"labels": lambda *_: None},
        {"label": tags},
        {"label": lambda *_: None},
        {"label": tags, "labels": number_of},
    ],
)
def test_missing_and_renamed_targets_equal_the_original(columns: dict[str, Any]) -> None:
    tokenizer = build_tokenizer()
    features = sequences(RAGGED, **columns)
    ours = collators.DataCollatorForSeq2Seq(tokenizer)(features)
    assert_same(ours, original.DataCollatorForSeq2Seq(tokenizer)(features))


def test_targets_longer_than_max_length_equal_the_original_where_they_agree() -> None:
    tokenizer = build_tokenizer()
    features = sequences([2, 3], labels=lambda number, length: tags(number, 8))
    options = {"padding": "max_length", "max_length": 5}
    ours = collators.DataCollatorForSeq2Seq(tokenizer, **options)(features)
    assert_same(ours, original.DataCollatorForSeq2Seq(tokenizer, **options)(features))


def test_decoder_inputs_come_from_the_model() -> None:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0))
    tokenizer = build_tokenizer()
    features = sequences(RAGGED, labels=tags)
    ours = collators.DataCollatorForSeq2Seq(tokenizer, model)(features)
    assert "decoder_input_ids" in ours
    assert_same(ours, original.DataCollatorForSeq2Seq(tokenizer, model)(features))
    without = sequences(RAGGED)
    ours = collators.DataCollatorForSeq2Seq(tokenizer, model)(without)
    assert_same(ours, original.DataCollatorForSeq2Seq(tokenizer, model)(without))


def test_a_model_without_decoder_inputs_changes_nothing() -> None:
    tokenizer = build_tokenizer()
    features = sequences(RAGGED, labels=tags)
    batch = collators.DataCollatorForSeq2Seq(tokenizer, model=torch.nn.Linear(1, 1))(features)
    assert "decoder_input_ids" not in batch


def choices(counts: list[list[int]], **columns: Any) -> list[dict[str, Any]]:
    """Samples with one choice for each length given."""
    features = []
    for number, lengths in enumerate(counts):
        rows = sequences(lengths, attention_mask=ones)
        sample: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        sample.update({name: make(number, 0) for name, make in columns.items()})
        features.append(sample)
    return features


@SIDES
@PADDINGS
@pytest.mark.parametrize("name", ["label", "labels"])
def test_choices_equal_the_original(side: str, options: dict[str, Any], name: str) -> None:
    tokenizer = build_tokenizer(side)
    features = choices([[3, 5, 2], [1, 7, 4]], **{name: number_of})
    theirs = original.DataCollatorForMultipleChoice(tokenizer, **options)(copy.deepcopy(features))
    assert_same(collators.DataCollatorForMultipleChoice(tokenizer, **options)(features), theirs)


def test_choices_keep_the_samples_and_can_do_without_labels() -> None:
    collator = collators.DataCollatorForMultipleChoice(build_tokenizer())
    features = choices([[3, 5], [1, 7]], label=number_of)
    first = collator(features)
    assert_same(collator(features), first)  # a second epoch over the same list
    without = collator(choices([[3, 5], [1, 7]]))
    assert "labels" not in without
    assert torch.equal(without["input_ids"], first["input_ids"])


def test_difference_the_original_needs_labels_and_knows_no_arrays() -> None:
    theirs = original.DataCollatorForMultipleChoice(build_tokenizer())
    with pytest.raises(KeyError, match="labels"):
        theirs(choices([[3, 5], [1, 7]]))
    with pytest.raises(AttributeError, match="numpy_call"):
        theirs(choices([[3, 5], [1, 7]], label=number_of), return_tensors="np")


def test_choices_as_arrays_hold_the_same_numbers() -> None:
    collator = collators.DataCollatorForMultipleChoice(build_tokenizer())
    features = choices([[3, 5], [1, 7]], label=number_of)
    tensors, arrays = collator(features), collator(features, return_tensors="np")
    assert list(tensors) == list(arrays)
    for name, value in tensors.items():
        assert np.array_equal(value.numpy(), arrays[name])
        assert arrays[name].dtype == np.int64


@KINDS
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_position_ids": False},
        {"separator_id": -5},
        {"return_flash_attn_kwargs": True},
        {"return_seq_idx": True, "position_ids_start": 2},
        {"return_seq_idx": True, "return_flash_attn_kwargs": True, "return_position_ids": False},
    ],
)
@pytest.mark.parametrize("convert", [list, np.array, torch.tensor])
@pytest.mark.parametrize("with_labels", [True, False])
def test_flattening_equals_the_original(
    kind: str, options: dict[str, Any], convert: Any, with_labels: bool
) -> None:
    features = [
        {name: convert(value) for name, value in sample.items()}
        for sample in sequences(RAGGED, **({"labels": tags} if with_labels else {}))
    ]
    ours = collators.DataCollatorWithFlattening(**options)
    theirs = original.DataCollatorWithFlattening(**options)
    assert_same(ours(features, return_tensors=kind), theirs(features, return_tensors=kind))
    assert_same(ours(features, separator_id=-3), theirs(features, separator_id=-3))
    for name in options:
        assert getattr(ours, name) == getattr(theirs, name)


def test_flattening_keeps_labels_beside_their_tokens_around_an_empty_sample() -> None:
    batch = collators.DataCollatorWithFlattening()(sequences([2, 0, 3]))
    assert batch["labels"].shape == batch["input_ids"].shape == batch["position_ids"].shape == (1, 5)
    assert batch["labels"][0, 2] == -100


class LoudTokenizer(PreTrainedTokenizerFast):
    """Gives the advice that 4.x gave on each padding, and notes when."""

    def pad(self, *args: Any, **kwargs: Any) -> Any:
        if not self.deprecation_warnings.get("Asking-to-pad-a-fast-tokenizer", False):
            logging.getLogger("loud").warning("call the tokenizer instead")
        if kwargs.get("max_length") == -1:
            raise OSError("broken")
        return super().pad(*args, **kwargs)


def test_the_fast_tokenizer_notice_is_held_back_only_during_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = build_tokenizer()
    tokenizer = LoudTokenizer(tokenizer_object=plain.backend_tokenizer, pad_token="[PAD]")
    features = sequences(RAGGED)
    collators.DataCollatorWithPadding(tokenizer)(features)
    with pytest.raises(OSError, match="broken"):
        collators.DataCollatorWithPadding(tokenizer, max_length=-1)(features)
    assert not caplog.records
    tokenizer.pad(features)
    assert len(caplog.records) == 1


class BarePadder:
    """The least that padding needs: no transformers in sight."""

    padding_side = "right"
    pad_token = "0"

    def pad(self, features: list[dict[str, Any]], padding: Any = True, **options: Any) -> dict[str, Any]:
        rows = [torch.tensor(sample["input_ids"]) for sample in features]
        return {"input_ids": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)}


def test_any_object_with_a_pad_method_will_do() -> None:
    features = sequences(RAGGED, labels=tags)
    batch = collators.DataCollatorForTokenClassification(BarePadder())(features)
    assert batch["input_ids"].shape == batch["labels"].shape == (4, 7)


TOKENIZER = build_tokenizer()
NO_PAD = build_tokenizer(pad_token=None)


@pytest.mark.parametrize(
    ("collator", "features", "words"),
    [
        (collators.DataCollatorWithPadding(NO_PAD), sequences([1, 2]), ["no pad token", "eos_token"]),
        (
            collators.DataCollatorWithPadding(TOKENIZER),
            [{"x": [1]}],
            ["'input_ids'", "['x']", "remove_unused"],
        ),
        (
            collators.DataCollatorWithPadding(TOKENIZER),
            [{"input_ids": [1]}, {"x": [1]}],
            ["Sample 1", "'input_ids'"],
        ),
        (collators.DataCollatorWithPadding(TOKENIZER), [([1], 1)], ["type tuple", "dictionaries"]),
        (collators.DataCollatorWithPadding(TOKENIZER), [], ["no samples"]),
        (
            collators.DataCollatorWithPadding(TOKENIZER),
            sequences([1, 2], labels=tags),
            ["'labels'", "(1,)", "(2,)"],
        ),
        (
            collators.DataCollatorWithPadding(TOKENIZER),
            sequences([1, 2], text=lambda *_: "hi"),
            ["'text'", "'hi'"],
        ),
        (collators.DataCollatorWithPadding(TOKENIZER), sequences([1, 2], x=lambda *_: None), ["'x'", "None"]),
        (
            collators.DataCollatorWithPadding(TOKENIZER, padding=False),
            sequences([1, 2]),
            ["'input_ids'", "padding=True"],
        ),
        (
            collators.DataCollatorForTokenClassification(TOKENIZER),
            sequences([2], labels=number_of),
            ["not a sequence"],
        ),
        (
            collators.DataCollatorForTokenClassification(TOKENIZER),
            sequences([2, 3], labels=lambda number, length: [1] * 4),
            ["Sample 0", "4 labels", "3 tokens"],
        ),
        (
            collators.DataCollatorForTokenClassification(TOKENIZER),
            [*sequences([2], labels=tags), *sequences([2])],
            ["Sample 1", "'labels'"],
        ),
        (
            collators.DataCollatorForSeq2Seq(TOKENIZER),
            [*sequences([2], labels=tags), *sequences([2], labels=lambda *_: None)],
            ["sample 1", "None"],
        ),
        (
            collators.DataCollatorForSeq2Seq(TOKENIZER, padding=False),
            sequences([2, 2], labels=lambda number, _: [1] * (number + 1)),
            ["[1, 2]", "padding=True"],
        ),
        (
            collators.DataCollatorForSeq2Seq(TOKENIZER, padding="max_length", max_length=2),
            sequences([2, 2], labels=lambda number, _: [1] * (number + 2)),
            ["[2, 3]", "max_length=2"],
        ),
        (collators.DataCollatorForSeq2Seq(TOKENIZER, return_tensors="tf"), sequences([2]), ["'tf'", "'pt'"]),
        (
            collators.DataCollatorForMultipleChoice(TOKENIZER),
            choices([[1, 2], [1]]),
            ["sample 1", "2 choices"],
        ),
        (
            collators.DataCollatorForMultipleChoice(TOKENIZER),
            [{"x": [[1]], "label": 0}],
            ["'input_ids'", "['x']"],
        ),
        (collators.DataCollatorWithFlattening(), [{"x": [1]}], ["Sample 0", "'input_ids'", "['x']"]),
        (collators.DataCollatorWithFlattening("tf"), sequences([1]), ["'tf'"]),
        (
            collators.DataCollatorWithFlattening(),
            sequences([2, 3], labels=lambda *_: [1, 1]),
            ["[2, 3]", "[2, 2]"],
        ),
        (
            collators.DataCollatorWithFlattening(),
            [*sequences([2], labels=tags), *sequences([2])],
            ["Sample 1", "'labels'"],
        ),
    ],
)
def test_bad_input_is_explained(collator: Any, features: list[Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as raised:
        collator(features)
    for word in words:
        assert word in str(raised.value)


def test_what_the_tokenizer_itself_refuses_comes_through() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        collators.DataCollatorWithPadding(TOKENIZER, padding="nonsense")(sequences([1, 2]))


def test_an_extractor_without_pad_token_pads_too() -> None:
    from transformers import Wav2Vec2FeatureExtractor

    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=True)
    features = [{"input_values": np.ones(n, dtype=np.float32), "label": n} for n in (3, 5)]
    ours = collators.DataCollatorWithPadding(extractor)(copy.deepcopy(features))
    assert_same(ours, original.DataCollatorWithPadding(extractor)(copy.deepcopy(features)))


def test_the_batch_trains_a_model() -> None:
    from transformers import BertForTokenClassification

    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForTokenClassification(BertConfig(**sizes, intermediate_size=8, num_labels=3))
    batch = collators.DataCollatorForTokenClassification(build_tokenizer("left"))(
        sequences(RAGGED, labels=tags)
    )
    assert torch.isfinite(model(**batch).loss)
