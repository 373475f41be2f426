"""Padding the samples of a batch to one length with whatever tokenizer or feature extractor made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from footplate.data.collators.default import check_no_missing, describe_problem

_FAST_TOKENIZER_NOTICE = "Asking-to-pad-a-fast-tokenizer"
_ALWAYS_PADDED = frozenset({"input_ids", "attention_mask", "token_type_ids", "special_tokens_mask"})


@dataclass
class DataCollatorWithPadding:
    """Pads each batch with `tokenizer.pad`; `label` and `label_ids` become `labels`.

    Args:
        tokenizer: Anything with a `pad` method: a tokenizer or a feature extractor.
        padding: True or "longest" for the longest sample of the batch, "max_length", or False for none.
        max_length: The length that padding="max_length" fills up to.
        pad_to_multiple_of: Round the padded length up to a multiple of this.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def __call__(self, features: list[dict[str, Any]]) -> Any:
        batch = pad_features(
            self.tokenizer,
            features,
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=self.return_tensors,
        )
        for name in ("label", "label_ids"):
            if name in batch:
                batch["labels"] = batch.pop(name)
        return batch


def pad_features(
    tokenizer: Any, features: Sequence[Any], *, padding: bool | str = True, **options: Any
) -> Any:
    """The batch that `tokenizer.pad` makes, or an error that says what stood in its way."""
    if not features:
        raise ValueError("There is nothing to collate: the batch has no samples.")
    try:
        with quiet_about_padding(tokenizer):
            return tokenizer.pad(features, padding=padding, **options)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        check_no_missing(features, error)
        problem = _explain_failed_padding(tokenizer, features, padding)
        if problem is None:
            raise
        raise ValueError(problem) from error


def stack_sequences(
    sequences: Sequence[Any], tokenizer: Any, return_tensors: str, pad_to_multiple_of: int | None = None
) -> Any:
    """Bare token sequences as one batch, filled with the pad token where their lengths differ."""
    rows: list[Any] = [_as_row(sequence, return_tensors) for sequence in sequences]
    lengths = [len(row) for row in rows]
    length = round_up(max(lengths), pad_to_multiple_of)
    if min(lengths) == length:
        return torch.stack(rows) if return_tensors == "pt" else np.stack(rows)
    check_pad_token(tokenizer)
    shape = (len(rows), length)
    if return_tensors == "pt":
        batch: Any = rows[0].new_full(shape, tokenizer.pad_token_id)
    else:
        batch = np.full(shape, tokenizer.pad_token_id, dtype=rows[0].dtype)
    return fill_rows(batch, rows, tokenizer.padding_side)


def fill_rows(batch: Any, rows: Sequence[Any], padding_side: str) -> Any:
    """Write each row into its place in the batch, leaving what is there on the side that is padded."""
    length = batch.shape[1]
    for number, row in enumerate(rows):
        start = 0 if padding_side == "right" else length - len(row)
        batch[number, start : start + len(row)] = row
    return batch


def split_labels(features: Sequence[Mapping[str, Any]]) -> tuple[str, list[Any] | None, list[dict[str, Any]]]:
    """The name of the label column, its values (None where it is missing) and the features without it."""
    name = "label" if "label" in features[0] else "labels"
    rest = [{key: value for key, value in sample.items() if key != name} for sample in features]
    if name not in features[0]:
        return name, None, rest
    missing = [number for number, sample in enumerate(features) if name not in sample]
    if missing:
        raise ValueError(
            f"Sample {missing[0]} has no {name!r} though sample 0 has: give labels to all or to none."
        )
    return name, [sample[name] for sample in features], rest


def pad_labels(labels: Sequence[Any], length: int, fill: int, padding_side: str) -> NDArray[np.int64]:
    """Rows of labels as one integer array of this length, filled on the side the tokenizer pads."""
    rows = [row.tolist() if isinstance(row, torch.Tensor) else row for row in labels]
    if all(len(row) == length for row in rows):
        return np.array(rows, dtype=np.int64)
    batch: NDArray[np.int64] = np.full((len(rows), length), fill, dtype=np.int64)
    fill_rows(batch, rows, padding_side)
    return batch


def measure_labels(labels: Sequence[Any]) -> list[int]:
    """The length of each row of labels, or an error where a row is not a sequence."""
    for number, row in enumerate(labels):
        if not hasattr(row, "__len__") or isinstance(row, str) or getattr(row, "ndim", 1) == 0:
            raise ValueError(
                f"The labels of sample {number} are {row!r}, not a sequence. This collator wants one label "
                "per token; for one label per sample use DataCollatorWithPadding."
            )
    return [len(row) for row in labels]


def round_up(length: int, multiple: int | None) -> int:
    """The smallest multiple that is not below `length`."""
    return length if multiple is None else -(-length // multiple) * multiple


def check_pad_token(tokenizer: Any) -> None:
    """Raise where the tokenizer has nothing to pad with."""
    if tokenizer.pad_token is None:
        raise ValueError(
            f"The batch needs padding but {type(tokenizer).__name__} has no pad token. Set one, for example "
            "tokenizer.pad_token = tokenizer.eos_token, or make all samples equally long."
        )


@contextmanager
def quiet_about_padding(tokenizer: Any) -> Iterator[None]:
    """Hold back the advice to call the tokenizer instead of `pad`, which a collator cannot follow."""
    notices = getattr(tokenizer, "deprecation_warnings", None)
    if notices is None:
        yield
        return
    was_given = notices.get(_FAST_TOKENIZER_NOTICE, False)
    notices[_FAST_TOKENIZER_NOTICE] = True
    try:
        yield
    finally:
        notices[_FAST_TOKENIZER_NOTICE] = was_given  # the user's own calls still get the advice


def _explain_failed_padding(tokenizer: Any, features: Sequence[Any], padding: bool | str) -> str | None:
    """Why `tokenizer.pad` failed on these samples, as far as can be seen from outside."""
    if not isinstance(features[0], Mapping):
        return (
            f"The samples are of type {type(features[0]).__name__}; padding needs dictionaries such as a "
            "tokenizer returns. Change the dataset or pass another data_collator."
        )
    inputs = getattr(tokenizer, "model_input_names", None) or ["input_ids"]
    if inputs[0] not in features[0]:
        return (
            f"The samples have no {inputs[0]!r}, which is what gets padded, only {sorted(features[0])}. "
            "Tokenize the dataset, and if the column was dropped as unused, set remove_unused_columns=False."
        )
    is_off = padding is False or padding == "do_not_pad"
    if not is_off and getattr(tokenizer, "pad_token", "") is None:
        check_pad_token(tokenizer)
    problem = describe_problem(features, frozenset() if is_off else _ALWAYS_PADDED.union(inputs))
    if problem is None:
        return None
    advice = "Set padding=True." if is_off else "tokenizer.pad fills the model's inputs only."
    return f"{problem} {advice} Drop the column, or use a data_collator that knows it."


def _as_row(sequence: Any, return_tensors: str) -> Any:
    """A token sequence as a tensor or array; what is one already keeps its dtype, lists become int64."""
    if return_tensors == "pt":
        return sequence if isinstance(sequence, torch.Tensor) else torch.tensor(sequence, dtype=torch.long)
    return np.array(sequence, dtype=np.int64) if isinstance(sequence, (list, tuple)) else np.asarray(sequence)
