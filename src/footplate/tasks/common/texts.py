"""Texts as tokens of a length: flags, and how rows are padded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from footplate import DataCollatorWithPadding, HfArg, TrainingArguments, default_data_collator
from footplate.tasks.common.flags import DataFlags


@dataclass
class TextFlags(DataFlags):
    """How texts become tokens."""

    max_seq_length: int = HfArg(default=128, help="Tokens of a row; what is longer is cut off.")
    pad_to_max_length: bool = HfArg(
        default=True, help="Pad every row to that length; otherwise to the longest row of its batch."
    )


def pad_texts(tokenizer: Any, is_padded: bool, args: TrainingArguments) -> Any:
    """A collator that pads to the longest row of a batch, where rows are not padded already."""
    if is_padded:
        return default_data_collator
    return DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8 if args.fp16 else None)
