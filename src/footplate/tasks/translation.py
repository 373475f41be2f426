"""Translate texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from footplate import HfArg
from footplate.tasks import Batch, Row, TaskError, check_columns
from footplate.tasks.common.generating import TextToText, TextToTextFlags

PAIR = "translation"  # column of texts by language


@dataclass
class TranslationFlags(TextToTextFlags):
    """From which language to which."""

    source_lang: str | None = HfArg(default=None, help="Language to read, such as en; for mBART, en_XX.")
    target_lang: str | None = HfArg(default=None, help="Language to write.")


class Translation(TextToText):
    """Texts in two languages: a column `translation` with {"en": ..., "de": ...}, or a column for each."""

    summary = "Translate texts from one language to another."
    example = (
        "--model_name_or_path MODEL --train_file train.json --validation_file dev.json --source_lang en "
        "--target_lang de --do_train --do_eval --predict_with_generate --output_dir out"
    )
    data_flags = TranslationFlags
    first_flags = ("source_lang", "target_lang", "max_source_length", "predict_with_generate")
    answer_name = "translation"

    source: str  # the languages as the data names them, without regions
    target: str
    has_pairs = False

    def languages(self) -> tuple[str | None, str | None]:
        """As the tokenizer names them."""
        return self.data.source_lang, self.data.target_lang

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the two texts."""
        if self.data.source_lang is None or self.data.target_lang is None:
            raise TaskError("Name the languages, such as --source_lang en --target_lang de.")
        self.source, self.target = (str(name).split("_")[0] for name in self.languages())
        self.has_pairs = PAIR in (next(iter(rows.values())).column_names or [])
        columns = [PAIR] if self.has_pairs else [self.source, self.target]
        check_columns(self, rows, columns[:1], columns[1:], "--source_lang and --target_lang")

    def find_problem(self, row: Row) -> str | None:
        """A language that is missing."""
        texts = row[PAIR] if self.has_pairs else row
        if texts is None or texts.get(self.source) is None:
            return f"there is no text in {self.source!r} (--source_lang)"
        is_gap = self.target in texts and texts[self.target] is None
        return f"there is no text in {self.target!r} (--target_lang)" if is_gap else None

    def text_of(self, row: Row) -> list[str]:
        """Both texts."""
        texts = row[PAIR] if self.has_pairs else row
        return [texts[name] for name in (self.source, self.target) if texts.get(name)]

    def row_of(self, line: str) -> Row:
        """A text that was typed."""
        return {PAIR: {self.source: line}} if self.has_pairs else {self.source: line}

    def pairs(self, rows: Batch) -> tuple[list[str], list[str] | None]:
        """The texts in the two languages."""
        if not self.has_pairs:
            return rows[self.source], rows.get(self.target)
        targets = [texts[self.target] for texts in rows[PAIR] if self.target in texts]
        return [texts[self.source] for texts in rows[PAIR]], targets or None

    def score(self, found: list[str], right: list[str]) -> dict[str, float]:
        """BLEU of all texts together."""
        from sacrebleu import corpus_bleu

        return {"bleu": round(corpus_bleu(found, [right]).score, 4)}

    def metrics(self, prediction: Any) -> dict[str, float]:
        """BLEU, and how many tokens the translations have."""
        return {name: round(value, 4) for name, value in super().metrics(prediction).items()}
