"""Everything that one evaluation collects, batch by batch, on the host."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from footplate import comm
from footplate.batch import IGNORED_LABEL
from footplate.comm import nested_numpify
from footplate.evaluation import merging
from footplate.evaluation.buffers import NestedBuffer, nested_bytes
from footplate.evaluation.container import BatchList
from footplate.evaluation.memory_limit import MemoryBudget
from footplate.evaluation.merging import Batch

logger = logging.getLogger(__name__)

MAX_PENDING = 1000  # small tensors to keep on the device before they are joined to one


class Collector:
    """Predictions, labels, inputs and losses of one evaluation; None for what is never added.

    Each batch is copied to the host when it is added, whatever `eval_accumulation_steps` says.

    Args:
        num_samples: Rows that the evaluation will see, if known.
        num_here: About how many of them this process adds, if others add some too.
        batch_size: Rows of a batch that is added without `num_rows`.
        concat: Join the batches at the end; else each result is a list with one entry per batch.
        loss_weighting: "items" weighs a batch's loss by its items, any other value by its rows.
        finite_only: Leave losses that are not finite out of the mean, unless none is finite.
        padding_index: The value that pads rows shorter than the longest.
        memory_limit: Bytes that may stay in memory; None allows most of the free memory.
        spill_folder: Where data beyond the limit goes; None uses the system's folder for temporary files.
        find_rows: Returns the rows of the dataset read so far, in their order; None if they are unknown.
    """

    def __init__(
        self,
        num_samples: int | None = None,
        batch_size: int = 1,
        *,
        num_here: int | None = None,
        concat: bool = True,
        loss_weighting: str | None = None,
        finite_only: bool = False,
        padding_index: int = IGNORED_LABEL,
        memory_limit: int | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
        find_rows: Callable[[], np.ndarray | None] | None = None,
    ) -> None:
        self.num_observed = 0
        self._num_expected, self._num_here = num_samples, num_here or num_samples
        self._batch_size = batch_size
        self._concat = concat
        self._by_items = loss_weighting == "items"
        self._finite_only = finite_only
        self._padding_index = padding_index
        self._memory = (memory_limit, spill_folder)
        self._budget = MemoryBudget(*self._memory)
        self._find_rows = find_rows
        self._buffers: dict[str, NestedBuffer | BatchList] = {}
        self._losses = _Numbers()
        self._items = _Numbers()
        self._rows: list[int] = []
        self._batches: list[int] = []  # rows of every batch

    def add(
        self,
        *,
        losses: Any = None,
        predictions: Any = None,
        labels: Any = None,
        inputs: Any = None,
        num_rows: int | None = None,
        num_items: float | torch.Tensor | None = None,
    ) -> None:
        """Add one batch; None means that there is nothing to keep.

        Args:
            losses: The mean loss of the batch, or one loss per row.
            predictions: What the model returned.
            labels: The expected answers.
            inputs: The model's main input.
            num_rows: Rows of the batch, if it has rows.
            num_items: Number of items in the mean loss; None for the number of rows.
        """
        self.num_observed += num_rows or 0
        self._batches.append(num_rows or 0)
        rows = self._batch_size if num_rows is None else num_rows
        if losses is not None:
            losses = losses if type(losses) is torch.Tensor else torch.as_tensor(losses)
            self._losses.add(losses.detach() if losses.requires_grad else losses)
            self._rows.append(rows)
            if self._by_items:
                self._items.add(
                    torch.as_tensor(rows if num_items is None else num_items, device=losses.device)
                )
        for name, tensors in (("predictions", predictions), ("labels", labels), ("inputs", inputs)):
            if tensors is not None:
                if not self._buffers and num_rows:
                    self._project((predictions, labels, inputs), num_rows)
                buffer = self._buffers.get(name)
                (self._add_buffer(name) if buffer is None else buffer).add(tensors)

    def _project(self, batch: tuple[Any, ...], num_rows: int) -> None:
        """Let the first batch decide whether the whole evaluation fits in memory."""
        if self._num_here:
            num_batches = max(1.0, self._num_here / num_rows)
            self._budget.project(math.ceil(nested_bytes(batch) * num_batches))

    def _add_buffer(self, name: str) -> NestedBuffer | BatchList:
        self._buffers[name] = buffer = (
            NestedBuffer(self._num_here, self._padding_index, self._budget, name)
            if self._concat
            else BatchList(self._budget)
        )
        return buffer

    def _arrays(self, name: str) -> Any:
        return self._buffers[name].arrays() if name in self._buffers else None

    def merge_ranks(self, to_all: bool) -> None:
        """Join what all ranks have added: one batch of each rank in turn, as one process would add them.

        Every rank calls this once, after its last batch.

        Args:
            to_all: Give every rank the whole; else the first one alone, and nothing is left on the others.
        """
        batches = list(self._split())
        is_known = all(comm.gather_objects(self.indices is not None))
        self._buffers, self._budget = {}, MemoryBudget(*self._memory)
        self._losses, self._items, self._rows, self._batches = _Numbers(), _Numbers(), [], []
        self.num_observed, self._num_here = 0, self._num_expected
        rows: list[Any] = []
        merging.merge_ranks(batches, lambda batch: self._take(batch, rows), to_all)
        indices = np.concatenate(rows) if rows and is_known else None
        self._find_rows = lambda: indices

    def _split(self) -> Iterator[Batch]:
        """What was added, batch by batch."""
        arrays = {name: self._arrays(name) for name in self._buffers}
        indices, values, items = self.indices, self._losses.values(), self._items.values()
        row = loss = 0
        has_losses = len(self._rows) == len(self._batches)
        for number, num_rows in enumerate(self._batches):
            parts = {
                name: merging.slice_rows(array, row, row + num_rows) if self._concat else array[number]
                for name, array in arrays.items()
            }
            own = None if indices is None else indices[row : row + num_rows]
            if has_losses:
                size = self._losses.sizes[number]
                item = float(items[number]) if self._by_items else None
                losses = values[loss : loss + size]
                yield Batch(parts, num_rows, own, losses, self._rows[number], item)
                loss += size
            else:
                yield Batch(parts, num_rows, own)
            row += num_rows

    def _take(self, batch: Batch, rows: list[Any]) -> None:
        """Add a batch that was split off."""
        losses = None if batch.losses is None else torch.from_numpy(np.ascontiguousarray(batch.losses))
        self.add(losses=losses, num_rows=batch.num_rows, num_items=batch.items, **batch.values)
        if batch.losses is not None:
            self._rows[-1] = batch.num_loss_rows
        if batch.indices is not None:
            rows.append(batch.indices)

    @property
    def num_samples(self) -> int:
        """Rows of the evaluation: as announced, else as added."""
        return self._num_expected or self.num_observed

    @property
    def indices(self) -> np.ndarray | None:
        """Which rows of the dataset were added; None if they have no index."""
        rows = self._find_rows() if self._find_rows is not None else None
        return None if rows is None else rows[: self.num_observed]  # a loader may have read ahead

    @property
    def weight(self) -> float:
        """What the mean loss is divided by: the number of rows, or of items with loss_weighting="items"."""
        return float(sum(self._items.values().tolist()) if self._by_items else sum(self._rows))

    @property
    def predictions(self) -> Any:
        """The predictions of all rows."""
        return self._arrays("predictions")

    @property
    def labels(self) -> Any:
        """The labels of all rows."""
        return self._arrays("labels")

    @property
    def inputs(self) -> Any:
        """The main inputs of all rows."""
        return self._arrays("inputs")

    @property
    def losses(self) -> Any:
        """One loss per row; rows of a batch with one mean loss all get that loss."""
        if not self._rows:
            return None
        per_row, rows = self._losses_per_row()
        return per_row if self._concat else np.split(per_row, np.cumsum(rows)[:-1])

    @property
    def loss(self) -> float | None:
        """The mean loss of the evaluation."""
        if not self._rows:
            return None
        if self._by_items:
            return self._mean_over_items()
        losses = self._losses_per_row()[0]
        is_finite = np.isfinite(losses)
        if self._finite_only and is_finite.any() and not is_finite.all():
            logger.warning(
                "The loss of %d of %d rows is not finite (NaN or infinite): eval_loss leaves them out. Set "
                "logging_nan_inf_filter=False to see it in eval_loss.",
                np.count_nonzero(~is_finite),
                len(losses),
            )
            losses = losses[is_finite]
        return float(losses.mean())

    @property
    def loss_keys(self) -> list[str]:
        """The names of the metrics that the losses give: "loss", or none."""
        return ["loss"] if self._rows else []

    def _losses_per_row(self) -> tuple[np.ndarray, np.ndarray]:
        """All losses, and how many belong to each batch."""
        given = np.array(self._losses.sizes)
        times = np.where(given == 1, self._rows, 1)
        return np.repeat(self._losses.values(), np.repeat(times, given)), given * times

    def _mean_over_items(self) -> float:
        """The sum over items divided by the number of items: it does not depend on the batches."""
        weights = [float(items) for items in self._items.values()]
        batches = np.split(self._losses.values(), np.cumsum(self._losses.sizes)[:-1])
        means = [float(losses.astype(np.float64).mean()) for losses in batches]
        # a batch without items has the mean nan, and 0 * nan would make the whole sum nan
        total = sum(mean * weight for mean, weight in zip(means, weights, strict=True) if weight)
        return total / sum(weights) if any(weights) else float("nan")


class _Numbers:
    """A few numbers per batch, kept on the device: reading each one would be a host sync."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._joined: list[torch.Tensor] = []
        self._pending: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor) -> None:
        self.sizes.append(tensor.numel())
        self._pending.append(tensor)
        if len(self._pending) > MAX_PENDING:
            self._join()

    def _join(self) -> None:
        pending, self._pending = self._pending, []
        if len({(tensor.ndim, tensor.dtype) for tensor in pending}) == 1 and not pending[0].ndim:
            self._joined.append(torch.stack(pending))
        elif pending:
            self._joined.append(torch.cat([tensor.reshape(-1) for tensor in pending]))

    def values(self) -> np.ndarray:
        """All numbers in one array."""
        self._join()
        if not self._joined:
            return np.empty(0)
        self._joined = [torch.cat(self._joined)]
        return np.asarray(nested_numpify(self._joined[0]))  # host sync: one for all numbers
