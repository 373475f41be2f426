"""`Evaluation`: all that lives as long as one evaluation or prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from footplate import comm
from footplate.arguments import TrainingArguments
from footplate.data.shares import Turn
from footplate.evaluation import metrics as metric_tools
from footplate.evaluation.rows import RowColumns
from footplate.evaluation.streaming import StreamingMetrics, check_is_object, is_streaming
from footplate.outputs import EvalPrediction
from footplate.training.meter import Records

if TYPE_CHECKING:
    from footplate.evaluation.collector import Collector


class Evaluation:
    """One pass over a set, or a round of such passes over several sets.

    Args:
        dataset: What is evaluated; the sets by name for a round; None if it is not known.
        name: Which of several sets it is.
        prefix: What every key of its metrics begins with.
        outer: The evaluation inside which this one happens: a round, or one whose callbacks asked for it.
    """

    def __init__(
        self,
        dataset: Any = None,
        name: str | None = None,
        prefix: str = "eval",
        outer: Evaluation | None = None,
    ) -> None:
        self.dataset, self.name, self.prefix = dataset, name, prefix
        is_part = outer is not None and outer.take_request()
        self.is_in_round = is_part and outer is not None and isinstance(outer.dataset, dict)
        # asked for by the training loop, which goes by its metrics to find the best model
        self.is_scheduled: bool = is_part and outer is not None and outer.is_scheduled
        self.is_asking = False  # the next evaluation inside this one is a part of it
        # a signal may end it: the loop, which asked for it, makes it again after a resume
        self.is_repeatable: bool = outer is not None and outer.is_repeatable
        # a kind of note and its values, from a trainer that knows more of the answers than their classes
        self.describe_answers: Callable[[], tuple[str, dict[str, Any] | None]] | None = None
        self.records: Records | None = None  # what record() gives, while batches go by
        self.ignored_outputs: list[str] | None = None  # those of the model, looked up with the first batch
        self.batch_weight = 1.0  # rows or items of the batch under way
        self.weight = 0.0  # rows or items of the whole pass; of a round, those of its last pass

    @property
    def holds_round(self) -> bool:
        """Whether it is a round over several sets, or one of them."""
        return self.is_in_round or isinstance(self.dataset, dict)

    def take_request(self) -> bool:
        """Whether the evaluation that begins now is a part of this one, once: one of a callback is not."""
        is_asking, self.is_asking = self.is_asking, False
        return is_asking

    def weigh_batch(self, num_rows: int | None, num_items: float | None, turn: Turn | None) -> None:
        """Note the rows or items of the batch under way that count here."""
        self.batch_weight = float((num_rows or 1) if num_items is None else num_items)
        if turn is not None and turn.num_own < (num_rows or 0):  # others of its rows count elsewhere
            self.batch_weight *= turn.num_own / (num_rows or 1)

    def record(self, name: str, value: torch.Tensor | float) -> None:
        """Take an extra scalar, averaged over rows or items."""
        assert self.records is not None
        self.records.add(name, value, self.batch_weight, self.batch_weight)

    def describe(self, collector: Collector, named: list[str]) -> EvalPrediction:
        """All that was collected, and the rows that it is about, as `compute_metrics` gets it."""
        indices = collector.indices
        rows = None
        if self.dataset is not None and indices is not None:
            rows = RowColumns(self.dataset, indices)
        return EvalPrediction(
            collector.predictions,
            collector.labels,
            inputs=collector.inputs if "inputs" in named else None,
            losses=collector.losses,
            unpacks_losses="loss" in named,
            columns=rows,
            indices=indices,
            dataset_name=self.name,
        )


class BatchResult(NamedTuple):
    """What an evaluation has of one batch; None for what is not asked for."""

    num_rows: int | None
    loss: Any
    logits: Any
    labels: Any
    inputs: Any = None  # the main input

    def join(self, gather: Callable[[Any], Any] | None) -> BatchResult:
        """Joined with those of other processes, where a loader of the user's own shares out the batches."""
        if gather is None:
            return self
        num_rows, loss, *parts = self
        joined = [None if part is None else gather(part) for part in parts]
        if comm.world_size() > 1 and loss is not None:
            loss = gather(loss.repeat(num_rows or 1))  # once per row, since ranks may have more or fewer
            num_rows = len(loss)
        return BatchResult(num_rows, loss, *joined)

    def keep_own(self, turn: Turn) -> BatchResult:
        """Without the rows that count on other ranks."""
        num_rows, loss, *parts = self
        if turn.num_own == num_rows:
            return self
        if turn.num_own == 0:
            return BatchResult(0, None, None, None)
        kept = [comm.take_rows(part, slice(0, turn.num_own), num_rows) for part in parts]
        return BatchResult(turn.num_own, loss, *kept)


class BatchMetrics:
    """What measures an evaluation batch by batch: metric objects, or a function called for every batch.

    Args:
        compute_metrics: As it was given to the Trainer.
        args: Whether a function is called for every batch, and what it gets besides predictions.
        device: Where metric objects are moved to.
    """

    def __init__(self, compute_metrics: Any, args: TrainingArguments, device: torch.device) -> None:
        check_is_object(compute_metrics)
        self._stream = StreamingMetrics(compute_metrics, device) if is_streaming(compute_metrics) else None
        self._function: Callable[..., dict[str, Any]] | None = (
            compute_metrics if args.batch_eval_metrics and self._stream is None else None
        )
        self._named = args.include_for_metrics
        self._on_all = args.metrics_on == "every_rank"
        self._result: dict[str, Any] = {}
        self._has_begun = False
        self.are_used = args.batch_eval_metrics or self._stream is not None

    @property
    def need_all_ranks(self) -> bool:
        """Whether every rank must compute the metrics, since they exchange something then."""
        return self._stream is not None and self._stream.some_merge

    def update(
        self, inputs: Any, result: BatchResult, name: str | None, is_last: bool, turn: Turn | None = None
    ) -> None:
        """Take in one batch; of a function, only its answer to the last one counts.

        Args:
            inputs: The batch.
            result: What the model made of it.
            name: Which of several sets it is.
            is_last: Whether no batch follows.
            turn: How the batch is shared with other ranks: they then give their rows too.
        """
        if not self.are_used:
            return
        if turn is None:
            if self._stream is not None:
                self._stream.stop_merging()  # the result is that of all processes
            self._take(inputs, result, name, is_last)
            return
        is_first, self._has_begun = not self._has_begun, True
        if is_first and self.need_all_ranks and comm.sum_integers([turn.num_own == 0])[0]:
            assert self._stream is not None
            self._stream.stop_merging()
        if self._stream is not None and result.logits is not None and result.labels is not None:
            self._stream.update(result.logits, result.labels, merging=True)
        if self._stream is None or not self._stream.all_merge:
            inputs = comm.take_rows(inputs, slice(0, turn.num_own), comm.find_batch_size(inputs))
            own = None if turn.num_own == 0 else (inputs, result)
            gather = comm.gather_objects if self._on_all else comm.gather_objects_to_first
            # one after the other, as one process would see them
            parts = [part for part in gather(own) or [] if part is not None]
            for number, (given, found) in enumerate(parts, start=1):
                self._take(given, found, name, is_last and number == len(parts), merging=False)

    def _take(
        self, inputs: Any, result: BatchResult, name: str | None, is_last: bool, merging: bool | None = None
    ) -> None:
        """Take in a batch of one process."""
        _, loss, logits, labels, _ = result
        if logits is None or labels is None:
            return
        if self._stream is not None:
            self._stream.update(logits, labels, merging)
        elif self._function is not None:
            prediction = EvalPrediction(
                logits,
                labels,
                inputs=inputs if "inputs" in self._named else None,
                losses=loss if "loss" in self._named else None,
                dataset_name=name,
            )
            self._result = self._function(prediction, compute_result=is_last) or {}

    def compute(self) -> dict[str, Any]:
        """The metrics of all batches."""
        return metric_tools.check_metrics(
            self._stream.compute() if self._stream is not None else self._result
        )
