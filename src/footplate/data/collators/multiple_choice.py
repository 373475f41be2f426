"""Padding samples that hold several choices each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from footplate.data.collators.default import DataCollatorMixin
from footplate.data.collators.padding import pad_features, split_labels


@dataclass
class DataCollatorForMultipleChoice(DataCollatorMixin):
    """Pads every choice of every sample to one length and gives back (sample, choice, token).

    Args:
        tokenizer: Anything with a `pad` method.
        padding: True or "longest" for the longest choice of the batch, "max_length", or False for none.
        max_length: The length that padding="max_length" fills up to.
        pad_to_multiple_of: Round the padded length up to a multiple of this.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def torch_call(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch as PyTorch tensors."""
        return self._collate(features, "pt")

    def numpy_call(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch as NumPy arrays."""
        return self._collate(features, "np")

    def _collate(self, features: list[dict[str, Any]], kind: str) -> dict[str, Any]:
        """Lay the choices side by side, pad them as one batch, fold them back."""
        _, labels, samples = split_labels(features)
        num_choices = _count_choices(samples)
        padded = pad_features(
            self.tokenizer,
            [
                {name: values[i] for name, values in sample.items()}
                for sample in samples
                for i in range(num_choices)
            ],
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=kind,
        )
        batch = {name: values.reshape(len(samples), num_choices, -1) for name, values in padded.items()}
        if labels is not None:
            as_array = np.array(labels, dtype=np.int64)
            batch["labels"] = torch.from_numpy(as_array) if kind == "pt" else as_array
        return batch


def _count_choices(samples: list[dict[str, Any]]) -> int:
    """How many choices each sample has, which must be the same for all and for each column."""
    if "input_ids" not in samples[0]:
        raise ValueError(f"The samples have no 'input_ids'; their columns are {sorted(samples[0])}.")
    num_choices = len(samples[0]["input_ids"])
    for number, sample in enumerate(samples):
        for name, values in sample.items():
            if not hasattr(values, "__len__") or len(values) != num_choices:
                raise ValueError(
                    f"Column {name!r} of sample {number} does not hold {num_choices} choices like sample 0: "
                    "every sample needs the same number of choices, every column one entry per choice."
                )
    return num_choices
