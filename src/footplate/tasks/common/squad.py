"""Questions as SQuAD publishes them: articles, paragraphs, questions, answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import check_file, read_generated, read_table
from footplate.tasks.common.recipe import Recipe

if TYPE_CHECKING:
    from footplate.tasks.common.flags import DataFlags, ModelFlags


# flags of a run on the files that SQuAD publishes
EXAMPLE = "--model_name_or_path MODEL --train_file train-v1.1.json --validation_file dev-v1.1.json"


class QuestionRecipe(Recipe):
    """Questions about texts: their trainers make answers of features, for which they need the rows."""

    limits_features = True  # a long text gives several features

    def read_file(self, path: str, split: str) -> Any:
        """SQuAD's json, or any table."""
        return read_questions(path, split, self.data, self.start)

    def evaluation_inputs(
        self, split: str, rows: Mapping[str, Any], features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The features; their examples are known to the trainer."""
        return {}

    def prediction_inputs(
        self, split: str, rows: Mapping[str, Any], features: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Features and the examples that they were made from."""
        return {"predict_dataset": features[split], "predict_examples": rows[split]}


def read_questions(path: str, split: str, data: DataFlags, model: ModelFlags) -> Any:
    """The rows of a file of questions: SQuAD's json, rows under "data", or any table.

    Args:
        path: The file.
        split: What the rows are for.
        data: Encoding.
        model: Where to keep prepared data.
    """
    if Path(path).suffix.lower() != ".json":
        return number_rows(read_table(path, split, data, model))
    check_file(path, f"{split}_file", data.encoding)
    try:
        entries = load_entries(path, data.encoding)
    except json.JSONDecodeError:  # one value per line
        return number_rows(read_table(path, split, data, model))
    if entries is None:
        raise TaskError(f'--{split}_file {path}: there is no list of articles or rows under "data".')
    if not any("paragraphs" in entry for entry in entries):
        return number_rows(read_table(path, split, data, model, field="data"))
    rows = read_generated(walk_questions, path, data, model)
    if not len(rows):
        raise TaskError(f"--{split}_file {path}: there are no questions.")
    return rows


def load_entries(path: str, encoding: str) -> list[dict[str, Any]] | None:
    """What stands under "data", or None."""
    value = json.loads(Path(path).read_text(encoding=encoding))
    entries = value.get("data") if isinstance(value, dict) else value
    return (
        entries if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries) else None
    )


def walk_questions(path: str, encoding: str, changed: str) -> Iterator[dict[str, Any]]:
    """Each question of SQuAD's json as a row."""
    for article in load_entries(path, encoding) or ():
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = question.get("answers") or []
                yield {
                    "id": str(question["id"]),
                    "title": article.get("title", ""),
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": {
                        "text": [answer["text"] for answer in answers],
                        "answer_start": [answer["answer_start"] for answer in answers],
                    },
                }


def number_rows(rows: Any) -> Any:
    """Rows with an id; those without get their number."""
    if "id" in (rows.column_names or []) or not hasattr(rows, "__len__"):
        return rows
    return rows.add_column("id", [str(number) for number in range(len(rows))])


def answer_texts(answers: Any) -> list[str]:
    """The right answers to a question, as SQuAD writes them or as plain texts."""
    if isinstance(answers, dict):
        answers = answers.get("text")
    return [answers] if isinstance(answers, str) else list(answers or ())


def find_bad_answer(context: str, answers: dict[str, Any]) -> str | None:
    """Why the answers to a question cannot be used."""
    for text, start in zip(answers["text"], answers["answer_start"], strict=False):
        if context[start : start + len(text)] != text:
            place = context.find(text)
            where = f"it stands at character {place}" if place >= 0 else "it is not in the context"
            return f"the answer {text[:40]!r} is not at character {start} of its context: {where}"
    return None
