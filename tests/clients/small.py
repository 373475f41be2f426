"""Models, tokenizers and texts that the scripts make on the spot."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

SUBJECTS = ["the cat", "a dog", "my horse", "one bird", "the old man", "a small child"]
VERBS = ["sees", "likes", "follows", "hears", "finds"]
OBJECTS = ["the house", "a tree", "some water", "the moon", "a red ball", "the road"]
CHAT = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {{ eos_token }} {% endfor %}"


def sentences(count: int, seed: int = 0) -> list[str]:
    """Short sentences, the same ones for a seed."""
    draw = random.Random(seed)
    return [f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)} ." for _ in range(count)]


def tokenizer(is_bert: bool = False) -> Any:
    """A tokenizer of whole words, trained on the sentences."""
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    words.train_from_iterator(
        [*sentences(400), "user assistant system : good bad"],
        trainers.WordLevelTrainer(special_tokens=special),
    )
    if is_bert:
        words.post_processor = processors.BertProcessing(("</s>", 3), ("<s>", 2))
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    names |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"} if is_bert else {}
    made = PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **names)
    made.chat_template = CHAT
    return made


def llama(is_reward: bool = False, seed: int = 0) -> Any:
    """A decoder of a few thousand weights."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    kind, more = (LlamaForSequenceClassification, {"num_labels": 1}) if is_reward else (LlamaForCausalLM, {})
    return kind(
        LlamaConfig(vocab_size=64, max_position_embeddings=64, num_key_value_heads=2, **sizes, **ids, **more)
    )


def settings(**more: Any) -> dict[str, Any]:
    """Arguments that all scripts share; the folder is the first word of the command line."""
    common: dict[str, Any] = {
        "output_dir": sys.argv[1],
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_strategy": "steps",
        "save_steps": 3,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "seed": 7,
        "disable_tqdm": True,
    }
    return common | more


def finish(trainer: Any) -> None:
    """Train, then leave what was logged, whose Trainer it was, and the sum of the weights in result.json."""
    trainer.train()
    weights = sum(parameter.detach().double().sum().item() for parameter in trainer.model.parameters())
    base = next(kind for kind in type(trainer).__mro__ if kind.__name__ == "Trainer")
    result = {"library": base.__module__.split(".")[0], "log": trainer.state.log_history, "weights": weights}
    files = sorted(path.name for path in Path(trainer.args.output_dir, "checkpoint-6").iterdir())
    Path(sys.argv[1], "result.json").write_text(json.dumps({**result, "files": files}), encoding="utf-8")
