"""Batches by tokens: as many rows of near-equal length as fit a budget that counts padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from footplate.data.order import SampleOrder

# Lengths up to this factor apart count as the same: such rows are shuffled among each other in each epoch,
# or every epoch would have the same batches. That costs one or two percent of padding.
LENGTH_STEP = 1.1


class TokenBudgetOrder(SampleOrder):
    """Every sample once per epoch, in shuffled batches of near-equal length that fit a budget of tokens.

    A batch has as many rows as fit, each counted as long as the longest. One that is longer than the budget
    is a batch by itself. Every epoch has the same number of batches, and the longest one first.

    Args:
        lengths: The length of each sample.
        max_tokens: The budget of a micro-batch of one process.
        seed: Epoch `e` draws from a generator seeded with `seed + e`.
        num_ranks: How many processes get a batch of near-equal length at the same time.
    """

    depends_on = ("seed", "max_tokens", "num_ranks")

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray[Any, Any] | torch.Tensor,
        max_tokens: int,
        seed: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens={max_tokens} holds no row: give 1 or more.")
        self.lengths = torch.as_tensor(lengths).clamp(min=1)
        self.max_tokens, self.num_ranks = max_tokens, num_ranks
        super().__init__(len(self.lengths), seed)
        longest_first = self._counted_lengths().sort(descending=True).values
        self.num_rounds = len(plan_rounds(longest_first.tolist(), max_tokens, num_ranks))

    def indices(self, epoch: int) -> Sequence[int]:
        """Every index of `epoch`, batch after batch."""
        return [index for round_ in self.rounds(epoch) for index in round_]

    def rounds(self, epoch: int) -> list[list[int]]:
        """The rows of `epoch` in the order of rounds: what all processes together get at a time."""
        generator = self.generator(epoch)
        lengths = self._counted_lengths()
        shuffled = torch.randperm(self.num_samples, generator=generator)
        ranked = shuffled[torch.argsort(lengths[shuffled], descending=True, stable=True)]
        sizes = plan_rounds(lengths[ranked].tolist(), self.max_tokens, self.num_ranks)
        rows: list[int] = ranked.tolist()
        rounds = [rows[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]
        if not rounds:
            return []
        # the longest stays first: an out-of-memory shows at the first step
        later: list[int] = torch.randperm(len(rounds) - 1, generator=generator).tolist()
        return [rounds[0], *(rounds[1 + index] for index in later)]

    def draw_rounds(self) -> Iterator[list[int]]:
        """The rounds of the next pass; one that the pass starts inside of is cut."""
        plan, start = self._take_next()
        for rows in plan.rounds(self.epoch):
            if start < len(rows):
                yield rows[start:]
            start = max(start - len(rows), 0)

    def _counted_lengths(self) -> torch.Tensor:
        """What each row counts as: the upper end of its step, but within the budget if the row is."""
        steps = _length_steps(int(self.lengths.max()) if self.num_samples else 1)
        counted = steps[torch.searchsorted(steps, self.lengths.contiguous())]
        return torch.maximum(counted.clamp(max=self.max_tokens), self.lengths)


class TokenBatches(Sampler[list[int]]):
    """The batches of a `TokenBudgetOrder`, for a loader; several processes take them in turn.

    Args:
        sampler: The order.
    """

    drop_last = False

    def __init__(self, sampler: TokenBudgetOrder) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.sampler.draw_rounds():
            size = -(-len(rows) // self.sampler.num_ranks)
            yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def __len__(self) -> int:
        return self.sampler.num_rounds * self.sampler.num_ranks


def plan_rounds(longest_first: Sequence[int], max_tokens: int, num_ranks: int = 1) -> list[int]:
    """Rows of each round, where each of `num_ranks` processes gets as many as fit its budget.

    Args:
        longest_first: What each row counts as.
        max_tokens: The budget of one process.
        num_ranks: How many processes share a round.
    """
    sizes, start, num_rows = [], 0, len(longest_first)
    while start < num_rows:
        size = num_ranks * max(max_tokens // longest_first[start], 1)
        sizes.append(min(size, num_rows - start))
        start += size
    return sizes


def _length_steps(longest: int) -> torch.Tensor:
    """Lengths from 1 to at least `longest`, each a little above the one before."""
    steps = [1]
    while steps[-1] < longest:
        steps.append(max(steps[-1] + 1, int(steps[-1] * LENGTH_STEP)))
    return torch.tensor(steps)
