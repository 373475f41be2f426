"""Give every word of a text its tag: entities, parts of speech, chunks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from footplate import DataCollatorForTokenClassification, EvalPrediction, HfArg, PredictionOutput
from footplate.tasks import Batch, DataFlags, Recipe, Row, TaskError, require_columns, source_name
from footplate.tasks.common.conll import is_in_columns, read_sentences
from footplate.tasks.common.labels import names_in_model, sort_names
from footplate.tasks.common.tags import (
    IGNORED,
    find_entities,
    first_tokens,
    measure_tags,
    number_tokens,
    words_of,
)

logger = logging.getLogger(__name__)


@dataclass
class NerFlags(DataFlags):
    """Which columns hold words and tags, and how tokens get those of their words."""

    task_name: str = HfArg(default="ner", help="What the tags are: ner, pos or chunk.")
    text_column_name: str | None = HfArg(default=None, help="Column of words (default: tokens).")
    label_column_name: str | None = HfArg(default=None, help="Column of tags (default: ner_tags).")
    max_seq_length: int | None = HfArg(default=None, help="Tokens of a row; what is longer is cut off.")
    pad_to_max_length: bool = HfArg(
        default=False, help="Pad every row to that length; otherwise to the longest row of its batch."
    )
    label_all_tokens: bool = HfArg(
        default=False, help="Give all tokens of a word its tag; otherwise only the first has one."
    )
    return_entity_level_metrics: bool = HfArg(default=False, help="Measure every type of entity by itself.")


class Ner(Recipe):
    """Texts as lists of words, and a tag for each word."""

    summary = "Tag the words of texts: entities, parts of speech, chunks."
    example = (
        "--model_name_or_path MODEL --train_file train.conll --validation_file dev.conll "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = NerFlags
    first_flags = ("task_name", "text_column_name", "label_column_name")
    head = "AutoModelForTokenClassification"
    gives_words = True
    data: NerFlags

    text: str
    label: str
    names: list[str]  # of the tags, in the order of their numbers
    spelled: list[str]  # what numbers in the data mean; empty if the data has the tags themselves

    def read_file(self, path: str, split: str) -> Any:
        """The rows of a table, or sentences in columns."""
        if is_in_columns(path, self.data.encoding):
            return read_sentences(path, split, self.data.task_name, self.data, self.start)
        return super().read_file(path, split)

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns and the tags."""
        first = rows["train"] if "train" in rows else next(iter(rows.values()))
        columns, usual = list(first.column_names or []), f"{self.data.task_name}_tags"
        self.text = self.data.text_column_name or ("tokens" if "tokens" in columns else columns[0])
        self.label = self.data.label_column_name or (
            usual if usual in columns or len(columns) < 2 else columns[1]
        )
        for split, part in rows.items():
            wanted = [self.text] if split == "test" else [self.text, self.label]
            flags = "--text_column_name and --label_column_name"
            require_columns(part, wanted, source_name(self, split), flags)
        feature = getattr((first.features or {}).get(self.label), "feature", None)
        self.spelled = list(getattr(feature, "names", None) or [])
        known = None if "train" in rows else names_in_model(self.start)
        if self.spelled or known:
            self.names = self.spelled or known or []
            return
        if self.label not in columns:
            raise TaskError(
                "The tags are not known. Give rows with tags, or a model that was trained for them."
            )
        self.names = sort_names(
            {tag for row in first for tag in words_of(row[self.label] or ()) if tag is not None}
        )

    def find_problem(self, row: Row) -> str | None:
        """No words, more or fewer tags than words, a tag that training does not know."""
        if row[self.text] is None:
            return f"there are no words in {self.text!r}"
        if self.label not in row:
            return None
        words, tags = words_of(row[self.text]), words_of(row[self.label] or ())
        if len(words) != len(tags):
            return f"there are {len(words)} words but {len(tags)} tags"
        unknown = next((tag for tag in tags if not self.spelled and str(tag) not in self.names), None)
        return None if unknown is None else f"the tag {unknown!r} does not occur in the training rows"

    def text_of(self, row: Row) -> list[str]:
        """The words of a row."""
        return words_of(row[self.text])

    def row_of(self, line: str) -> Row:
        """The words of a text that was typed."""
        return {self.text: words_of(line)}

    def configure(self) -> dict[str, Any]:
        """How many tags there are."""
        return {"num_labels": len(self.names)}

    def adjust(self, model: Any) -> Any:
        """Name the tags in the model; a model that was trained for the same tags keeps their order."""
        known = model.config.label2id or {}
        if sorted(known) == sorted(self.names):
            self.names = sorted(self.names, key=lambda name: int(known[name]))
        elif any(not name.startswith("LABEL_") for name in known):
            logger.warning("The model knows other tags, %s: its last layer gets new ones.", sorted(known))
        model.config.id2label = dict(enumerate(self.names))
        model.config.label2id = {name: number for number, name in enumerate(self.names)}
        return model

    def encode(self, texts: list[list[str]]) -> Any:
        """The tokens of texts."""
        return self.processor(
            texts,
            padding="max_length" if self.data.pad_to_max_length else False,
            truncation=True,
            max_length=self.data.max_seq_length,
            is_split_into_words=True,
        )

    def features(self, rows: Batch) -> Batch:
        """Tokens and, for the first token of each word, the number of its tag."""
        made = self.encode([words_of(value) for value in rows[self.text]])
        if self.label in rows:
            numbers = {name: number for number, name in enumerate(self.names)}
            made["labels"] = [
                number_tokens(made.word_ids(row), self.spell(tags), numbers, self.data.label_all_tokens)
                for row, tags in enumerate(rows[self.label])
            ]
        return dict(made)

    def spell(self, value: Any) -> list[str]:
        """The tags of a row, which the data may have as numbers."""
        return [self.spelled[tag] if self.spelled else str(tag) for tag in words_of(value)]

    def collator(self) -> Any:
        """Pad tokens and tags to the longest row of a batch."""
        return DataCollatorForTokenClassification(
            self.processor, pad_to_multiple_of=8 if self.args.fp16 else None
        )

    def tags_of(self, numbers: Any, labels: Any) -> list[list[str]]:
        """The names of tags where there are labels."""
        return [
            [self.names[number] for number, label in zip(row, mask, strict=True) if label != IGNORED]
            for row, mask in zip(numbers, labels, strict=True)
        ]

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Precision, recall and F1 of whole entities, and the accuracy of tags."""
        scores: Any = prediction.predictions
        found = self.tags_of(scores.argmax(axis=-1), prediction.label_ids)
        right = self.tags_of(prediction.label_ids, prediction.label_ids)
        return measure_tags(right, found, self.data.return_entity_level_metrics)

    def word_tags(self, row: Row, scores: Any) -> list[str]:
        """The tag of each word, by its first token; words that were cut off have none."""
        words = words_of(row[self.text])
        first, numbers = first_tokens(self.encode([words]).word_ids(0)), scores.argmax(axis=-1)
        return [self.names[numbers[first[place]]] if place in first else "O" for place in range(len(words))]

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The entities in each text with their words and type; if tags are no entities, all tags."""
        are_entities = any(name.startswith(("B-", "I-")) for name in self.names)
        answers: list[Row] = []
        for row, scores in zip(rows, np.asarray(output.predictions), strict=True):
            words, tags = words_of(row[self.text]), self.word_tags(row, scores)
            found = {"entities": find_entities(words, tags)}
            answers.append(found if are_entities else {"words": words, "tags": tags})
        return answers

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """A line for each row: the tags of its words."""
        scores: Any = output.predictions
        if output.label_ids is not None:
            lines = self.tags_of(scores.argmax(axis=-1), output.label_ids)
        else:
            lines = [self.word_tags(*pair) for pair in zip(rows, scores, strict=True)]
        text = "".join(" ".join(line) + "\n" for line in lines)
        (folder / "predictions.txt").write_text(text, encoding="utf-8")
