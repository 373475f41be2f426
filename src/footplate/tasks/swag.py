"""Choose the ending that fits a beginning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from footplate import (
    DataCollatorForMultipleChoice,
    EvalPrediction,
    HfArg,
    PredictionOutput,
    TrainingArguments,
    default_data_collator,
)
from footplate.tasks import Batch, DataFlags, ModelFlags, Recipe, Row, check_columns
from footplate.tasks.common.scores import measure

CONTEXT, BEGINNING, LABEL = "sent1", "sent2", "label"
ENDING = re.compile(r"ending\d+")
MOST_TOKENS = 1024  # if neither flags nor tokenizer say how long a row may be


@dataclass
class SwagFlags(DataFlags):
    """How long rows are."""

    max_seq_length: int | None = HfArg(default=None, help="Tokens of a row; what is longer is cut off.")
    pad_to_max_length: bool = HfArg(
        default=False, help="Pad every row to that length; otherwise to the longest row of its batch."
    )


class Swag(Recipe):
    """A sentence, the beginning of the next one, and several endings of which one fits."""

    summary = "Choose the ending that fits a beginning (multiple choice, as in SWAG)."
    example = (
        "--model_name_or_path MODEL --train_file train.csv --validation_file dev.csv "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = SwagFlags
    first_flags = ("max_seq_length", "pad_to_max_length")
    head = "AutoModelForMultipleChoice"
    data: SwagFlags

    endings: list[str]  # columns
    has_beginnings = True

    def __init__(self, data: DataFlags, start: ModelFlags, args: TrainingArguments) -> None:
        super().__init__(data, start, args)
        if data.dataset_name is None and not self.files():
            data.dataset_name, data.dataset_config_name = "swag", "regular"

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns."""
        columns = list(next(iter(rows.values())).column_names or [])
        self.endings = sorted(filter(ENDING.fullmatch, columns), key=lambda name: int(name[6:]))
        self.has_beginnings = BEGINNING in columns
        wanted = [CONTEXT, BEGINNING] if self.has_beginnings else [CONTEXT]
        wanted += self.endings if len(self.endings) > 1 else ["ending0", "ending1"]
        check_columns(self, rows, wanted, [LABEL], "the names sent1, sent2, ending0 to ending3")

    def find_problem(self, row: Row) -> str | None:
        """A text that is missing, a label that names no ending."""
        missing = [name for name in (CONTEXT, *self.endings) if row[name] is None]
        if missing:
            return f"there is no text in {missing[0]!r}"
        last = len(self.endings) - 1
        if LABEL not in row or row[LABEL] in range(-1, last + 1):  # -1 where it is kept secret
            return None
        return f"the label {row[LABEL]!r} is no number of an ending, from 0 to {last}"

    def text_of(self, row: Row) -> list[str]:
        """All texts of a row."""
        names = (CONTEXT, BEGINNING, *self.endings)
        return [str(row[name]) for name in names if row.get(name)]

    def features(self, rows: Batch) -> Batch:
        """The tokens of each ending behind its beginning, in lists of as many as there are endings."""
        count = len(self.endings)
        beginnings = rows[BEGINNING] if self.has_beginnings else [None] * len(rows[CONTEXT])
        contexts = [context for context in rows[CONTEXT] for _ in range(count)]
        choices = [
            f"{beginning} {rows[name][row]}" if self.has_beginnings else rows[name][row]
            for row, beginning in enumerate(beginnings)
            for name in self.endings
        ]
        tokens = self.processor(
            contexts,
            choices,
            truncation=True,
            max_length=self.row_length(),
            padding="max_length" if self.data.pad_to_max_length else False,
        )
        made: Batch = {
            name: [values[start : start + count] for start in range(0, len(values), count)]
            for name, values in tokens.items()
        }
        if any(label not in (None, -1) for label in rows.get(LABEL, ())):
            made[LABEL] = rows[LABEL]
        return made

    def row_length(self) -> int:
        """How many tokens a row may have."""
        most = int(self.processor.model_max_length)
        return min(most, self.data.max_seq_length or MOST_TOKENS)

    def collator(self) -> Any:
        """Pad to the longest row of a batch, where rows are not padded already."""
        if self.data.pad_to_max_length:
            return default_data_collator
        return DataCollatorForMultipleChoice(self.processor, pad_to_multiple_of=8 if self.args.fp16 else None)

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The share of rows whose ending is right."""
        scores: Any = prediction.predictions
        return measure(("accuracy",), scores.argmax(axis=1), prediction.label_ids)

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The number and the text of the ending."""
        scores: Any = output.predictions
        return [
            {"label": int(number), "ending": row[self.endings[number]]}
            for row, number in zip(rows, scores.argmax(axis=1), strict=True)
        ]

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """One line for each row: its number and that of the ending."""
        answers = self.answers(rows, features, output)
        lines = ["index\tprediction", *(f"{index}\t{found['label']}" for index, found in enumerate(answers))]
        (folder / "predict_results.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
