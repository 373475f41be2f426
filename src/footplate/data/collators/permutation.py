"""Batches for permutation language modeling: spans to predict, and who may look at whom while doing so."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from footplate.batch import IGNORED_LABEL
from footplate.data.collators.default import DataCollatorMixin
from footplate.data.collators.padding import stack_sequences


@dataclass
class DataCollatorForPermutationLanguageModeling(DataCollatorMixin):
    """Masks spans of tokens and makes `perm_mask` and `target_mapping` as XLNet takes them.

    Args:
        tokenizer: Anything with `mask_token`, `pad_token` and `get_special_tokens_mask`.
        plm_probability: Length of a span as a share of the stretch it is drawn from.
        max_span_length: Longest span to mask.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
    """

    tokenizer: Any
    plm_probability: float = 1 / 6
    max_span_length: int = 5
    return_tensors: str = "pt"

    def __post_init__(self) -> None:
        if self.tokenizer.mask_token is None:
            raise ValueError(
                f"Permutation needs a mask token and {type(self.tokenizer).__name__} has none. "
                "Add one: tokenizer.add_special_tokens({'mask_token': '<mask>'})."
            )
        if not 0 < self.plm_probability <= 1:
            raise ValueError(f"plm_probability={self.plm_probability!r} must be above 0 and at most 1.")
        if self.max_span_length < 1:
            raise ValueError(f"max_span_length={self.max_span_length!r} must be at least 1.")

    def torch_call(self, examples: list[Any]) -> dict[str, Any]:
        """The batch as PyTorch tensors."""
        return _name_parts(
            self.torch_mask_tokens(stack_sequences(_input_ids(examples), self.tokenizer, "pt"))
        )

    def numpy_call(self, examples: list[Any]) -> dict[str, Any]:
        """The batch as NumPy arrays."""
        return _name_parts(
            self.numpy_mask_tokens(stack_sequences(_input_ids(examples), self.tokenizer, "np"))
        )

    def torch_mask_tokens(self, inputs: Any) -> tuple[Any, Any, Any, Any]:
        """Mask `inputs` in place; give them back with `perm_mask`, `target_mapping` and labels."""
        parts = self._mask(
            inputs.numpy(),
            draw_span=lambda: int(torch.randint(1, self.max_span_length + 1, (1,))),
            draw_offset=lambda slack: int(torch.randint(slack + 1, (1,))),
            draw_order=lambda half: torch.randperm(half).numpy(),
        )
        return tuple(map(torch.from_numpy, parts))  # type: ignore[return-value]

    def numpy_mask_tokens(self, inputs: Any) -> tuple[Any, Any, Any, Any]:
        """Mask `inputs` in place; give them back with `perm_mask`, `target_mapping` and labels."""
        # random.randint includes its upper end: spans may be one longer here, which seeded runs rely on
        return self._mask(
            inputs,
            draw_span=lambda: random.randint(1, self.max_span_length + 1),
            draw_offset=lambda slack: random.randint(0, slack + 1),
            draw_order=_shuffled,
        )

    def _mask(
        self,
        inputs: NDArray[Any],
        draw_span: Callable[[], int],
        draw_offset: Callable[[int], int],
        draw_order: Callable[[int], NDArray[np.int64]],
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Choose spans, then an order of prediction for each row; callers differ in what they draw from."""
        num_rows, length = inputs.shape
        if length % 2:
            raise ValueError(
                f"The batch is {length} tokens long; permutation needs an even length, or the halves of a "
                "row would see each other. Truncate or pad the samples to an even length."
            )
        labels = inputs.copy()
        is_functional = self._find_functional(labels)
        is_masked = np.zeros(labels.shape, dtype=bool)
        for row in is_masked:
            self._mark_spans(row, draw_span, draw_offset)
        is_masked &= ~is_functional
        inputs[is_masked] = self.tokenizer.mask_token_id
        labels[~is_masked] = IGNORED_LABEL

        half = length // 2
        orders = np.array([draw_order(half) for _ in range(num_rows)]).reshape(num_rows, half)
        # both halves follow one order and never mix: the first is what the next segment reuses as memory
        rank = np.concatenate([orders, orders + half], axis=1)
        rank[
            ~is_masked & ~is_functional
        ] = -1  # plain tokens come first: all see them, they see no masked one
        perm_mask = (rank[:, :, None] <= rank[:, None, :]) & is_masked[:, None, :]
        target_mapping = np.tile(np.eye(length, dtype=np.float32), (num_rows, 1, 1))
        return (
            inputs.astype(np.int64, copy=False),
            perm_mask.astype(np.float32),
            target_mapping,
            labels.astype(np.int64, copy=False),
        )

    def _mark_spans(
        self, row: NDArray[np.bool_], draw_span: Callable[[], int], draw_offset: Callable[[int], int]
    ) -> None:
        """Mark one span in each stretch of a row, until the row ends."""
        position = 0
        while position < len(row):
            span = draw_span()
            stretch = int(span / self.plm_probability)
            start = position + draw_offset(stretch - span)
            row[start : start + span] = True
            position += stretch

    def _find_functional(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Where special tokens and padding stand, which are never predicted."""
        special = [
            self.tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True)
            for row in labels.tolist()
        ]
        is_functional = np.array(special, dtype=bool)
        if self.tokenizer.pad_token is not None:
            is_functional |= labels == self.tokenizer.pad_token_id
        return is_functional


def _input_ids(examples: list[Any]) -> list[Any]:
    """The token sequences of samples that may be mappings or bare sequences."""
    if not examples:
        raise ValueError("There is nothing to collate: the batch has no samples.")
    if not isinstance(examples[0], Mapping):
        return examples
    for number, example in enumerate(examples):
        if "input_ids" not in example:
            raise ValueError(f"Sample {number} has no 'input_ids'; its columns are {sorted(example)}.")
    return [example["input_ids"] for example in examples]


def _name_parts(parts: tuple[Any, Any, Any, Any]) -> dict[str, Any]:
    """The batch under the names that the model takes."""
    return dict(zip(("input_ids", "perm_mask", "target_mapping", "labels"), parts, strict=True))


def _shuffled(half: int) -> NDArray[np.int64]:
    """The numbers below `half` in an order drawn from NumPy's global generator."""
    order = np.arange(half, dtype=np.int64)
    np.random.shuffle(order)
    return order
