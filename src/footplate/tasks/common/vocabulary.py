"""A tokenizer that is trained on the spot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# architectures that read a text from both sides, between [CLS] and [SEP]
ENCODERS = (
    "bert",
    "distilbert",
    "electra",
    "mobilebert",
    "roberta",
    "deberta",
    "deberta-v2",
    "albert",
    "convbert",
    "xlnet",
)

# those that write one text after reading another: texts end with </s>
TRANSLATORS = ("t5", "mt5", "bart", "mbart", "marian", "pegasus", "m2m_100", "led", "longt5", "umt5")


def train_tokenizer(texts: Iterable[str], vocab_size: int, model_type: str) -> Any:
    """A fast tokenizer of transformers.

    Args:
        texts: What to train it on.
        vocab_size: How many tokens it knows at most.
        model_type: The architecture that it is for.
    """
    if model_type in ENCODERS:
        return train_for_encoder(texts, vocab_size)
    return train_for_decoder(texts, vocab_size, adds_end=model_type in TRANSLATORS)


def describe_tokens(tokenizer: Any, is_encoder_decoder: bool) -> dict[str, int]:
    """The settings of a configuration that must fit a tokenizer."""
    found = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if is_encoder_decoder:
        found["decoder_start_token_id"] = tokenizer.pad_token_id
    return {
        "vocab_size": len(tokenizer),
        **{name: value for name, value in found.items() if value is not None},
    }


def train_for_encoder(texts: Iterable[str], vocab_size: int) -> Any:
    """A tokenizer of small letters, which puts texts between [CLS] and [SEP]."""
    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    templates = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return train_pairs(texts, vocab_size, special, templates, lowercase=True, model_input_names=inputs)


def train_for_decoder(texts: Iterable[str], vocab_size: int, adds_end: bool) -> Any:
    """A tokenizer for models that write; if `adds_end`, it ends texts with </s>."""
    special = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    templates = {"single": "$A </s>", "pair": "$A </s> $B </s>"} if adds_end else {}
    return train_pairs(texts, vocab_size, special, templates)


def train_pairs(
    texts: Iterable[str],
    vocab_size: int,
    special: dict[str, str],
    templates: dict[str, str],
    lowercase: bool = False,
    **options: Any,
) -> Any:
    """A tokenizer of pairs of bytes, which can spell any text.

    The same texts give the same tokens each time, which training of word pieces does not.

    Args:
        texts: What to train it on.
        vocab_size: How many tokens it knows at most.
        special: Tokens that are not text, by role.
        templates: What is put around a text and around a pair; empty for nothing.
        lowercase: Make all letters small.
        **options: Further arguments of the tokenizer.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=special["unk"]))
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=lowercase)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    if templates:
        used = [word for word in special.values() if any(word in text for text in templates.values())]
        ids = [(word, tokenizer.token_to_id(word)) for word in used]
        tokenizer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=True),  # characters of a token do not begin with a space
                processors.TemplateProcessing(**templates, special_tokens=ids),
            ]
        )
    roles = {f"{role}_token": word for role, word in special.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles, **options)
