"""The API's samplers by their known names, and the choice of an order by its name in the arguments."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler
from torch.utils.data.distributed import DistributedSampler

from footplate.data.keyed import KeyedOrder
from footplate.data.lengths import find_lengths, read_column
from footplate.data.order import (
    LengthGroupedOrder,
    RandomOrder,
    SampleOrder,
    SequentialOrder,
    WeightedOrder,
    group_by_length,
)
from footplate.data.order_memory import parse_order_limit, warn_of_memory
from footplate.data.tokens import TokenBudgetOrder
from footplate.rng import data_seed

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

logger = logging.getLogger(__name__)

LengthsLike = Sequence[int] | np.ndarray[Any, Any] | torch.Tensor
Weights = Sequence[float] | np.ndarray[Any, Any] | torch.Tensor

SAMPLING_STRATEGIES = ("random", "sequential", "group_by_length", "batch_rebalance", "weighted", "keyed")
BY_TOKENS = "by_tokens"  # not a setting of its own: per_device_train_tokens asks for it
WITHOUT_MEMORY = ("sequential", "keyed")  # orders that are computed, not listed


def build_order(
    strategy: str,
    dataset: Any,
    args: TrainingArguments,
    *,
    batch_size: int,
    model_input_name: str | None = None,
    weights: Weights | None = None,
) -> SampleOrder:
    """The order called `strategy` over `dataset`, seeded by `data_seed` or else `seed`."""
    seed = data_seed(args)
    memory_limit = parse_order_limit(args.order_memory_limit)  # refused if it is no size
    if args.should_log and strategy in (*SAMPLING_STRATEGIES, BY_TOKENS) and strategy not in WITHOUT_MEMORY:
        warn_of_memory(strategy, len(dataset), memory_limit)
    if strategy == "random":
        return RandomOrder(len(dataset), seed)
    if strategy == "sequential":
        return SequentialOrder(len(dataset))
    if strategy == "keyed":
        return KeyedOrder(len(dataset), seed)
    if strategy in ("group_by_length", "batch_rebalance"):  # one process has nothing to balance
        lengths = find_lengths(dataset, args.length_column_name, model_input_name)
        return LengthGroupedOrder(lengths, batch_size, seed)
    if strategy == BY_TOKENS:
        return _build_token_order(find_lengths(dataset, args.length_column_name, model_input_name), args)
    if strategy != "weighted":
        raise ValueError(f"train_sampling_strategy={strategy!r} is none of {', '.join(SAMPLING_STRATEGIES)}.")
    if weights is None or len(weights) != len(dataset):
        given = 0 if weights is None else len(weights)
        raise ValueError(
            f"sample_weights has {given} entries for {len(dataset)} samples. With "
            "train_sampling_strategy='weighted' "
            "give one weight per sample, or name the column that holds them."
        )
    return WeightedOrder(weights, seed)


def train_strategy(args: TrainingArguments) -> str:
    """The name of the order of the training samples."""
    return args.train_sampling_strategy if args.per_device_train_tokens is None else BY_TOKENS


def _build_token_order(lengths: LengthsLike, args: TrainingArguments) -> TokenBudgetOrder:
    """The order by tokens, and a notice where a row alone is more than the budget."""
    budget = args.per_device_train_tokens
    assert budget is not None
    order = TokenBudgetOrder(lengths, budget, data_seed(args), args.world_size)
    num_longer = int((order.lengths > budget).sum())
    if num_longer and args.should_log:
        logger.warning(
            "%d of %d rows are longer than per_device_train_tokens=%d, up to %d: each is a batch by itself. "
            "Raise the budget, or cut the rows, if that is too much for the memory.",
            num_longer,
            len(order),
            budget,
            int(order.lengths.max()),
        )
    return order


def read_weights(weights: str | Weights | None, dataset: Any) -> Weights | None:
    """One weight per sample: as given, or from the column of that name."""
    if not isinstance(weights, str):
        return weights
    column = read_column(dataset, weights)
    if column is not None:
        return column
    try:
        return [float(dataset[index][weights]) for index in range(len(dataset))]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"sample_weights={weights!r} is not a column of the training data. Name one that is, or give the "
            "numbers."
        ) from error


def get_length_grouped_indices(
    lengths: LengthsLike,
    batch_size: int,
    mega_batch_mult: int | None = None,
    generator: torch.Generator | None = None,
) -> list[int]:
    """Indices such that each `batch_size` of them in a row have near-equal lengths, the longest batch first.

    Args:
        lengths: The length of each sample.
        batch_size: How many samples share one padded length.
        mega_batch_mult: Group only among this many shuffled batches; in the whole dataset if not given.
        generator: Where the randomness comes from; torch's global one if not given.
    """
    sizes = torch.as_tensor(lengths)
    if mega_batch_mult is None:
        grouped = group_by_length(sizes, batch_size, generator)
    else:
        size = mega_batch_mult * batch_size
        shuffled = torch.randperm(len(sizes), generator=generator)
        windows = [shuffled[start : start + size] for start in range(0, len(sizes), size)]
        if num_whole := len(sizes) // size:  # a last, smaller window stays last
            longest = max(range(num_whole), key=lambda index: int(sizes[windows[index]].max()))
            windows.insert(0, windows.pop(longest))
        grouped = torch.cat([rows[group_by_length(sizes[rows], batch_size, generator)] for rows in windows])
    indices: list[int] = grouped.tolist()
    return indices


class LengthGroupedSampler(Sampler[int]):
    """Every sample once, in batches of near-equal length that follow each other at random.

    Args:
        batch_size: How many samples share one padded length.
        dataset: Where lengths are read from if they are not given.
        lengths: The length of each sample.
        model_input_name: The key whose length counts; `input_ids` if not given.
        generator: Where the randomness comes from; torch's global one if not given.
    """

    def __init__(
        self,
        batch_size: int,
        dataset: Any | None = None,
        lengths: LengthsLike | None = None,
        model_input_name: str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.lengths = _given_or_found(lengths, dataset, model_input_name)
        self.generator = generator

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(get_length_grouped_indices(self.lengths, self.batch_size, generator=self.generator))


class DistributedLengthGroupedSampler(DistributedSampler[Any]):
    """One rank's share of length-grouped samples; the ranks' batches of one step have near-equal lengths.

    Args:
        batch_size: How many samples of one rank share one padded length.
        dataset: Where lengths are read from if they are not given.
        num_replicas: How many ranks share the samples; all of the process group if not given.
        rank: Which share this is; the one of this process if not given.
        seed: Epoch `e` draws from a generator seeded with `seed + e`.
        drop_last: Drop what does not divide by the ranks, instead of repeating samples to fill up.
        lengths: The length of each sample.
        model_input_name: The key whose length counts; `input_ids` if not given.
    """

    def __init__(
        self,
        batch_size: int,
        dataset: Any | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int = 0,
        drop_last: bool = False,
        lengths: LengthsLike | None = None,
        model_input_name: str | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.lengths = _given_or_found(lengths, dataset, model_input_name)
        plan: Any = range(len(self.lengths))  # the parent only asks for its length
        super().__init__(plan, num_replicas, rank, shuffle=True, seed=seed, drop_last=drop_last)
        self.dataset = dataset if dataset is not None else plan

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        # Ranks take turns sample by sample: a group must feed one batch of every rank.
        indices = get_length_grouped_indices(
            self.lengths, self.batch_size * self.num_replicas, generator=generator
        )
        even = islice(cycle(indices), self.total_size)
        return islice(even, self.rank, None, self.num_replicas)


class DistributedSamplerWithLoop(DistributedSampler[Any]):
    """torch's `DistributedSampler`, going round to its own beginning until the last batch is full.

    Args:
        dataset: The samples to share out.
        batch_size: What the number of samples of each rank is rounded up to a multiple of.
        kwargs: Passed on to `DistributedSampler`.
    """

    def __init__(self, dataset: Dataset[Any], batch_size: int, **kwargs: Any) -> None:
        super().__init__(dataset, **kwargs)
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[int]:
        indices = list(super().__iter__())
        num_missing = -len(indices) % self.batch_size
        # Where torch already filled up from the start, this rank's first sample would come twice in a row.
        num_samples: int = len(self.dataset)  # type: ignore[arg-type]
        first = 1 if self.rank < num_samples % self.num_replicas else 0
        return iter(indices + indices[first : first + num_missing])


class ShardSampler(Sampler[int]):
    """One process's batches when processes take whole batches in turn, each getting the same number.

    Args:
        dataset: The samples to share out; only its length counts.
        batch_size: Samples in a batch of one process.
        drop_last: Leave out a last round that is not full, instead of filling it from the start.
        num_processes: How many processes share the samples.
        process_index: Which share this is.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.total_batch_size = batch_size * num_processes
        self.total_num_samples = _whole_rounds(len(dataset), self.total_batch_size, drop_last)

    def __iter__(self) -> Iterator[int]:
        first = self.batch_size * self.process_index
        for start in range(first, self.total_num_samples, self.total_batch_size):
            for position in range(start, start + self.batch_size):
                yield position % len(self.dataset)

    def __len__(self) -> int:
        return self.total_num_samples // self.num_processes


class IterableDatasetShard(IterableDataset[Any]):
    """One process's share of a stream, dealt in rounds of `batch_size * num_processes` samples.

    A stream that shuffles must do so alike on all processes: by `set_epoch`, or by drawing from a `generator`
    of its own, which is seeded with `seed + epoch` before each pass.

    Args:
        dataset: The stream that every process reads.
        batch_size: Samples per round for one process.
        drop_last: Leave out a last round that is not full, instead of filling it from the first one.
        num_processes: How many processes share the stream.
        process_index: Which share this is.
        seed: Base of the seed for a stream with a generator.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        seed: int = 0,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.seed = seed
        self.epoch = 0
        self.num_examples = 0

    def set_epoch(self, epoch: int) -> None:
        """Tell the stream which pass comes next."""
        self.epoch = epoch
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        self.num_examples = 0
        generator = getattr(self.dataset, "generator", None)
        if isinstance(generator, torch.Generator) and not hasattr(self.dataset, "set_epoch"):
            generator.manual_seed(self.seed + self.epoch)

        round_size = self.batch_size * self.num_processes
        first = self.process_index * self.batch_size
        stream = iter(self.dataset)
        filler: list[Any] = []
        while samples := list(islice(stream, round_size)):
            self.num_examples += len(samples)
            filler = filler or samples
            if len(samples) == round_size:
                yield from samples[first : first + self.batch_size]
            elif not self.drop_last:
                full = list(islice(chain(samples, cycle(filler)), round_size))
                yield from full[first : first + self.batch_size]

    def __len__(self) -> int:
        round_size = self.batch_size * self.num_processes
        return _whole_rounds(len(self.dataset), round_size, self.drop_last) // self.num_processes


def _whole_rounds(num_samples: int, round_size: int, drop_last: bool) -> int:
    """`num_samples` brought to a multiple of `round_size`, downwards to drop and upwards to fill."""
    return (num_samples if drop_last else num_samples + round_size - 1) // round_size * round_size


def _given_or_found(
    lengths: LengthsLike | None, dataset: Any | None, model_input_name: str | None
) -> LengthsLike:
    """The lengths that were given, else those read from the dataset."""
    if lengths is not None:
        return lengths
    if dataset is None:
        raise ValueError("Neither lengths nor a dataset to read them from was given: pass one of the two.")
    return find_lengths(dataset, None, model_input_name)
