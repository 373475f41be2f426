"""Which sample comes when, and where we are: plans that depend on seed, epoch and position alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import RandomSampler, Sampler

# A length counts as up to five percent more or less, anew in each epoch. That costs about five percent of
# padding, and keeps batches from being the same sets of samples every time.
LENGTH_JITTER = 0.05

Order = TypeVar("Order", bound="SampleOrder")


class SampleOrder(Sampler[int]):
    """The order of samples as a pure function of seed and epoch; override `indices` to bring another order.

    Args:
        num_samples: How many samples one epoch holds.
        seed: Epoch `e` draws from a generator seeded with `seed + e`.
    """

    depends_on: tuple[str, ...] = ("seed",)  # besides the epoch: names of attributes that decide the order

    def __init__(self, num_samples: int, seed: int = 0) -> None:
        self.num_samples = num_samples
        self.seed = seed
        self.epoch = 0
        self._next_start = 0
        self._next_settings: dict[str, Any] = {}

    def indices(self, epoch: int) -> Sequence[int]:
        """Every index of `epoch` in its order; the same arguments must give the same answer."""
        raise NotImplementedError(f"{type(self).__name__} must define indices(epoch).")

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass the one of `epoch`."""
        self.epoch = epoch

    def settings(self) -> dict[str, Any]:
        """What the order depends on; an epoch that began under them is finished under them."""
        return {name: getattr(self, name) for name in self.depends_on}

    def seek(self, position: int, settings: dict[str, Any] | None = None) -> None:
        """Start the next pass, and only that one, at `position` in samples, of the order of `settings`."""
        self.check_position(position)
        self._next_start, self._next_settings = position, dict(settings or {})

    def check_position(self, position: int) -> None:
        """Refuse a position outside the epoch."""
        if not 0 <= position <= len(self):
            raise ValueError(f"Cannot seek to sample {position}: an epoch has positions 0 to {len(self)}.")

    def generator(self, epoch: int) -> torch.Generator:
        """The source of randomness that belongs to `epoch`."""
        return torch.Generator().manual_seed(self.seed + epoch)

    def draw(self) -> Sequence[int]:
        """The indices of the next pass."""
        plan, start = self._take_next()
        indices = plan.indices(self.epoch)
        return indices[start:] if start else indices

    def _take_next(self: Order) -> tuple[Order, int]:
        """The order of the next pass, by the settings that were sought, and where it starts."""
        start, self._next_start = self._next_start, 0
        settings, self._next_settings = self._next_settings, {}
        plan = self
        if settings and settings != self.settings():
            plan = copy.copy(self)
            vars(plan).update({name: settings[name] for name in self.depends_on if name in settings})
        return plan, start

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw())

    def __len__(self) -> int:
        return self.num_samples


class SequentialOrder(SampleOrder):
    """The samples as the dataset has them."""

    def indices(self, epoch: int) -> Sequence[int]:
        """From the first sample to the last, in every epoch."""
        return range(self.num_samples)


class RandomOrder(SampleOrder):
    """Every sample once per epoch, shuffled."""

    def indices(self, epoch: int) -> Sequence[int]:
        """The permutation that torch draws for this seed and epoch."""
        return _as_list(torch.randperm(self.num_samples, generator=self.generator(epoch)))


class WeightedOrder(SampleOrder):
    """As many draws as there are samples, each sample as likely as its weight says, with replacement.

    Args:
        weights: One non-negative number per sample; they need not add up to one.
        seed: Epoch `e` draws from a generator seeded with `seed + e`.
    """

    def __init__(self, weights: Sequence[float] | np.ndarray[Any, Any] | torch.Tensor, seed: int = 0) -> None:
        self.weights = torch.as_tensor(weights, dtype=torch.float64)
        if self.weights.ndim != 1 or not bool((self.weights >= 0).all()) or not bool(self.weights.sum() > 0):
            raise ValueError(
                f"weights of shape {tuple(self.weights.shape)} cannot order samples: give one number per "
                "sample, none negative or NaN, not all zero."
            )
        super().__init__(len(self.weights), seed)

    def indices(self, epoch: int) -> Sequence[int]:
        """Draws with replacement; a heavy sample comes often, a light one perhaps not at all."""
        drawn = torch.multinomial(self.weights, self.num_samples, True, generator=self.generator(epoch))
        return _as_list(drawn)


class LengthGroupedOrder(SampleOrder):
    """Every sample once per epoch, in shuffled batches of near-equal length, the longest batch first.

    Args:
        lengths: The length of each sample.
        batch_size: Rows of a micro-batch, the unit that is padded to its longest row.
        seed: Epoch `e` draws from a generator seeded with `seed + e`.
    """

    depends_on = ("seed", "batch_size")

    def __init__(
        self, lengths: Sequence[int] | np.ndarray[Any, Any] | torch.Tensor, batch_size: int, seed: int = 0
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} cannot group samples: give 1 or more.")
        self.lengths = torch.as_tensor(lengths)
        self.batch_size = batch_size
        super().__init__(len(self.lengths), seed)

    def indices(self, epoch: int) -> Sequence[int]:
        """The grouping drawn for this epoch, batch after batch."""
        return _as_list(group_by_length(self.lengths, self.batch_size, self.generator(epoch)))


class ReseededOrder(SampleOrder):
    """What a torch `RandomSampler` would draw, replacement and count included, from this seed and epoch."""

    def __init__(self, sampler: RandomSampler, seed: int = 0) -> None:
        super().__init__(sampler.num_samples, seed)
        self.replacement = sampler.replacement
        self.population = range(len(sampler.data_source))

    def indices(self, epoch: int) -> Sequence[int]:
        """The sampler's own algorithm, run on the generator of this epoch."""
        generator = self.generator(epoch)
        return list(RandomSampler(self.population, self.replacement, self.num_samples, generator))


def group_by_length(
    lengths: torch.Tensor, batch_size: int, generator: torch.Generator | None
) -> torch.Tensor:
    """A permutation whose successive batches hold near-equal lengths and follow each other at random."""
    num_full, num_left = divmod(len(lengths), batch_size)
    jitter = 1 + LENGTH_JITTER * (2 * torch.rand(len(lengths), generator=generator) - 1)
    ranked = torch.argsort(lengths * jitter, descending=True, stable=True)
    if num_full == 0:
        return ranked

    # The short batch is cut from anywhere but the top, so that it is not always the same samples that end an
    # epoch, and it stays last: in any other place it would shift the batches behind it.
    cut = batch_size * int(torch.randint(1, num_full + 1, (), generator=generator))
    short_batch = ranked[cut : cut + num_left]
    batches = torch.cat([ranked[:cut], ranked[cut + num_left :]]).view(num_full, batch_size)

    shuffled = torch.randperm(num_full, generator=generator)
    longest = lengths[batches].amax(dim=1)[shuffled].argmax()
    shuffled[[0, int(longest)]] = shuffled[[int(longest), 0]]  # an out-of-memory shows at the first step
    return torch.cat([batches[shuffled].flatten(), short_batch])


def _as_list(indices: torch.Tensor) -> list[int]:
    """Plain integers, as datasets expect them."""
    plain: list[int] = indices.tolist()
    return plain
