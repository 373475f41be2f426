"""Running text as blocks of tokens, for the tasks that learn a language from it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from footplate import EvalPrediction, HfArg, default_data_collator
from footplate.tasks.common.flags import DataFlags
from footplate.tasks.common.models import fit_embeddings
from footplate.tasks.common.preparing import empty_splits
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import FORMS, read_table
from footplate.tasks.common.recipe import Batch, Recipe, Row
from footplate.tasks.common.scores import accuracy
from footplate.tasks.common.writing import write_on

logger = logging.getLogger(__name__)

MAX_LENGTH = 1024  # of blocks, if no flag says how long they are and the tokenizer allows more
IGNORED = -100  # the label of a token that carries no loss


@dataclass
class BlockFlags(DataFlags):
    """How texts become blocks."""

    block_size: int | None = HfArg(
        default=None, help="Tokens of a block; default: what the tokenizer allows, or 1024 at most."
    )
    keep_linebreaks: bool = HfArg(default=True, help="Keep the line breaks of text files.")
    max_new_tokens: int = HfArg(default=50, help="Tokens of an answer of `footplate predict`, at most.")


@dataclass
class LineFlags(DataFlags):
    """How texts become blocks, or each line a row of its own."""

    max_seq_length: int | None = HfArg(default=None, help="Tokens of a block, or of a line at most.")
    line_by_line: bool = HfArg(default=False, help="Each line is a row of its own.")
    pad_to_max_length: bool = HfArg(
        default=False, help="Pad lines to max_seq_length; otherwise to the longest of their batch."
    )


class TextBlocks(Recipe):
    """Texts are joined and cut into blocks of the same length; what is left at the end is dropped."""

    limits_rows = False
    limits_features = True
    splits_by_chance = False
    always_splits = True
    ordered_stages: ClassVar[tuple[str, ...]] = ("group",)  # a rest is dropped wherever rows are split
    length_flag: ClassVar[str] = "block_size"

    column: str  # of texts
    length: int  # of a block, in tokens

    def read_file(self, path: str, split: str) -> Any:
        """The rows of a file; lines of text keep their end where a flag says so."""
        is_text = FORMS.get(Path(path).suffix.lower()) == "text" and hasattr(self.data, "keep_linebreaks")
        options = {"keep_linebreaks": getattr(self.data, "keep_linebreaks", None)} if is_text else {}
        return read_table(path, split, self.data, self.start, **options)

    def learn(self, rows: Mapping[str, Any]) -> None:
        """The column of texts: `text`, or the first."""
        names = list(next(iter(rows.values())).column_names or ["text"])
        self.column = "text" if "text" in names else names[0]

    def find_problem(self, row: Row) -> str | None:
        """A text that is missing."""
        return None if isinstance(row[self.column], str) else f"there is no text in {self.column!r}"

    def text_of(self, row: Row) -> list[str]:
        """The text of a row."""
        return [str(row[self.column])]

    def adjust(self, model: Any) -> Any:
        """Give the model an embedding for every token, and decide how long blocks are."""
        fit_embeddings(model, self.processor)
        self.length = self.choose_length()
        return model

    def choose_length(self) -> int:
        """How long blocks are: what the flag says, but no more than the tokenizer allows."""
        given, allowed = getattr(self.data, self.length_flag), self.processor.model_max_length
        if given is None:
            return self.default_length(allowed)
        if given < 1:
            raise TaskError(f"--{self.length_flag} {given}: give a number of tokens above 0.")
        if given > allowed:
            logger.warning("--%s %d: the tokenizer allows %d.", self.length_flag, given, allowed)
        return int(min(given, allowed))

    def default_length(self, allowed: int) -> int:
        """How long blocks are if no flag says it.

        Args:
            allowed: What the tokenizer allows.
        """
        places = getattr(self.config, "max_position_embeddings", 0)
        most = min(MAX_LENGTH, places) if places > 0 else MAX_LENGTH
        return int(most if allowed > places else allowed)

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Tokens on all cores, then blocks in order."""
        return [self.features, self.group]

    def features(self, rows: Batch) -> Batch:
        """The tokens of each text."""
        return dict(self.processor(rows[self.column], verbose=False))  # texts longer than a block are right

    def group(self, rows: Batch) -> Batch:
        """Blocks of the tokens of some rows."""
        joined = {name: list(chain.from_iterable(values)) for name, values in rows.items()}
        starts = range(0, len(joined["input_ids"]) - self.length + 1, self.length)
        return {
            name: [values[start : start + self.length] for start in starts] for name, values in joined.items()
        }

    def collator(self) -> Any:
        """Blocks are equally long: nothing is padded."""
        return default_data_collator

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse texts too short for one block; keep the most likely token, not the score of each."""
        for split in empty_splits(features):
            raise TaskError(
                f"The {split} texts are shorter than one block of {self.length} tokens. Give more text, "
                f"or shorter blocks with --{self.length_flag}."
            )
        return {"preprocess_logits_for_metrics": keep_best} if self.has_own("metrics") else {}

    def finish_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Add the perplexity."""
        return add_perplexity(metrics)

    def row_of(self, line: str) -> Row:
        """A text that was typed."""
        return {self.column: line}


class LineBlocks(TextBlocks):
    """Blocks of running text or, if a flag says so, each line by itself."""

    length_flag = "max_seq_length"
    token_options: ClassVar[dict[str, Any]] = {}  # what else the tokenizer is asked for
    data: LineFlags

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Blocks, or lines as they are."""
        return [self.features] if self.data.line_by_line else super().stages(split)

    def features(self, rows: Batch) -> Batch:
        """Tokens of each text, or of each line that is not empty, cut and padded as the flags say."""
        if not self.data.line_by_line:
            return dict(self.processor(rows[self.column], verbose=False, **self.token_options))
        made: Batch = dict(
            self.processor(
                [line for line in rows[self.column] if line.strip()],
                padding="max_length" if self.data.pad_to_max_length else False,
                truncation=True,
                max_length=self.length,
                **self.token_options,
            )
        )
        return made


class NextToken(TextBlocks):
    """Blocks whose labels are their own tokens: each predicts the next."""

    head = "AutoModelForCausalLM"
    data_flags = BlockFlags
    data: BlockFlags

    def group(self, rows: Batch) -> Batch:
        """Blocks and their labels."""
        blocks = super().group(rows)
        return {**blocks, "labels": [list(block) for block in blocks["input_ids"]]}

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The share of tokens that are predicted."""
        return {"accuracy": next_token_accuracy(prediction.predictions, prediction.label_ids)}

    def reply(self, model: Any, rows: Any) -> list[Row]:
        """How each text goes on."""
        return continue_texts(model, self.processor, rows[self.column], self.data.max_new_tokens)


def continue_texts(model: Any, tokenizer: Any, texts: Iterable[str], max_new_tokens: int) -> list[Row]:
    """How each text goes on, always with the most likely token."""
    made = [(text, tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    return [
        {"text": text, "continuation": write_on(model, tokenizer, tokens, max_new_tokens)}
        for text, tokens in made
    ]


def keep_best(logits: Any, labels: Any) -> Any:
    """The most likely token of each place."""
    scores = logits[0] if isinstance(logits, tuple) else logits
    return scores.argmax(dim=-1)


def token_accuracy(predictions: Any, labels: Any) -> float:
    """The share of tokens that are predicted, of those that carry loss."""
    counts = labels != IGNORED
    return accuracy(labels[counts], predictions[counts]) if counts.any() else math.nan


def next_token_accuracy(predictions: Any, labels: Any) -> float:
    """The share of tokens that the token before them predicts, of those that carry loss."""
    return token_accuracy(predictions[:, :-1], labels[:, 1:])


def add_perplexity(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics with the perplexity that follows from the loss."""
    if "eval_loss" not in metrics:
        return metrics
    loss = metrics["eval_loss"]
    return {**metrics, "perplexity": math.exp(loss) if loss < 700 else math.inf}
