"""Padding to few widths: each batch as wide as a multiple, never wider than model and tokenizer take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from footplate.data.collators.padding import DataCollatorWithPadding, round_up

WIDTH_OF_COMPILED = 64
UNLIMITED = 10**6  # tokenizers without a limit name a number beyond any text


@dataclass
class PaddingToMultiples(DataCollatorWithPadding):
    """`DataCollatorWithPadding` with a width that rounding up does not exceed.

    Args:
        widest: The greatest width that rounding up may give; None for no limit.
    """

    widest: int | None = None

    def __call__(self, features: list[dict[str, Any]]) -> Any:
        longest = max((_width(row, self.tokenizer.model_input_names) for row in features), default=0)
        if self.widest is None or not longest <= self.widest < round_up(longest, self.pad_to_multiple_of):
            return super().__call__(features)
        to_the_limit = DataCollatorWithPadding(self.tokenizer, "max_length", self.widest)
        return to_the_limit(features)


def _width(row: Any, names: list[str]) -> int:
    """Tokens of a row."""
    name = next((name for name in names if name in row), None)
    return 0 if name is None else len(row[name])


def find_widest(processing_class: Any, config: Any) -> int | None:
    """The greatest length that both tokenizer and model take; None if neither has a limit."""
    limits = (
        getattr(processing_class, "model_max_length", None),
        getattr(config, "max_position_embeddings", None),
    )
    known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < UNLIMITED]
    return min(known, default=None)


def build_padding(
    processing_class: Any, config: Any, multiple: int | None, is_compiled: bool
) -> DataCollatorWithPadding:
    """What pads batches by default: to their longest row, or to a multiple.

    Args:
        processing_class: A tokenizer or feature extractor.
        config: That of the model, if it has one.
        multiple: Asked for by the user.
        is_compiled: Whether torch compiles the model: then few widths are better than many.
    """
    widest = find_widest(processing_class, config)
    # a feature extractor has no pad token, and not every model ignores what it fills in
    if multiple is None and is_compiled and widest and hasattr(processing_class, "pad_token"):
        multiple = WIDTH_OF_COMPILED
    if multiple is None:
        return DataCollatorWithPadding(processing_class)
    return PaddingToMultiples(processing_class, pad_to_multiple_of=multiple, widest=widest)
