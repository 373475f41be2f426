"""Write summaries of texts."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from footplate import HfArg
from footplate.tasks import Batch, ModelFlags, Row, TaskError, check_columns
from footplate.tasks.common.generating import TextToText, TextToTextFlags

logger = logging.getLogger(__name__)

# columns of text and summary in well-known datasets
COLUMNS = (
    ("article", "highlights"),
    ("article", "summary"),
    ("document", "summary"),
    ("dialogue", "summary"),
    ("text", "summary"),
    ("body", "summary"),
    ("description", "abstract"),
    ("news_body", "news_title"),
    ("review_body", "review_title"),
    ("extract_text", "summary_text"),
)
END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])")
ROUGES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


@dataclass
class SummarizationModelFlags(ModelFlags):
    """What long texts need of a model."""

    resize_position_embeddings: bool | None = HfArg(
        default=None, help="Let the model read longer texts than it was made for (default: with a warning)."
    )


@dataclass
class SummarizationFlags(TextToTextFlags):
    """Which columns hold texts and summaries."""

    lang: str | None = HfArg(default=None, help="Language, for models of several languages.")
    text_column: str | None = HfArg(default=None, help="Column of texts (default: by name, or the first).")
    summary_column: str | None = HfArg(
        default=None, help="Column of summaries (default: by name, or the second)."
    )


class Summarization(TextToText):
    """Texts and their summaries."""

    summary = "Write summaries of texts."
    example = (
        "--model_name_or_path MODEL --train_file train.json --validation_file dev.json --source_prefix "
        "'summarize: ' --do_train --do_eval --predict_with_generate --output_dir out"
    )
    data_flags = SummarizationFlags
    model_flags = SummarizationModelFlags
    first_flags = ("text_column", "summary_column", "max_source_length", "predict_with_generate")
    answer_name = "summary"

    text: str
    target: str

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns."""
        columns = list(next(iter(rows.values())).column_names or [])
        pair = next(
            (pair for pair in COLUMNS if set(pair) <= set(columns)), (*columns, "text", "summary")[:2]
        )
        self.text = self.data.text_column or pair[0]
        self.target = self.data.summary_column or pair[1]
        check_columns(self, rows, [self.text], [self.target], "--text_column and --summary_column")

    def find_problem(self, row: Row) -> str | None:
        """A text or a summary that is missing."""
        missing = [name for name in (self.text, self.target) if name in row and not row[name]]
        return f"there is nothing in {missing[0]!r}" if missing else None

    def text_of(self, row: Row) -> list[str]:
        """Text and summary."""
        return [str(row[name]) for name in (self.text, self.target) if name in row]

    def row_of(self, line: str) -> Row:
        """A text that was typed."""
        return {self.text: line}

    def languages(self) -> tuple[str | None, str | None]:
        """The summary is in the language of the text."""
        if self.data.lang is None:
            raise TaskError("The model is for several languages. Name the one of the texts: --lang en_XX.")
        return self.data.lang, self.data.lang

    def adjust(self, model: Any) -> Any:
        """Let the model read texts of the length that was asked for."""
        model = super().adjust(model)
        wanted = self.data.max_source_length
        most = getattr(model.config, "max_position_embeddings", None)
        if most is None or most >= wanted:
            return model
        if getattr(self.start, "resize_position_embeddings", None) is False:
            raise TaskError(
                f"The model reads {most} tokens, but --max_source_length is {wanted}. Lower it, or give "
                "--resize_position_embeddings."
            )
        logger.warning("The model reads %d tokens; its positions are extended to %d.", most, wanted)
        try:
            model.resize_position_embeddings(wanted)
        except NotImplementedError:
            raise TaskError(
                f"{type(model).__name__} reads {most} tokens and cannot be extended. Give "
                f"--max_source_length {most}."
            ) from None
        return model

    def pairs(self, rows: Batch) -> tuple[list[str], list[str] | None]:
        """Texts and summaries."""
        return rows[self.text], rows.get(self.target)

    def score(self, found: list[str], right: list[str]) -> dict[str, float]:
        """ROUGE: which words, pairs of words and sequences of words the two have in common, in per cent."""
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer(list(ROUGES), use_stemmer=True)
        scores = [
            scorer.score(split_sentences(target), split_sentences(text))
            for target, text in zip(right, found, strict=True)
        ]
        means = {name: sum(row[name].fmeasure for row in scores) / len(scores) for name in ROUGES}
        return {name: round(100 * value, 4) for name, value in means.items()}


def split_sentences(text: str) -> str:
    """The text with one sentence per line, as rougeLsum compares them."""
    return "\n".join(part for part in END_OF_SENTENCE.split(text) if part)
