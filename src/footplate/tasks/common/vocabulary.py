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
    """A fast tokenizer of transformers: words and their parts for encoders, bytes and pairs for others.

    Args:
        texts: What to train it on.
        vocab_size: How many tokens it knows at most.
        model_type: The architecture that it is for.
    """
    if model_type in ENCODERS:
        return train_word_pieces(texts, vocab_size)
    return train_pairs(texts, vocab_size, adds_end=model_type in TRANSLATORS)


def describe_tokens(tokenizer: Any, is_encoder_decoder: bool) -> dict[str, int]:
    """The settings of a configuration that must fit a tokenizer."""
    found = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if is_encoder_decoder:
        found["decoder_start_token_id"] = tokenizer.pad_token_id
    return {
        "vocab_size": len(tokenizer),
        **{name: value for name, value in found.items() if value is not None},
    }


def train_word_pieces(texts: Iterable[str], vocab_size: int) -> Any:
    """A tokenizer of word pieces in lower case, which puts texts between [CLS] and [SEP]."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = Tokenizer(models.WordPiece(unk_token=special["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=list(special.values()))
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{role}_token": word for role, word in special.items()},
    )


def train_pairs(texts: Iterable[str], vocab_size: int, adds_end: bool) -> Any:
    """A tokenizer of byte pairs, which can spell any text; if `adds_end`, it ends texts with </s>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    tokenizer = Tokenizer(models.BPE(unk_token=special["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=True,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if adds_end:
        end = ("</s>", tokenizer.token_to_id("</s>"))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", pair="$A </s> $B </s>", special_tokens=[end]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{role}_token": word for role, word in special.items()}
    )
