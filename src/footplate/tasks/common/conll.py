"""Sentences in columns: a line for each word with its tags, an empty line between sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import check_file, read_generated

if TYPE_CHECKING:
    from footplate.tasks.common.flags import DataFlags, ModelFlags

ENDINGS = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".txt")
LINES_TO_TRY = 1000  # of a tsv file, in search of an empty line
WORD, PART_OF_SPEECH = 1, 3  # columns of CoNLL-U, which has ten


def is_in_columns(path: str, encoding: str) -> bool:
    """Whether a file holds sentences in columns: by its name, a tsv by the empty lines in it."""
    ending = Path(path).suffix.lower()
    if ending != ".tsv" or not Path(path).is_file():
        return ending in ENDINGS
    with open(path, encoding=encoding, errors="replace") as file:
        return any(not line.strip() for line, _ in zip(file, range(LINES_TO_TRY), strict=False))


def read_sentences(path: str, split: str, task: str, data: DataFlags, model: ModelFlags) -> Any:
    """The sentences of a file, each a row of `tokens` and of tags, such as `ner_tags`.

    Args:
        path: The file.
        split: What the rows are for.
        task: What the last column holds: ner, pos or chunk. Four columns are those of CoNLL-2003.
        data: Encoding.
        model: Where to keep prepared data.
    """
    check_file(path, f"{split}_file", data.encoding)
    if next(walk_sentences(path, data.encoding, "", task), None) is None:
        raise TaskError(f"--{split}_file {path}: there are no sentences.")
    return read_generated(walk_sentences, path, data, model, task=task)


def walk_sentences(path: str, encoding: str, changed: str, task: str) -> Iterator[dict[str, list[str]]]:
    """Each sentence of a file as a row."""
    is_universal = path.endswith(".conllu")
    names: list[str] = []
    columns: list[list[str]] = []
    with open(path, encoding=encoding) as file:
        for number, line in enumerate([*file, ""], start=1):
            cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
            if not line.strip() or cells[0] == "-DOCSTART-":
                if columns:
                    yield dict(zip(names, map(list, zip(*columns, strict=True)), strict=True))
                columns = []
                continue
            if is_universal:
                if line.startswith("#") or not cells[0].isdigit():  # a comment, or a word of several lines
                    continue
                cells = [cells[WORD], cells[PART_OF_SPEECH]]
            names = names or name_columns(len(cells), "pos" if is_universal else task)
            if len(cells) != len(names):
                raise TaskError(
                    f"{path}: line {number} has {len(cells)} columns, the lines before it have {len(names)}. "
                    "Every word needs a line of its own, with all its tags."
                )
            columns.append(cells)


def name_columns(count: int, task: str) -> list[str]:
    """The names of columns: word and tags; word, part of speech, chunk, entity if there are four."""
    if count == 4:
        return ["tokens", "pos_tags", "chunk_tags", "ner_tags"]
    if count == 3 and task == "pos":
        return ["tokens", "pos_tags", "chunk_tags"]
    others = [f"column_{number}" for number in range(2, count)]
    if count == 3:
        others = ["pos_tags"]
    return ["tokens", *others, *([f"{task}_tags"] if count > 1 else [])]
