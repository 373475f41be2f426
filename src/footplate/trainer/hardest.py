"""One pass over the training set that gives each row its own loss, and keeps the hardest rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from footplate import comm, rng
from footplate.batch import IGNORED_LABEL, find_labels, find_length, ignored_outputs, outputs_without_loss
from footplate.data import columns
from footplate.data.generators import HeldGenerators
from footplate.data.numbered_rows import NumberedRows, RowReader, is_stream, spread_evenly
from footplate.samples.batch import tensors_in
from footplate.samples.hardest import HardestRows
from footplate.samples.sieve import Sieve, rank_of
from footplate.samples.text import TextReader, texts_in
from footplate.trainer.single_rows import find_loss, looking, show_rows
from footplate.training import traits
from footplate.training.exchanges import may_exchange
from footplate.training.row_losses import FORMULAS, HALF, are_same, compute_row_losses

if TYPE_CHECKING:
    from footplate.trainer.training import Training

Result = TypeVar("Result")

MOST_OF_A_STREAM = 10_000  # rows to look at unless max_rows says otherwise
MOST_ALONE = 10_000  # the same where each row goes through the model alone, which takes its time
CHECKED_ROWS = 16  # of the first batch that are passed alone to choose a formula
MOST_PARTS = 8  # of a sample that becomes several rows, so many are shown
SPOT_CHECKS = 64  # from this batch on, a row of every so many batches is passed alone


def find_hardest(
    trainer: Training,
    count: int = 20,
    dataset: Any = None,
    max_rows: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> HardestRows:
    """The hardest rows of a dataset; Trainer, model and random states are afterwards as they were.

    Args:
        trainer: Whose model and loss it is.
        count: How many rows to keep.
        dataset: Another dataset than the one to train on.
        max_rows: Rows to look at, at equal distances; of a stream, the first ones.
        should_stop: Asked after each batch.
    """
    dataset = trainer.train_dataset if dataset is None else dataset
    check_request(count, max_rows, dataset)
    began = time.perf_counter()
    data = {"dataset": dataset, "collate_fn": trainer.data_collator}
    held = trainer._current_run.generators if trainer.is_in_train else HeldGenerators(**data)
    with rng.holding(held), looking(trainer) as model:
        search = Search(trainer, model, dataset, count, max_rows, should_stop)
        outcome = search.run()
    return join(outcome, search, time.perf_counter() - began)


def check_request(count: int, max_rows: int | None, dataset: Any) -> None:
    """Refuse what cannot give any row."""
    for name, value in {"count": count, "max_rows": max_rows}.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(
                f"find_hardest_rows({name}={value!r}): give a whole number of rows, at least 1"
                f"{', or None for all' if name == 'max_rows' else ''}."
            )
    if dataset is None:
        raise ValueError(
            "find_hardest_rows() has no rows to look at: pass `train_dataset` to Trainer, or `dataset` to it."
        )


def together(function: Callable[[], Result]) -> Result:
    """What a function returns; an error on one rank is raised on all, or others would wait for it."""
    result, error = None, None
    try:
        result = function()
    except Exception as raised:
        error = raised
    comm.raise_together(error)
    return cast(Result, result)


@dataclass
class Outcome:
    """What one process found."""

    rows: list[dict[str, Any]]  # its hardest, with their losses alone
    numbers: np.ndarray[Any, Any]
    losses: np.ndarray[Any, Any]
    num_unlabelled: int  # rows without a label that counts
    is_whole: bool


class Search:
    """One search for the hardest rows: which rows this process reads, and how their losses are found.

    Args:
        trainer: Whose model and loss it is.
        model: As evaluation calls it.
        dataset: The rows.
        count: How many rows to keep.
        max_rows: How many to look at.
        should_stop: Asked after each batch.
    """

    def __init__(
        self,
        trainer: Training,
        model: nn.Module,
        dataset: Any,
        count: int,
        max_rows: int | None,
        should_stop: Callable[[], bool],
    ) -> None:
        self._trainer, self._count, self._should_stop = trainer, count, should_stop
        self._max_rows, self.total = max_rows, None if is_stream(dataset) else find_length(dataset)
        self._source = dataset  # with the columns that the model does not take
        self._dataset, self._collate = prepare_data(trainer, dataset)
        self._losses = LossFinder(trainer, model)
        args = trainer.args
        # where ranks meet inside forward or loss, all of them pass the same rows, equally often
        self.is_shared = args.world_size > 1 and not meets_inside(trainer)
        self._share = (args.process_index, args.world_size) if self.is_shared else (0, 1)
        self._meets = args.world_size > 1 and not self.is_shared

    @property
    def passes(self) -> str:
        """How the rows went through the model."""
        return "batches" if self._losses.is_quick else "rows"

    def run(self) -> Outcome:
        """Pass over the rows; where the quick way turns out to be wrong, again with each row alone."""
        outcome = together(self._pass_over)
        was_quick = self._losses.is_quick
        # losses of all ranks must come the same way, and of the same choice of rows
        if self.is_shared and 0 < comm.sum_integers([not was_quick])[0] < comm.world_size():
            self._losses.is_quick = False
            outcome = together(self._pass_over if was_quick else lambda: outcome)
        return outcome

    def _pass_over(self) -> Outcome:
        """The losses of all rows, and the hardest of them, each passed alone."""
        while True:
            was_quick = self._losses.is_quick
            sieve, reader, is_whole, num_unlabelled = Sieve(self._count), self._read(was_quick), True, 0
            may_begin_again = was_quick and not reader.is_stream  # a stream may give its rows only once
            for rows in reader:
                losses = self._losses.find(rows)
                if may_begin_again and not self._losses.is_quick:
                    break
                num_unlabelled += self._add(sieve, rows, losses)
                self._trainer._current_run.hang.beat(self._trainer.state.global_step, "hardest rows")
                if self._stops():
                    is_whole = False
                    break
            if may_begin_again and not self._losses.is_quick:
                continue
            hardest, is_right = self._confirm(sieve)
            if is_right or not may_begin_again or not is_whole:
                return Outcome(hardest, sieve.numbers, sieve.losses, num_unlabelled, is_whole)
            self._losses.is_quick = False

    def _add(self, sieve: Sieve, rows: NumberedRows, losses: Sequence[float]) -> int:
        """Add rows to the sieve but for those that have no loss, and return how many these are."""
        places = self._losses.find_labelled(rows, losses)
        sieve.add(
            [rows.numbers[place] for place in places],
            [losses[place] for place in places],
            lambda index: take_row(rows, places[index]),
        )
        return len(losses) - len(places)

    def _stops(self) -> bool:
        should_stop = bool(self._should_stop())
        return bool(comm.sum_integers([should_stop])[0]) if self._meets else should_stop

    def _read(self, is_quick: bool) -> RowReader:
        args, most = self._trainer.args, self._max_rows
        if self.total is None:
            numbers: Any = range(most or MOST_OF_A_STREAM)
        else:
            numbers = spread_evenly(self.total, most or (None if is_quick else MOST_ALONE))
        settings: dict[str, Any] = {"num_workers": args.dataloader_num_workers}
        if args.dataloader_num_workers:
            settings["multiprocessing_context"] = args.dataloader_multiprocessing_context
        return RowReader(self._dataset, self._collate, numbers, args.eval_batch_size, settings, self._share)

    def _confirm(self, sieve: Sieve) -> tuple[list[dict[str, Any]], bool]:
        """The hardest rows, each passed alone; and whether their losses are those that were found before."""
        rows, is_right = [], True
        for kept in sieve.hardest:
            loss, outputs = self._losses.find_alone(kept.content, wants_outputs=True)
            is_right &= are_same(loss, kept.loss, self._losses.precision)
            num_parts = comm.find_batch_size(kept.content) or 1
            shown = join_parts(show_rows(self._trainer, kept.content, outputs, num_parts))
            taken = {name: value for name, value in shown.items() if name not in ("row", "loss", "outlier")}
            if "input" in taken and not TextReader(self._trainer.processing_class).can_decode:
                taken["input"] = self._text_of(kept.number) or taken["input"]
            rows.append({"row": kept.number, "loss": loss, **taken})
        return rows, is_right

    def _text_of(self, number: int) -> str:
        """The words of a row where no tokenizer is at hand to read them from its tokens."""
        return "" if self.total is None else texts_in(self._source[number])


@dataclass
class LossFinder:
    """Gives rows their losses: a whole batch at once where that is what `compute_loss` gives, else alone.

    Args:
        trainer: Whose loss it is.
        model: As evaluation calls it.
    """

    trainer: Training
    model: nn.Module
    is_quick: bool = True
    precision: torch.dtype = torch.float32
    _formula: str | None = None
    _num_batches: int = field(default=0, init=False)

    def find(self, rows: NumberedRows) -> list[float]:
        """The losses of some rows."""
        self._num_batches += 1
        if self.is_quick:
            losses = self._find_together(rows)
            if losses is not None:
                return losses
            self.is_quick = False
        if len(rows.numbers) == 1:  # the collator may have made several rows, or none, of it
            return [self.find_alone(rows.batch)[0]]
        return [self.find_alone(take_row(rows, place))[0] for place in range(len(rows.numbers))]

    def find_labelled(self, rows: NumberedRows, losses: Sequence[float]) -> list[int]:
        """The places of the rows that have a loss: where all labels are ignored there is nothing to learn."""
        return [
            place
            for place, loss in enumerate(losses)
            if not (math.isnan(loss) and self._lacks_labels(take_row(rows, place)))
        ]

    def _lacks_labels(self, row: Any) -> bool:
        trainer = self.trainer
        labels = find_labels(row, trainer.label_names, callable(trainer.compute_loss_func))
        if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or not labels.ndim:
            return False
        if trainer._items_are_shifted and labels.ndim > 1:
            labels = labels[..., 1:]  # nothing predicts the first one
        return bool(labels.eq(IGNORED_LABEL).all())

    def find_alone(self, row: Any, wants_outputs: bool = False) -> tuple[float, Any]:
        """The loss of a batch of one row, as training computes it."""
        return find_loss(self.trainer, self.model, row, wants_outputs)

    def _find_together(self, rows: NumberedRows) -> list[float] | None:
        """The losses of a batch from one forward; None if they are not those of its rows alone."""
        num_rows = len(rows.numbers)
        if comm.find_batch_size(rows.batch) != num_rows:
            return None
        whole, outputs = find_loss(self.trainer, self.model, rows.batch, wants_outputs=True)
        answers, labels = self._read_outputs(rows.batch, outputs)
        if not answers or labels is None:
            return None
        self.precision = find_precision(self.trainer, answers[0])
        places = self._choose_checks(num_rows)
        alone = [self.find_alone(take_row(rows, place))[0] for place in places]
        for name in FORMULAS if self._formula is None else (self._formula,):
            found = compute_row_losses(name, answers, labels)
            # the loss of the batch is there anyway: a formula must give it too, in every batch
            if found is None or len(found.rows) != num_rows or not self._gives(found.batch, whole):
                continue
            if are_same(found.rows[places], alone, self.precision):
                if any(map(math.isfinite, alone)):  # else every formula fits
                    self._formula = name
                losses: list[float] = found.rows.tolist()  # host sync
                return losses
        return None

    def _gives(self, found: float, whole: float) -> bool:
        return are_same(found, whole, self.precision)

    def _choose_checks(self, num_rows: int) -> list[int]:
        """The rows of the batch to pass alone: many of the first, then one of ever fewer batches."""
        if self._num_batches == 1 or self._formula is None:
            return list(range(min(num_rows, CHECKED_ROWS)))
        number = self._num_batches
        is_turn = number % SPOT_CHECKS == 0 or (number < SPOT_CHECKS and number & (number - 1) == 0)
        return [number % num_rows] if is_turn else []

    def _read_outputs(self, batch: Any, outputs: Any) -> tuple[list[torch.Tensor], Any]:
        """Answers of the model and labels, on the same device."""
        trainer = self.trainer
        if outputs is None:
            return [], None
        answers = tensors_in(outputs_without_loss(outputs, ignored_outputs(trainer.model), has_loss=True))
        labels = find_labels(batch, trainer.label_names, callable(trainer.compute_loss_func))
        if not answers or labels is None:
            return [], None
        return answers, comm.move_to_device(labels, answers[0].device)


def join_parts(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of several that the collator made of a sample, such as a good and a bad answer."""
    if len(parts) == 1:
        return parts[0]
    names = [name for name in parts[0] if name in ("input", "target", "prediction")]
    told = {name: [part.get(name) for part in parts[:MOST_PARTS]] for name in names}
    return {
        name: None if values[0] is None else " | ".join(map(str, values)) for name, values in told.items()
    }


def find_precision(trainer: Training, answer: torch.Tensor) -> torch.dtype:
    """The lowest precision that went into an answer, as far as settings and weights tell."""
    if trainer.args.mixed_precision != "no":
        return torch.bfloat16
    kinds = {parameter.dtype for parameter in trainer.model.parameters()}
    return next((kind for kind in HALF if kind in kinds), answer.dtype)


def take_row(rows: NumberedRows, place: int) -> Any:
    """One row of a batch, in memory of its own: a part of the batch would keep all of it."""
    num_rows = comm.find_batch_size(rows.batch)
    if num_rows != len(rows.numbers):
        return rows.batch
    row = comm.take_rows(rows.batch, slice(place, place + 1), num_rows)
    return comm.map_nested(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, row)


def prepare_data(trainer: Training, dataset: Any) -> tuple[Any, Callable[[list[Any]], Any]]:
    """Dataset and collator, without the columns that nothing names, as training reads them."""
    if columns.can_drop_columns(dataset) and not is_stream(dataset):
        return trainer._remove_unused_columns(dataset, "Training"), trainer.data_collator
    return dataset, trainer._get_collator_with_removed_columns(trainer.data_collator, "Training")


def meets_inside(trainer: Training) -> bool:
    """Whether processes exchange something in forward or in the loss."""
    if trainer._strategy.shards:
        return True
    joints = (trainer.compute_loss, trainer._prepare_inputs)
    return any(not traits.is_ours(joint) and may_exchange(joint, trainer) for joint in joints)


def join(own: Outcome, search: Search, seconds: float) -> HardestRows:
    """What all processes found, in the order of the dataset."""
    outcomes = comm.gather_objects(own) if search.is_shared else [own]
    numbers = np.concatenate([outcome.numbers for outcome in outcomes])
    losses = np.concatenate([outcome.losses for outcome in outcomes])
    rows = [row for outcome in outcomes for row in outcome.rows]
    rows.sort(key=lambda row: (-rank_of(row["loss"]), row["row"]))
    # the exact losses, in the place of those that are the same but for rounding
    exact = {row["row"]: row["loss"] for row in rows}
    order = np.argsort(numbers, kind="stable")
    numbers, losses = numbers[order], losses[order]
    losses[np.searchsorted(numbers, list(exact))] = list(exact.values())
    found = HardestRows(
        rows=rows[: search._count],
        indices=numbers,
        losses=losses,
        total=search.total,
        seconds=seconds,
        num_unlabelled=sum(outcome.num_unlabelled for outcome in outcomes),
        passes=search.passes,
        is_whole=all(outcome.is_whole for outcome in outcomes),
    )
    limit = found.limit
    for row in found.rows:
        row["outlier"] = rank_of(row["loss"]) > (limit if limit is not None else -np.inf)
    return found
