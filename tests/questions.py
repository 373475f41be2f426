"""Questions about who sells what, in English and Korean, with the tokenizer and models that answer them."""

from __future__ import annotations

import random
from typing import Any

import torch

WHO = ["ada", "bela", "cem", "dora", "민준", "서연"]
WHAT = ["bread", "tea", "blue maps", "bells", "빵", "파란 연"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def make_questions(count: int, seed: int, unanswerable: float = 0.0) -> list[dict[str, Any]]:
    """Rows as SQuAD has them; some ask for a person of whom nothing is said."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        people = rng.sample(WHO, rng.randrange(3, 6))
        goods = [rng.choice(WHAT) for _ in people]
        has_answer = rng.random() >= unanswerable
        told = list(zip(people[:-1], goods, strict=False))
        context = " and ".join(f"{person} sells {thing}" for person, thing in told)
        person, thing = rng.choice(told) if has_answer else (people[-1], "")
        start = context.index(f"{person} sells ") + len(f"{person} sells ") if has_answer else 0
        answers = (
            {"text": [thing], "answer_start": [start]} if has_answer else {"text": [], "answer_start": []}
        )
        question = f"what does {person} sell"
        rows.append({"id": f"{seed}-{number}", "question": question, "context": context, "answers": answers})
    return rows


def build_tokenizer() -> Any:
    """A fast WordPiece tokenizer that knows these words, two of them in pieces."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = [word for phrase in WHO + WHAT for word in phrase.split()]
    pieces = ["br", "##ead", "파", "##란", "what", "does", "sell", "##s", "and"]
    known = [*SPECIAL, *pieces, *(word for word in words if word not in ("bread", "파란"))]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(known))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def build_reader() -> Any:
    """A BERT that points to answers, the same one every time, without dropout."""
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=64, max_position_embeddings=64, **sizes)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return BertForQuestionAnswering(config)
