"""Padding inputs together with one label per token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from footplate.batch import IGNORED_LABEL
from footplate.data.collators.default import DataCollatorMixin
from footplate.data.collators.padding import measure_labels, pad_features, pad_labels, split_labels


@dataclass
class DataCollatorForTokenClassification(DataCollatorMixin):
    """Pads inputs with the tokenizer and labels to the same length.

    Args:
        tokenizer: Anything with `pad` and `padding_side`.
        padding: True or "longest" for the longest sample of the batch, "max_length", or False for none.
        max_length: The length that padding="max_length" fills up to.
        pad_to_multiple_of: Round the padded length up to a multiple of this.
        label_pad_token_id: What labels are filled with; -100 is what losses ignore.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = IGNORED_LABEL
    return_tensors: str = "pt"

    def torch_call(self, features: list[dict[str, Any]]) -> Any:
        """The batch as PyTorch tensors."""
        return self._collate(features, "pt")

    def numpy_call(self, features: list[dict[str, Any]]) -> Any:
        """The batch as NumPy arrays."""
        return self._collate(features, "np")

    def _collate(self, features: list[dict[str, Any]], kind: str) -> Any:
        """Inputs through the tokenizer, labels beside it."""
        label_name, labels, inputs = split_labels(features)
        batch = pad_features(
            self.tokenizer,
            inputs,
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=kind,
        )
        if labels is None:
            return batch
        length = batch["input_ids"].shape[1]
        for number, num_labels in enumerate(measure_labels(labels)):
            if num_labels > length:
                raise ValueError(
                    f"Sample {number} has {num_labels} labels for at most {length} tokens: truncate labels "
                    "together with input_ids, and align them to the tokens after tokenization."
                )
        padded = pad_labels(labels, length, self.label_pad_token_id, self.tokenizer.padding_side)
        batch[label_name] = torch.from_numpy(padded) if kind == "pt" else padded
        return batch
