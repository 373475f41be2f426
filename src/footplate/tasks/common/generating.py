"""What tasks share whose answers are texts that the model writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from footplate import (
    DataCollatorForSeq2Seq,
    EvalPrediction,
    HfArg,
    PredictionOutput,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)
from footplate.tasks.common.flags import DataFlags
from footplate.tasks.common.models import fit_embeddings
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Batch, Recipe, Row

IGNORED = -100  # a label that carries no loss


@dataclass
class WritingFlags(DataFlags):
    """How texts are padded, and how they are written."""

    pad_to_max_length: bool = HfArg(
        default=False, help="Pad every row to the longest length; otherwise to the longest of its batch."
    )
    num_beams: int | None = HfArg(default=1, help="Beams of the search for the best text.")
    ignore_pad_token_for_loss: bool = HfArg(default=True, help="Padding of targets carries no loss.")


@dataclass
class TextToTextFlags(WritingFlags):
    """How long texts are, and what stands before them."""

    max_source_length: int = HfArg(default=1024, help="Tokens of a text to read; what is longer is cut off.")
    max_target_length: int = HfArg(default=128, help="Tokens of a text to write, in training.")
    val_max_target_length: int | None = HfArg(
        default=None, help="Tokens of a text to write, otherwise (default: as in training)."
    )
    source_prefix: str | None = HfArg(
        default=None, help="What to put before every text, such as 'summarize: ' for T5."
    )
    forced_bos_token: str | None = HfArg(
        default=None, help="The first token of every written text, such as the target language of mBART."
    )


class TextToText(Recipe):
    """Texts to read, and texts to write.

    A subclass says which texts these are (`pairs`), and how written ones are measured (`score`).
    """

    data_flags: ClassVar[type[DataFlags]] = TextToTextFlags
    arguments = Seq2SeqTrainingArguments
    trainer = Seq2SeqTrainer
    head = "AutoModelForSeq2SeqLM"
    answer_name: ClassVar[str] = "text"
    data: Any
    args: Seq2SeqTrainingArguments
    model: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the model, for processes that prepare rows."""
        return {name: value for name, value in vars(self).items() if name != "model"}

    def pairs(self, rows: Batch) -> tuple[list[str], list[str] | None]:
        """The texts to read, and those to write if they are known."""
        raise NotImplementedError(f"{type(self).__name__} must define pairs(rows)")

    def score(self, found: list[str], right: list[str]) -> dict[str, float]:
        """How good written texts are."""
        raise NotImplementedError(f"{type(self).__name__} must define score(found, right)")

    # ---- model ----

    def languages(self) -> tuple[str | None, str | None]:
        """The languages to read and to write, for tokenizers of several languages."""
        return None, None

    def adjust(self, model: Any) -> Any:
        """Fit the model to the tokenizer and to the language that it writes."""
        self.model = model
        fit_embeddings(model, self.processor)
        if hasattr(self.processor, "tgt_lang") and hasattr(self.processor, "src_lang"):
            forced = getattr(self.data, "forced_bos_token", None)
            set_languages(model, self.processor, *self.languages(), forced)
        if model.config.decoder_start_token_id is None:
            raise TaskError(
                f"The configuration of {type(model).__name__} has no decoder_start_token_id, the token that "
                "begins every text. Set it in its config.json."
            )
        return model

    # ---- features ----

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Texts to write may be longer in evaluations than in training."""
        return [self.features if split == "train" else self.evaluation_features]

    def features(self, rows: Batch) -> Batch:
        """Tokens of the text to read, and of the one to write as labels."""
        return self.encode(*self.pairs(rows), self.data.max_source_length, self.data.max_target_length)

    def evaluation_features(self, rows: Batch) -> Batch:
        """The same for rows to evaluate on."""
        return self.encode(*self.pairs(rows), self.data.max_source_length, self.written_length())

    def written_length(self) -> int:
        """Tokens of a text that the model writes in evaluations."""
        return int(self.data.val_max_target_length or self.data.max_target_length)

    def encode(
        self, sources: list[str], targets: list[str] | None, source_length: int, target_length: int
    ) -> Batch:
        """The tokens of texts to read and to write."""
        padding = "max_length" if self.data.pad_to_max_length else False
        prefix = getattr(self.data, "source_prefix", None) or ""
        made = self.processor(
            [prefix + text for text in sources], max_length=source_length, padding=padding, truncation=True
        )
        if targets is not None:
            made["labels"] = self.encode_targets(targets, target_length)
        return dict(made)

    def encode_targets(self, targets: list[str], length: int) -> list[list[int]]:
        """The tokens of texts to write; padding carries no loss."""
        padding = "max_length" if self.data.pad_to_max_length else False
        labels: list[list[int]] = self.processor(
            text_target=targets, max_length=length, padding=padding, truncation=True
        )["input_ids"]
        if not padding or not self.data.ignore_pad_token_for_loss:
            return labels
        pad = self.processor.pad_token_id
        return [[IGNORED if token == pad else token for token in row] for row in labels]

    def collator(self) -> Any:
        """Pad the two texts, each to the longest of a batch."""
        pad = IGNORED if self.data.ignore_pad_token_for_loss else self.processor.pad_token_id
        return DataCollatorForSeq2Seq(
            self.processor,
            model=self.model,
            label_pad_token_id=pad,
            pad_to_multiple_of=8 if self.args.fp16 else None,
        )

    # ---- training and measuring ----

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Texts are measured if they are written; how long they may get follows from the flags."""
        if not self.args.predict_with_generate:
            return {"compute_metrics": None}
        self.args.generation_max_length = self.args.generation_max_length or self.written_length()
        beams = self.data.num_beams
        if beams is not None and (beams > 1 or self.args.generation_num_beams is None):
            self.args.generation_num_beams = beams
        return {}

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """How good the written texts are, and how many tokens they have."""
        found, right = self.decode(prediction.predictions), self.decode(prediction.label_ids)
        tokens = np.asarray(first_of(prediction.predictions))
        is_written = (tokens != self.processor.pad_token_id) & (tokens != IGNORED)
        return {**self.score(found, right), "gen_len": float(is_written.sum(axis=1).mean())}

    def decode(self, tokens: Any, **options: Any) -> list[str]:
        """The texts of tokens."""
        tokens = np.asarray(first_of(tokens))
        filled = np.where(tokens == IGNORED, self.processor.pad_token_id, tokens)
        texts = self.processor.batch_decode(filled, skip_special_tokens=True, **options)
        return [text.strip() for text in texts]

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Take over what was learned; new rows are answered with written texts."""
        super().recall(learned)
        self.args.predict_with_generate = True

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The written texts."""
        return [{self.answer_name: text} for text in self.decode(output.predictions)]

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """Write the texts, one below the other."""
        if self.args.predict_with_generate:
            texts = self.decode(output.predictions, clean_up_tokenization_spaces=True)
            (folder / "generated_predictions.txt").write_text("\n".join(texts), encoding="utf-8")


def first_of(values: Any) -> Any:
    """The first of several outputs."""
    return values[0] if isinstance(values, tuple) else values


def set_languages(
    model: Any, tokenizer: Any, source: str | None, target: str | None, forced_token: str | None
) -> None:
    """Tell tokenizer and model of several languages which ones to read and to write.

    Args:
        model: Begins texts with the language, if its configuration names no other token.
        tokenizer: Marks texts with their languages.
        source: The language to read, such as en_XX.
        target: The language to write.
        forced_token: The first token of every text.
    """
    if source is None or target is None:
        raise TaskError(
            f"{type(tokenizer).__name__} is for several languages. Name those to read and to write."
        )
    number = find_language(tokenizer, target)
    find_language(tokenizer, source)
    tokenizer.src_lang, tokenizer.tgt_lang = source, target
    if model.config.decoder_start_token_id is None:
        model.config.decoder_start_token_id = number
        model.generation_config.decoder_start_token_id = number
    model.generation_config.forced_bos_token_id = (
        None if forced_token is None else find_language(tokenizer, forced_token)
    )


def find_language(tokenizer: Any, name: str) -> int:
    """The token of a language."""
    numbers = getattr(tokenizer, "lang_code_to_id", None) or {}
    number = numbers.get(name, tokenizer.convert_tokens_to_ids(name))
    if number is None or number == tokenizer.unk_token_id:
        known = ", ".join(sorted(numbers)) or "those of its model card"
        raise TaskError(f"{type(tokenizer).__name__} knows no language {name!r}. It knows {known}.")
    return int(number)
