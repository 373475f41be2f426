"""Padding inputs and target sequences, each to a length of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from footplate.batch import IGNORED_LABEL
from footplate.data.collators.default import check_return_tensors
from footplate.data.collators.padding import measure_labels, pad_features, pad_labels, round_up, split_labels


@dataclass
class DataCollatorForSeq2Seq:
    """Pads inputs with the tokenizer, labels apart from them, and asks the model for the decoder's inputs.

    Args:
        tokenizer: Anything with `pad` and `padding_side`.
        model: Makes `decoder_input_ids` where it has `prepare_decoder_input_ids_from_labels`.
        padding: True or "longest" for the longest sample of the batch, "max_length", or False for none.
        max_length: The length that padding="max_length" fills up to.
        pad_to_multiple_of: Round the padded lengths up to a multiple of this.
        label_pad_token_id: What labels are filled with; -100 is what losses ignore.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
    """

    tokenizer: Any
    model: Any = None
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = IGNORED_LABEL
    return_tensors: str = "pt"

    def __call__(self, features: list[dict[str, Any]], return_tensors: str | None = None) -> Any:
        kind = check_return_tensors(self.return_tensors if return_tensors is None else return_tensors)
        _, labels, inputs = split_labels(features)
        batch = pad_features(
            self.tokenizer,
            inputs,
            padding=self.padding,
            max_length=self.max_length,
            pad_to_multiple_of=self.pad_to_multiple_of,
            return_tensors=kind,
        )
        if labels is None or all(row is None for row in labels):
            batch.setdefault("labels", None)  # forward gets labels=None, as a model without targets expects
            return batch
        length = self._label_length(measure_labels(labels))
        padded = pad_labels(labels, length, self.label_pad_token_id, self.tokenizer.padding_side)
        batch["labels"] = torch.from_numpy(padded) if kind == "pt" else padded
        if hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
            batch["decoder_input_ids"] = self.model.prepare_decoder_input_ids_from_labels(
                labels=batch["labels"]
            )
        return batch

    def _label_length(self, lengths: list[int]) -> int:
        """The length that every row of labels gets."""
        longest, are_equal = max(lengths), min(lengths) == max(lengths)
        if self.padding is False or self.padding == "do_not_pad":
            if not are_equal:
                raise ValueError(
                    f"padding=False leaves labels of lengths {sorted(set(lengths))}: set padding=True."
                )
            return longest
        wanted = longest if self.padding != "max_length" or self.max_length is None else self.max_length
        length = round_up(wanted, self.pad_to_multiple_of)
        if longest <= length:
            return length
        if not are_equal:
            raise ValueError(
                f"Labels of lengths {sorted(set(lengths))} do not fit max_length={self.max_length}: truncate "
                "them, raise max_length, or set padding=True."
            )
        return longest
