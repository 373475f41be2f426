"""Everything one evaluation gathers, batch by batch, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from footplate.comm import nested_numpify
from footplate.evaluation.container import EvalLoopContainer


class Collector:
    """Predictions, labels, inputs and losses of one evaluation; what is never added stays None.

    Args:
        num_samples: Rows that the evaluation will see, where that is known.
        batch_size: Rows that a batch counts for when it does not say.
        concat: Join the batches at the end; else each result is a list with one entry per batch.
        loss_weighting: "items" weighs a batch's loss by its items, anything else by its rows.
        padding_index: What fills up rows that are shorter than the longest along dimension 1.
    """

    def __init__(
        self,
        num_samples: int | None = None,
        batch_size: int = 1,
        *,
        concat: bool = True,
        loss_weighting: str | None = None,
        padding_index: int = -100,
    ) -> None:
        self.num_observed = 0
        self._num_expected = num_samples
        self._batch_size = batch_size
        self._concat = concat
        self._by_items = loss_weighting == "items"
        self._predictions = EvalLoopContainer(concat, padding_index)
        self._labels = EvalLoopContainer(concat, padding_index)
        self._inputs = EvalLoopContainer(concat, padding_index)
        self._losses: list[torch.Tensor] = []  # on the device until the end: reading one would be a host sync
        self._rows: list[int] = []
        self._items: list[int | torch.Tensor] = []

    def add(
        self,
        *,
        losses: Any = None,
        predictions: Any = None,
        labels: Any = None,
        inputs: Any = None,
        num_rows: int | None = None,
        num_items: int | torch.Tensor | None = None,
    ) -> None:
        """Take in one batch; None means that there is nothing to keep.

        Args:
            losses: The mean loss of the batch, or one loss per row.
            predictions: What the model answered.
            labels: What was to be answered.
            inputs: The model's main input.
            num_rows: Rows of the batch, where it has rows.
            num_items: Items the loss is a mean of; rows when None.
        """
        self.num_observed += num_rows or 0
        rows = self._batch_size if num_rows is None else num_rows
        if losses is not None:
            self._losses.append(torch.as_tensor(losses).detach().reshape(-1))
            self._rows.append(rows)
            self._items.append(rows if num_items is None else num_items)
        for container, tensors in (
            (self._predictions, predictions),
            (self._labels, labels),
            (self._inputs, inputs),
        ):
            if tensors is not None:
                container.add(tensors)
                container.to_cpu_and_numpy()  # host sync: device memory must not fill up with predictions

    @property
    def num_samples(self) -> int:
        """Rows that the evaluation covers: as announced, else as seen."""
        return self._num_expected or self.num_observed

    @property
    def weight(self) -> float:
        """What the mean loss is over: rows, or items where those weigh."""
        return float(sum(float(items) for items in self._items) if self._by_items else sum(self._rows))

    @property
    def predictions(self) -> Any:
        """The predictions of all rows."""
        return self._predictions.get_arrays()

    @property
    def labels(self) -> Any:
        """The labels of all rows."""
        return self._labels.get_arrays()

    @property
    def inputs(self) -> Any:
        """The main inputs of all rows."""
        return self._inputs.get_arrays()

    @property
    def losses(self) -> Any:
        """One loss per row: the batch's own mean stands for each of its rows."""
        if not self._losses:
            return None
        per_row = self._losses_per_row()
        return np.concatenate(per_row) if self._concat else per_row

    @property
    def loss(self) -> float | None:
        """The mean loss of the evaluation."""
        if not self._losses:
            return None
        if self._by_items:
            return self._mean_over_items()
        return float(np.concatenate(self._losses_per_row()).mean())

    @property
    def loss_keys(self) -> list[str]:
        """The metric that the losses give, if there are any."""
        return ["loss"] if self._losses else []

    def _losses_per_row(self) -> list[np.ndarray]:
        return [
            np.repeat(loss, rows) if len(loss) == 1 else loss
            for loss, rows in zip(self._losses_on_host(), self._rows, strict=True)
        ]

    def _mean_over_items(self) -> float:
        """Sum over items divided by the number of items, so that it does not matter how batches were cut."""
        weights = [float(items) for items in self._items]
        means = [float(loss.astype(np.float64).mean()) for loss in self._losses_on_host()]
        # a batch without items has no mean: 0 * nan would spoil the sum
        total = sum(mean * weight for mean, weight in zip(means, weights, strict=True) if weight)
        return total / sum(weights) if any(weights) else float("nan")

    def _losses_on_host(self) -> list[np.ndarray]:
        """What was added as losses, one array per batch."""
        flat = nested_numpify(torch.cat(self._losses))  # host sync: the only one that losses need
        return np.split(flat, np.cumsum([len(loss) for loss in self._losses])[:-1])
