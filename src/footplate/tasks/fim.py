"""Learn to write what is missing in the middle of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from footplate import HfArg
from footplate.tasks import Batch, ModelFlags, Row, TaskError
from footplate.tasks.common.blocks import BlockFlags, NextToken
from footplate.tasks.common.writing import write_on

GAP = "<FILL_ME>"  # where the middle is missing in a text to complete


@dataclass
class MiddleFlags(BlockFlags):
    """How often a middle is cut out, and which tokens stand between the parts."""

    fim_rate: float = HfArg(default=0.5, help="Share of the texts that are taken apart.")
    fim_spm_rate: float = HfArg(default=0.5, help="Share of those whose suffix comes before their prefix.")
    truncate_or_pad: bool = HfArg(default=True, help="Keep the length of a text: shorten its suffix.")
    fim_prefix_token: str = HfArg(default="<fim_prefix>", help="Stands before the prefix.")
    fim_middle_token: str = HfArg(default="<fim_middle>", help="Stands before the middle.")
    fim_suffix_token: str = HfArg(default="<fim_suffix>", help="Stands before the suffix.")
    pad_token: str = HfArg(default="<fim_pad>", help="Fills up a text.")


@dataclass
class WideFlags(ModelFlags):
    """What the original's script adds to a model."""

    attn_implementation: str | None = HfArg(default="sdpa", help="Attention to use: eager, sdpa, ...")
    pad_to_multiple_of: bool = HfArg(
        default=False, help="Make the number of embeddings a multiple of 8 where there is a GPU."
    )


class FillInTheMiddle(NextToken):
    """Texts are taken apart and put together with the middle last; then each token predicts the next."""

    summary = "Learn to write what is missing in the middle of a text."
    example = (
        "--model_name_or_path MODEL --train_file train.txt --validation_file dev.txt "
        "--block_size 512 --fim_rate 0.5 --do_train --do_eval --output_dir out"
    )
    data_flags = MiddleFlags
    model_flags = WideFlags
    first_flags = ("block_size", "fim_rate", "fim_spm_rate")
    ordered_stages = ("rearrange", "group")
    data: MiddleFlags
    start: WideFlags

    draws: np.random.RandomState

    def adjust(self, model: Any) -> Any:
        """Give tokenizer and model the tokens that stand between the parts."""
        data, old_size = self.data, len(self.processor)
        names = [data.fim_prefix_token, data.fim_middle_token, data.fim_suffix_token]
        self.processor.add_tokens([*names, *([data.pad_token] if data.truncate_or_pad else [])])
        has_room = self.start.pad_to_multiple_of and torch.cuda.is_available()
        known = model.get_input_embeddings().weight.detach().clone()
        model.resize_token_embeddings(len(self.processor), pad_to_multiple_of=8 if has_room else 1)
        weight = model.get_input_embeddings().weight.data
        weight[old_size : len(self.processor)] = draw_like(known, len(self.processor) - old_size)
        return super().adjust(model)

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Tokens on all cores; then texts are taken apart in order, and blocks are cut in order."""
        # each split has draws of its own: they must not depend on what was prepared before, or kept
        self.draws = np.random.RandomState(self.args.seed)
        return [self.features, self.rearrange, self.group]

    def rearrange(self, rows: Batch) -> Batch:
        """Some of the texts with their middle last."""
        made = [self.move_middle(tokens) for tokens in rows["input_ids"]]
        return {"input_ids": made, "attention_mask": [[1] * len(tokens) for tokens in made]}

    def move_middle(self, tokens: list[int]) -> list[int]:
        """A text with its middle last, or as it is."""
        data, draws = self.data, self.draws
        if not draws.binomial(1, data.fim_rate):
            return tokens
        start, end = sorted(draws.randint(low=0, high=len(tokens) + 1, size=2))
        before, middle, after = tokens[:start], tokens[start:end], tokens[end:]
        if data.truncate_or_pad:
            after = after[: max(0, len(after) - 3)]  # room for the three tokens
        prefix, suffix, mark = self.processor.convert_tokens_to_ids(
            [data.fim_prefix_token, data.fim_suffix_token, data.fim_middle_token]
        )
        if draws.binomial(1, data.fim_spm_rate):
            return [prefix, suffix, *after, mark, *before, *middle]
        return [prefix, *before, suffix, *after, mark, *middle]

    def reply(self, model: Any, rows: Any) -> list[Row]:
        """What is missing in each text."""
        return [{"middle": self.fill_in(model, text)} for text in rows[self.column]]

    def fill_in(self, model: Any, text: str) -> str:
        """The middle between what stands before the gap and what stands after it."""
        if text.count(GAP) != 1:
            raise TaskError(f"{text[:60]!r}: write {GAP} once, where the middle is missing.")
        data, tokenizer = self.data, self.processor
        before, after = tokenizer(text.split(GAP), add_special_tokens=False)["input_ids"]
        marks = [data.fim_prefix_token, data.fim_suffix_token, data.fim_middle_token, data.pad_token]
        prefix, suffix, middle, filler = tokenizer.convert_tokens_to_ids(marks)
        tokens = [prefix, *before, suffix, *after, middle]
        ends = [prefix, suffix, *([filler] if data.truncate_or_pad else [])]
        return write_on(model, tokenizer, tokens, data.max_new_tokens, ends)


def draw_like(known: torch.Tensor, count: int) -> torch.Tensor:
    """New embeddings close to the mean of those that are known, spread as they are.

    Args:
        known: One row for each known token.
        count: How many to draw.
    """
    mean = known.mean(dim=0)
    apart = known - mean
    try:
        spread = torch.distributions.MultivariateNormal(
            mean, covariance_matrix=1e-5 * (apart.T @ apart) / len(known)
        )
        return torch.stack([spread.sample() for _ in range(count)]) if count else known[:0]
    except ValueError:  # fewer tokens than dimensions
        return mean.expand(count, -1)
