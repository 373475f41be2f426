"""Read columns of examples and features in any form, and the characters of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from footplate.batch import is_table

Array = npt.NDArray[Any]
NOWHERE = -1  # the offset of a token at which no answer can start or end


class TokenTable(NamedTuple):
    """For each token of each feature, its first character and the one after its last; NOWHERE outside.

    The last column is NOWHERE in every row: indices that are out of range are replaced by it.
    """

    begins: Array
    ends: Array

    @property
    def num_tokens(self) -> int:
        """Tokens of the longest feature."""
        return int(self.begins.shape[1]) - 1


def read_columns(rows: Any, names: Sequence[str], setting: str) -> list[list[Any]]:
    """The named columns of a dataset, a dictionary of columns or a sequence of rows, each read once.

    Args:
        rows: The rows.
        names: The columns.
        setting: The user's name for `rows`, for errors.
    """
    if is_table(rows):
        check_columns(rows.column_names, names, setting)
        plain = rows.with_format(None)
        return [list(plain[name][:]) for name in names]
    if isinstance(rows, Mapping):
        check_columns(list(rows), names, setting)
        return [list(rows[name]) for name in names]
    found = [rows[index] for index in range(len(rows))]  # once: reading a row may be slow
    for row in found:
        check_columns(list(row), names, setting)
    return [[row[name] for row in found] for name in names]


def check_columns(found: Sequence[str], wanted: Sequence[str], setting: str) -> None:
    """Refuse rows that lack a column."""
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(
            f"{setting} has no column {missing[0]!r}, only {sorted(found)}. Keep it when you prepare "
            f"{setting}."
        )


def has_column(rows: Any, name: str) -> bool:
    """Whether rows have a column; a list of rows is judged by its first row."""
    if is_table(rows):
        return name in rows.column_names
    if isinstance(rows, Mapping):
        return name in rows
    return len(rows) > 0 and name in rows[0]


def count_rows(rows: Any) -> int:
    """How many rows there are, in a dictionary of columns too."""
    return len(next(iter(rows.values()), ())) if isinstance(rows, Mapping) else len(rows)


def answer_texts(answers: Any) -> list[str]:
    """The texts of an example's answers, as datasets give them or as SQuAD's files do."""
    if answers is None:
        return []
    if isinstance(answers, Mapping):
        texts = answers["text"]
        return [texts] if isinstance(texts, str) else list(texts)
    return [answer["text"] if isinstance(answer, Mapping) else answer for answer in answers]


def read_token_table(features: Any) -> TokenTable:
    """The characters of all tokens, from the columns offset_mapping and token_is_max_context."""
    if is_table(features):
        check_columns(features.column_names, ["offset_mapping"], "features")
        lengths, is_inside, offsets = _flatten_arrow(features, "offset_mapping")
    else:
        lengths, is_inside, offsets = _flatten_lists(*read_columns(features, ["offset_mapping"], "features"))
    width = int(lengths.max(initial=0)) + 1
    rows = np.repeat(np.arange(len(lengths)), lengths)[is_inside]
    firsts = np.cumsum(lengths) - lengths
    columns = (np.arange(lengths.sum()) - np.repeat(firsts, lengths))[is_inside]
    begins, ends = np.full((2, len(lengths), width), NOWHERE, dtype=np.int32)
    begins[rows, columns], ends[rows, columns] = offsets[:, 0], offsets[:, 1]
    if has_column(features, "token_is_max_context"):
        _drop_lesser_contexts(begins, *read_columns(features, ["token_is_max_context"], "features"))
    return TokenTable(begins, ends)


def _flatten_lists(mappings: Sequence[Any]) -> tuple[Array, Array, Array]:
    """Tokens per row, which of them have an offset, and those offsets."""
    rows = [[] if row is None else row for row in mappings]
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    tokens = list(chain.from_iterable(rows))
    is_inside = np.fromiter((token is not None for token in tokens), dtype=bool, count=len(tokens))
    inside = chain.from_iterable(token for token in tokens if token is not None)
    return lengths, is_inside, np.fromiter(inside, dtype=np.int64).reshape(-1, 2)


def _flatten_arrow(dataset: Any, name: str) -> tuple[Array, Array, Array]:
    """The same from a `datasets.Dataset`, without a Python object for each of millions of numbers."""
    column = dataset.select_columns([name]).with_format("arrow")[:].column(name)
    lengths, is_inside, offsets = [], [], []
    for chunk in column.chunks:
        sizes = chunk.value_lengths().fill_null(0)
        tokens = chunk.flatten()
        lengths.append(sizes.to_numpy(zero_copy_only=False).astype(np.int64))
        is_inside.append(tokens.is_valid().to_numpy(zero_copy_only=False))
        values = tokens.drop_null().flatten() if tokens.null_count < len(tokens) else []
        offsets.append(np.asarray(values, dtype=np.int64).reshape(-1, 2))
    if not lengths:
        return np.zeros(0, np.int64), np.zeros(0, bool), np.zeros((0, 2), np.int64)
    return np.concatenate(lengths), np.concatenate(is_inside), np.concatenate(offsets)


def _drop_lesser_contexts(begins: Array, columns: Sequence[Mapping[Any, Any] | None]) -> None:
    """Let no answer start at a token if another feature of the same example has more context around it."""
    for row, is_max_context in enumerate(columns):
        if is_max_context is None:
            continue
        allowed = np.zeros(begins.shape[1], dtype=bool)
        tokens = [int(token) for token, is_best in is_max_context.items() if is_best]
        allowed[[token for token in tokens if token < len(allowed)]] = True
        begins[row, ~allowed] = NOWHERE
