"""Batches for masked and causal language modeling, with random masking of tokens or of whole words."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from footplate.batch import IGNORED_LABEL
from footplate.data.collators.default import DataCollatorMixin
from footplate.data.collators.padding import fill_rows, pad_features, stack_sequences

logger = logging.getLogger(__name__)


@dataclass
class DataCollatorForLanguageModeling(DataCollatorMixin):
    """Pads token sequences and makes the labels: masked tokens for `mlm`, the inputs themselves without it.

    Args:
        tokenizer: Anything with `pad`, `mask_token`, `pad_token_id` and `get_special_tokens_mask`.
        mlm: Mask tokens and predict them; False predicts each next token.
        whole_word_mask: Mask all tokens of a word or none. Words are found by `offset_mapping`, or by "##".
        mlm_probability: Share of tokens (or words) to predict.
        mask_replace_prob: Share of those that the mask token replaces.
        random_replace_prob: Share of those that a random token replaces; the rest stay as they are.
        pad_to_multiple_of: Round the padded length up to a multiple of this.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
        seed: Mask with a generator of its own instead of the global one.
    """

    tokenizer: Any
    mlm: bool = True
    whole_word_mask: bool = False
    mlm_probability: float | None = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"
    seed: int | None = None

    def __post_init__(self) -> None:
        self._check_settings()
        if self.whole_word_mask:
            if (self.mask_replace_prob, self.random_replace_prob) not in [(0.8, 0.1), (1, 0)]:
                logger.warning(
                    "Whole words are always replaced by the mask token: mask_replace_prob is set to 1."
                )
            self.mask_replace_prob, self.random_replace_prob = 1.0, 0.0
        if self.mlm:
            assert self.mlm_probability is not None
            self.mlm_probability = float(self.mlm_probability)
        self.mask_replace_prob = float(self.mask_replace_prob)
        self.random_replace_prob = float(self.random_replace_prob)
        self.generator: Any = None

    def torch_call(self, examples: list[Any]) -> Any:
        """The batch as PyTorch tensors."""
        return self._collate(examples, "pt")

    def numpy_call(self, examples: list[Any]) -> Any:
        """The batch as NumPy arrays."""
        return self._collate(examples, "np")

    def get_generator(self, seed: int, return_tensors: str | None = None) -> Any:
        """A generator of the kind that masking draws from."""
        kind = self.return_tensors if return_tensors is None else return_tensors
        return torch.Generator().manual_seed(seed) if kind == "pt" else np.random.default_rng(seed)

    def create_rng(self, return_tensors: str | None = None) -> None:
        """Set `generator` from `seed`; loader workers add their number, or all would mask alike."""
        assert self.seed is not None
        worker = get_worker_info()
        self.generator = self.get_generator(self.seed + (worker.id if worker else 0), return_tensors)

    def torch_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any | None = None, offset_mapping: Any | None = None
    ) -> tuple[Any, Any]:
        """Mask `inputs` in place and give them back with their labels."""
        labels = inputs.clone()
        kept, words = self._find_maskable(labels, special_tokens_mask, offset_mapping)
        assert self.mlm_probability is not None
        # a seeded run repeats only as long as these draws keep their order and shapes
        probabilities = torch.full(labels.shape, self.mlm_probability)
        is_masked = self._draw_tensor(probabilities.masked_fill_(torch.from_numpy(kept), 0.0))
        if words is not None:
            is_masked = torch.from_numpy(words.spread(is_masked.numpy()))
        labels.masked_fill_(~is_masked, IGNORED_LABEL)

        is_replaced = self._draw_tensor(torch.full(labels.shape, self.mask_replace_prob)) & is_masked
        inputs.masked_fill_(is_replaced, self.tokenizer.mask_token_id)
        if self.mask_replace_prob == 1 or self.random_replace_prob == 0:
            return inputs, labels

        is_random = (
            self._draw_tensor(torch.full(labels.shape, self._random_share())) & is_masked & ~is_replaced
        )
        tokens = torch.randint(len(self.tokenizer), labels.shape, dtype=torch.long, generator=self.generator)
        inputs[is_random] = tokens[is_random].to(inputs.dtype)
        return inputs, labels

    def numpy_mask_tokens(
        self, inputs: Any, special_tokens_mask: Any | None = None, offset_mapping: Any | None = None
    ) -> tuple[Any, Any]:
        """Mask `inputs` in place and give them back with their labels."""
        labels = np.copy(inputs)
        kept, words = self._find_maskable(labels, special_tokens_mask, offset_mapping)
        probabilities = np.full(labels.shape, self.mlm_probability)
        probabilities[kept] = 0
        is_masked = self._draw_array(probabilities, labels.shape)
        if words is not None:
            is_masked = words.spread(is_masked)
        labels[~is_masked] = IGNORED_LABEL

        is_replaced = self._draw_array(self.mask_replace_prob, labels.shape) & is_masked
        inputs[is_replaced] = self.tokenizer.mask_token_id
        if self.mask_replace_prob == 1 or self.random_replace_prob == 0:
            return inputs, labels

        is_random = self._draw_array(self._random_share(), labels.shape) & is_masked & ~is_replaced
        draw = np.random.randint if self.generator is None else self.generator.integers
        inputs[is_random] = draw(0, len(self.tokenizer), size=np.count_nonzero(is_random), dtype=np.int64)
        return inputs, labels

    def _collate(self, examples: list[Any], kind: str) -> Any:
        """Pad, then make the labels."""
        if self.seed is not None and self.generator is None:
            self.create_rng(kind)
        if not examples:
            raise ValueError("There is nothing to collate: the batch has no samples.")
        offsets = None
        if isinstance(examples[0], Mapping):
            examples, offsets = _split_offsets(examples)
            batch = pad_features(
                self.tokenizer, examples, pad_to_multiple_of=self.pad_to_multiple_of, return_tensors=kind
            )
        else:
            batch = {"input_ids": stack_sequences(examples, self.tokenizer, kind, self.pad_to_multiple_of)}
        special_tokens_mask = batch.pop("special_tokens_mask", None)
        if not self.mlm:
            batch["labels"] = self._causal_labels(batch["input_ids"])
            return batch
        mask_tokens = self.torch_mask_tokens if kind == "pt" else self.numpy_mask_tokens
        # an override from before whole-word masking does not know the third parameter
        extra = {"offset_mapping": self._pad_offsets(offsets, batch)} if self.whole_word_mask else {}
        batch["input_ids"], batch["labels"] = mask_tokens(
            batch["input_ids"], special_tokens_mask=special_tokens_mask, **extra
        )
        return batch

    def _causal_labels(self, inputs: Any) -> Any:
        """The inputs themselves, with padding left out of the loss."""
        labels = inputs.clone() if isinstance(inputs, torch.Tensor) else np.copy(inputs)
        if self.tokenizer.pad_token_id is not None:
            labels[labels == self.tokenizer.pad_token_id] = IGNORED_LABEL
        return labels

    def _pad_offsets(self, offsets: list[Any] | None, batch: Any) -> NDArray[np.int64] | None:
        """Character spans at the length of the batch; `tokenizer.pad` leaves them ragged."""
        if offsets is None:
            return None
        padded = np.zeros((*batch["input_ids"].shape, 2), dtype=np.int64)
        fill_rows(padded, [np.asarray(row) for row in offsets], self.tokenizer.padding_side)
        return padded

    def _find_maskable(
        self, labels: Any, special_tokens_mask: Any | None, offset_mapping: Any | None
    ) -> tuple[NDArray[np.bool_], _Words | None]:
        """Where no mask may be drawn, and the words that a drawn mask spreads over."""
        rows = labels.tolist()
        if special_tokens_mask is None:
            special_tokens_mask = [
                self.tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in rows
            ]
        is_special = np.asarray(special_tokens_mask).astype(bool)
        if not self.whole_word_mask:
            return is_special, None
        if offset_mapping is None:
            continues = self._find_continuations(rows)
        else:
            offsets = np.asarray(offset_mapping)
            continues = np.zeros(is_special.shape, dtype=bool)
            continues[:, 1:] = offsets[:, 1:, 0] == offsets[:, :-1, 1]
        words = _Words(is_special, continues)
        return ~words.is_start, words

    def _find_continuations(self, rows: list[list[int]]) -> NDArray[np.bool_]:
        """Which tokens go on with the word before them, by the "##" of a WordPiece vocabulary."""
        continues = np.array(
            [[token.startswith("##") for token in self.tokenizer.convert_ids_to_tokens(row)] for row in rows]
        )
        if not continues.any() and not any(token.startswith("##") for token in self.tokenizer.get_vocab()):
            raise ValueError(
                "whole_word_mask=True cannot tell where words begin: samples have no 'offset_mapping' and "
                "the vocabulary has no '##' pieces. Tokenize with return_offsets_mapping=True, and set "
                "remove_unused_columns=False so that the column reaches the collator."
            )
        return continues

    def _draw_tensor(self, probabilities: torch.Tensor) -> torch.Tensor:
        """True with these probabilities."""
        return torch.bernoulli(probabilities, generator=self.generator).bool()

    def _draw_array(self, probabilities: Any, shape: tuple[int, ...]) -> Any:
        """True with these probabilities."""
        source = np.random if self.generator is None else self.generator
        return source.binomial(1, probabilities, size=shape).astype(bool)

    def _random_share(self) -> float:
        """The share of random tokens among those that the mask token did not replace."""
        return self.random_replace_prob / (1 - self.mask_replace_prob)

    def _check_settings(self) -> None:
        """Raise on settings that cannot mask."""
        if isinstance(self.whole_word_mask, float):  # where mlm_probability stood among the positions of 4.x
            raise ValueError(
                f"whole_word_mask={self.whole_word_mask} is not True or False: "
                f"write mlm_probability={self.whole_word_mask} if that was meant."
            )
        if self.mlm and self.tokenizer.mask_token is None:
            raise ValueError(
                f"mlm=True needs a mask token and {type(self.tokenizer).__name__} has none. Set mlm=False to "
                "predict next tokens, or add one: tokenizer.add_special_tokens({'mask_token': '[MASK]'})."
            )
        if self.whole_word_mask and not self.mlm:
            raise ValueError("whole_word_mask=True masks tokens, which mlm=False rules out: set mlm=True.")
        names = ["mask_replace_prob", "random_replace_prob", *(["mlm_probability"] if self.mlm else [])]
        for name in names:
            value = getattr(self, name)
            if value is None or not 0 <= value <= 1:
                raise ValueError(f"{name}={value!r} is not a probability: give a number from 0 to 1.")
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise ValueError(
                f"mask_replace_prob={self.mask_replace_prob} plus random_replace_prob="
                f"{self.random_replace_prob} is above 1; they are shares of the same tokens."
            )


@dataclass
class DataCollatorForWholeWordMask(DataCollatorForLanguageModeling):
    """`DataCollatorForLanguageModeling` with `whole_word_mask=True`, under its older name."""

    whole_word_mask: bool = True


class _Words:
    """The words of a batch: where each begins, and which tokens belong to it."""

    def __init__(self, is_special: NDArray[np.bool_], continues: NDArray[np.bool_]) -> None:
        follows_special = np.ones_like(is_special)
        follows_special[:, 1:] = is_special[:, :-1]
        self.is_start: NDArray[np.bool_] = ~is_special & (follows_special | ~continues)
        starts = np.where(self.is_start, np.arange(is_special.shape[1]), 0)
        self._start_of_token = np.maximum.accumulate(starts, axis=1)
        self._is_special = is_special

    def spread(self, is_masked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Give every token of a word what its first token drew."""
        spread: NDArray[np.bool_] = (
            np.take_along_axis(is_masked, self._start_of_token, axis=1) & ~self._is_special
        )
        return spread


def _split_offsets(examples: list[Any]) -> tuple[list[Any], list[Any] | None]:
    """The samples without their character spans, and the spans."""
    if "offset_mapping" not in examples[0]:
        return examples, None
    offsets = [example["offset_mapping"] for example in examples]
    return [{name: value for name, value in e.items() if name != "offset_mapping"} for e in examples], offsets
