"""One pass over some rows of a dataset, in batches that know the numbers of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

from footplate.batch import find_length
from footplate.comm import find_batch_size


class NumberedRows(NamedTuple):
    """Rows that go through the model together."""

    numbers: list[int]  # in the dataset; in a stream, counted from its start
    batch: Any


def is_stream(dataset: Any) -> bool:
    """Whether rows can only be read one after the other, from the first."""
    has_index = hasattr(dataset, "__getitem__") and find_length(dataset) is not None
    return isinstance(dataset, IterableDataset) or not has_index


def spread_evenly(length: int, max_rows: int | None) -> Sequence[int]:
    """The numbers of all rows, or of `max_rows` at equal distances."""
    if max_rows is None or max_rows >= length:
        return range(length)
    return _Spread(length, max_rows)


class _Spread(Sequence[int]):
    """Row numbers at equal distances, of which none is kept in memory."""

    def __init__(self, length: int, count: int) -> None:
        self._length, self._count = length, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(self._count))]
        return range(self._count)[place] * self._length // self._count


class RowReader:
    """Reads rows of a dataset, each as it is in the dataset, and takes every `count`-th batch.

    Args:
        dataset: What to read.
        collate: Makes a batch of samples; if it joins or leaves out samples, each becomes a batch by itself.
        numbers: Which rows; of a stream, only how many they are counts.
        batch_size: Rows of a batch.
        settings: What a `DataLoader` needs besides, such as the number of workers.
        share: Which of several processes this is, and how many share the rows.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Any]], Any],
        numbers: Sequence[int],
        batch_size: int,
        settings: dict[str, Any],
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self._dataset, self._collate, self._numbers = dataset, CollateApart(collate), numbers
        self._batch_size, self._settings, self._share = batch_size, settings, share
        self.is_stream = is_stream(dataset)

    def __iter__(self) -> Iterator[NumberedRows]:
        for numbers, pieces in self._read_stream() if self.is_stream else self._read_rows():
            if len(pieces) == 1 and find_batch_size(pieces[0]) == len(numbers):
                yield NumberedRows(numbers, pieces[0])
            else:
                for number, piece in zip(numbers, pieces, strict=True):
                    yield NumberedRows([number], piece)

    def _cut(self) -> Iterator[list[int]]:
        """The numbers of each batch of this process."""
        rank, count = self._share
        step = self._batch_size * count
        for start in range(rank * self._batch_size, len(self._numbers), step):
            yield list(self._numbers[start : start + self._batch_size])

    def _read_rows(self) -> Iterator[tuple[list[int], list[Any]]]:
        loader: Iterable[list[Any]] = DataLoader(
            self._dataset,
            batch_sampler=_Batches(self._cut),
            collate_fn=self._collate,
            generator=torch.Generator().manual_seed(0),
            **self._settings,
        )
        return zip(self._cut(), loader, strict=True)

    def _read_stream(self) -> Iterator[tuple[list[int], list[Any]]]:
        rank, count = self._share
        samples = islice(iter(self._dataset), len(self._numbers))
        start = index = 0
        while batch := list(islice(samples, self._batch_size)):
            if index % count == rank:
                yield list(range(start, start + len(batch))), self._collate(batch)
            start, index = start + len(batch), index + 1


class _Batches:
    """Lists of row numbers, as `DataLoader` takes them."""

    def __init__(self, cut: Callable[[], Iterator[list[int]]]) -> None:
        self._cut = cut

    def __iter__(self) -> Iterator[list[int]]:
        return self._cut()


class CollateApart:
    """Makes one batch of some samples or, where it does not have a row for each, one of each sample.

    Args:
        collate: Makes a batch of samples.
    """

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate
        self._is_apart = False

    def __call__(self, samples: list[Any]) -> list[Any]:
        if not self._is_apart:
            # a collator may take entries out of the samples, which are then needed once more
            batch = self._collate([copy(one) if isinstance(one, MutableMapping) else one for one in samples])
            if find_batch_size(batch) == len(samples):
                return [batch]
            self._is_apart = True
        return [self._collate([sample]) for sample in samples]
