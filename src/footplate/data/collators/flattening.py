"""Laying the samples of a batch end to end in one row, without padding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from footplate.batch import IGNORED_LABEL
from footplate.data.collators.default import DefaultDataCollator, check_return_tensors


@dataclass
class DataCollatorWithFlattening(DefaultDataCollator):
    """Joins the samples into one row of shape (1, tokens), for models whose attention knows the borders.

    Args:
        return_tensors: "pt" for PyTorch, "np" for NumPy.
        return_position_ids: Give `position_ids` that start anew with each sample.
        separator_id: The label of each sample's first token, so that no sample predicts the next.
        return_flash_attn_kwargs: Give the borders as FlashAttention wants them.
        return_seq_idx: Give the number of the sample that each token belongs to.
        position_ids_start: The position of each sample's first token (2 for RoBERTa and its kin).
    """

    return_position_ids: bool = field(default=True, kw_only=True)
    separator_id: int = field(default=IGNORED_LABEL, kw_only=True)
    return_flash_attn_kwargs: bool = field(default=False, kw_only=True)
    return_seq_idx: bool = field(default=False, kw_only=True)
    position_ids_start: int = field(default=0, kw_only=True)

    def __call__(
        self, features: list[Any], return_tensors: str | None = None, separator_id: int | None = None
    ) -> dict[str, Any]:
        kind = check_return_tensors(self.return_tensors if return_tensors is None else return_tensors)
        inputs = _rows(features, "input_ids")
        targets = _rows(features, "labels") if "labels" in features[0] else inputs
        lengths = [len(row) for row in inputs]
        starts = np.cumsum([0, *lengths])
        label_lengths = [len(row) for row in targets]
        if lengths != label_lengths:
            raise ValueError(
                f"input_ids have lengths {lengths} but labels {label_lengths}: each token needs one label."
            )
        labels = np.concatenate(targets)
        # an empty sample has no first token to mark
        first_tokens = [start for start, length in zip(starts, lengths, strict=False) if length]
        labels[first_tokens] = self.separator_id if separator_id is None else separator_id

        batch: dict[str, Any] = {"input_ids": np.concatenate(inputs)[None], "labels": labels[None]}
        if self.return_position_ids:
            positions = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths) + self.position_ids_start
            batch["position_ids"] = positions.astype(np.int64)[None]
        if self.return_seq_idx:
            batch["seq_idx"] = np.repeat(np.arange(len(inputs), dtype=np.int32), lengths)[None]
        if self.return_flash_attn_kwargs:
            batch["cu_seq_lens_q"] = starts.astype(np.int32)
            batch["cu_seq_lens_k"] = starts.astype(np.int32)
        if kind == "pt":
            batch = {name: torch.from_numpy(array) for name, array in batch.items()}
        if self.return_flash_attn_kwargs:
            batch["max_length_q"] = batch["max_length_k"] = max(lengths)  # plain integers: no host sync
        return batch


def _rows(features: list[Any], name: str) -> list[NDArray[np.int64]]:
    """One column of all samples, each as a row of integers."""
    missing = [number for number, sample in enumerate(features) if name not in sample]
    if missing:
        number = missing[0]
        raise ValueError(f"Sample {number} has no {name!r}; its columns are {sorted(features[number])}.")
    rows = [sample[name] for sample in features]
    return [np.array(row.tolist() if isinstance(row, torch.Tensor) else row, dtype=np.int64) for row in rows]
