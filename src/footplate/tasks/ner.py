"""Give every word of a text its tag: entities, parts of speech, chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from footplate import DataCollatorForTokenClassification, EvalPrediction, HfArg, PredictionOutput
from footplate.tasks import Batch, DataFlags, Recipe, Row, check_columns
from footplate.tasks.common import tags
from footplate.tasks.common.conll import is_in_columns, read_sentences
from footplate.tasks.common.labels import name_classes, names_in_model
from footplate.tasks.common.tags import words_of


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
        check_columns(self, rows, [self.text], [self.label], "--text_column_name and --label_column_name")
        known = None if "train" in rows else names_in_model(self.start)
        self.names, self.spelled = tags.learn_tags(first, self.label, known)

    def find_problem(self, row: Row) -> str | None:
        """No words, more or fewer tags than words, a tag that training does not know."""
        if row[self.text] is None:
            return f"there are no words in {self.text!r}"
        if self.label not in row:
            return None
        words, given = words_of(row[self.text]), words_of(row[self.label] or ())
        return tags.find_bad_tags(words, given, None if self.spelled else self.names)

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
        self.names = tags.order_as_model(self.names, model.config)
        model.config.update(name_classes(self.names))
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
            given = [tags.spell_tags(value, self.spelled) for value in rows[self.label]]
            made["labels"] = tags.label_tokens(made, given, self.names, self.data.label_all_tokens)
        return dict(made)

    def collator(self) -> Any:
        """Pad tokens and tags to the longest row of a batch."""
        return DataCollatorForTokenClassification(
            self.processor, pad_to_multiple_of=8 if self.args.fp16 else None
        )

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Precision, recall and F1 of whole entities, and the accuracy of tags."""
        scores, by_type = np.asarray(prediction.predictions), self.data.return_entity_level_metrics
        return tags.measure_tags(scores.argmax(axis=-1), prediction.label_ids, self.names, by_type)

    def word_tags(self, row: Row, scores: Any) -> list[str]:
        """The tag of each word of a row."""
        words = words_of(row[self.text])
        return tags.tags_of_words(self.encode([words]), len(words), scores.argmax(axis=-1), self.names)

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The entities in each text with their words and type; if tags are no entities, all tags."""
        pairs = zip(rows, np.asarray(output.predictions), strict=True)
        found = [(words_of(row[self.text]), self.word_tags(row, scores)) for row, scores in pairs]
        return [tags.describe_tags(words, given, self.names) for words, given in found]

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """A line for each row: the tags of its words."""
        scores = np.asarray(output.predictions)
        if output.label_ids is not None:
            lines = tags.name_tags(scores.argmax(axis=-1), output.label_ids, self.names)
        else:
            lines = [self.word_tags(*pair) for pair in zip(rows, scores, strict=True)]
        text = "".join(" ".join(line) + "\n" for line in lines)
        (folder / "predictions.txt").write_text(text, encoding="utf-8")
