"""Questions as SQuAD publishes them: articles, paragraphs, questions, answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import check_file, import_datasets, read_table

if TYPE_CHECKING:
    from footplate.tasks.common.flags import DataFlags, ModelFlags


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
    status = Path(path).stat()
    rows = import_datasets().Dataset.from_generator(
        walk_questions,
        gen_kwargs={
            "path": str(Path(path).resolve()),
            "encoding": data.encoding,
            "changed": f"{status.st_mtime_ns} {status.st_size}",  # prepared anew if the file changes
        },
        cache_dir=model.cache_dir,
    )
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


def find_bad_answer(context: str, answers: dict[str, Any]) -> str | None:
    """Why the answers to a question cannot be used."""
    for text, start in zip(answers["text"], answers["answer_start"], strict=False):
        if context[start : start + len(text)] != text:
            place = context.find(text)
            where = f"it stands at character {place}" if place >= 0 else "it is not in the context"
            return f"the answer {text[:40]!r} is not at character {start} of its context: {where}"
    return None
