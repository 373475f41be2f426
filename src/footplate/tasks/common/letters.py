"""Letters that a speech model hears: their tokenizer, and the trainer that keeps the best of each moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from footplate import Trainer, TrainingArguments
from footplate.tasks.common.models import import_transformers

SPECIAL = ("unk_token", "pad_token", "word_delimiter_token")


def number_letters(letters: list[str], flags: Any) -> dict[str, int]:
    """Numbers of letters in the order of the alphabet, then of special tokens.

    Args:
        letters: In their order; a space becomes the token between words.
        flags: Name the special tokens.
    """
    names = [flags.word_delimiter_token if letter == " " else letter for letter in letters]
    return {name: number for number, name in enumerate([*names, flags.unk_token, flags.pad_token])}


def build_letter_tokenizer(
    vocabulary: dict[str, Any], flags: Any, args: TrainingArguments, language: str | None = None
) -> Any:
    """A tokenizer of letters, which are written to `vocab.json` in the output folder.

    Args:
        vocabulary: Numbers of letters, or such a dict for each of several languages.
        flags: Name the special tokens and, if sounds are written in place of letters, the language.
        args: Name the folder.
        language: The one of several languages that is used.
    """
    file = Path(args.output_dir) / "vocab.json"
    with args.main_process_first(desc="writing letters"):
        if args.process_index == 0:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    options = {name: getattr(flags, name) for name in SPECIAL}
    if flags.phoneme_language:
        kind, options["phonemizer_lang"] = "Wav2Vec2PhonemeCTCTokenizer", flags.phoneme_language
    else:
        kind, options["target_lang"] = "Wav2Vec2CTCTokenizer", language
    return getattr(import_transformers(), kind)(str(file), **options)


class CtcTrainer(Trainer):
    """Keeps the best letter of each moment, not the scores of all; what is heard in padding is no letter."""

    def prediction_step(self, model: Any, inputs: Any, *options: Any, **named: Any) -> Any:
        """Loss, letters and labels; -100 where the sound has ended."""
        loss, scores, labels = super().prediction_step(model, inputs, *options, **named)
        if scores is None:
            return loss, scores, labels
        letters = (scores[0] if isinstance(scores, tuple) else scores).argmax(dim=-1)
        mask, bare = inputs.get("attention_mask"), self.accelerator.unwrap_model(model)
        if mask is not None and hasattr(bare, "_get_feature_vector_attention_mask"):
            is_sound = bare._get_feature_vector_attention_mask(letters.shape[1], mask.to(letters.device))
            letters = letters.masked_fill(~is_sound.bool(), -100)
        return loss, letters, labels
