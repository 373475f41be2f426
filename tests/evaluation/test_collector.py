"""The collector against the original's evaluation loop, run for real."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from footplate.comm import find_batch_size, map_nested
from footplate.evaluation.collector import Collector


class Ragged(nn.Module):
    """As many scores as the widest sample of the batch is long, so that widths change between batches."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(1, dtype=dtype))

    def forward(self, x, labels=None):
        scores = x.to(self.weight.dtype) * self.weight
        loss = (scores.sum(-1) - labels).pow(2).mean()
        return {"loss": loss, "logits": scores, "extra": (scores[:, 0], scores.sum())}


def ragged_rows(num_rows):
    generator = torch.Generator().manual_seed(1)
    return [
        {"x": torch.randn(1 + i % 5, generator=generator), "labels": torch.randn((), generator=generator)}
        for i in range(num_rows)
    ]


def pad_rows(rows):
    padded = nn.utils.rnn.pad_sequence([row["x"] for row in rows], batch_first=True)
    return {"x": padded, "labels": torch.stack([row["labels"] for row in rows])}


def evaluate_with_both(tmp_path, dtype=torch.float32, num_rows=23, batch_size=4, concat=True):
    """The original's evaluation, and a collector that is given the very same batches."""
    arguments = TrainingArguments(
        tmp_path,
        per_device_eval_batch_size=batch_size,
        eval_do_concat_batches=concat,
        include_for_metrics=["inputs", "loss"],
        remove_unused_columns=False,
        report_to="none",
        use_cpu=True,
    )
    collector = Collector(num_rows, batch_size, concat=concat)
    seen = {}

    class Recording(Trainer):
        def prediction_step(self, model, inputs, *args, **kwargs):
            loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
            rows = find_batch_size(inputs)
            collector.add(losses=loss, predictions=logits, labels=labels, inputs=inputs["x"], num_rows=rows)
            return loss, logits, labels

    def metrics(prediction):
        seen.update(inputs=prediction.inputs, losses=prediction.losses)
        return {}

    model = Ragged(dtype)
    model.main_input_name = "x"
    trainer = Recording(model, arguments, data_collator=pad_rows, compute_metrics=metrics)
    return trainer.predict(ragged_rows(num_rows)), seen, collector


def assert_equal(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_equal(our_item, their_item)
    else:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("num_rows", "batch_size"), [(23, 4), (24, 4), (3, 8), (7, 1)])
def test_everything_an_evaluation_gathers_is_the_originals(tmp_path, dtype, num_rows, batch_size, concat):
    output, seen, collector = evaluate_with_both(tmp_path, dtype, num_rows, batch_size, concat)
    assert_equal(collector.predictions, output.predictions)
    assert_equal(collector.labels, output.label_ids)
    assert_equal(collector.inputs, seen["inputs"])
    assert_equal(collector.losses, seen["losses"])
    assert collector.loss == output.metrics["test_loss"]  # to the last bit
    assert collector.num_observed == collector.num_samples == num_rows


def test_what_was_never_added_is_none():
    collector = Collector(10, 2)
    collector.add(predictions=torch.ones(2), num_rows=2)
    assert (collector.labels, collector.inputs, collector.losses, collector.loss) == (None, None, None, None)
    assert collector.num_observed == 2


def test_rows_are_counted_where_the_length_is_unknown():
    collector = Collector(None, 4)
    for rows in (4, 4, 1):
        collector.add(losses=torch.tensor(1.0), num_rows=rows)
    assert collector.num_samples == 9


def test_a_batch_that_has_no_rows_counts_as_a_full_one():
    collector = Collector(batch_size=3)
    collector.add(losses=torch.tensor(1.0))
    collector.add(losses=torch.tensor(5.0), num_rows=1)
    assert collector.losses.tolist() == [1, 1, 1, 5]
    assert collector.loss == 2
    assert collector.num_observed == 1


def test_a_loss_per_row_is_kept_as_it_is():
    collector = Collector(batch_size=2)
    collector.add(losses=torch.tensor([1.0, 2.0]), num_rows=2)
    collector.add(losses=torch.tensor(6.0), num_rows=1)
    assert collector.losses.tolist() == [1, 2, 6]
    assert collector.loss == 3


def test_weighed_by_items_the_loss_does_not_depend_on_the_batch_size():
    torch.manual_seed(0)
    samples = [torch.rand(length, dtype=torch.float64) for length in (3, 1, 7, 2, 5, 4, 4, 9)]
    results = set()
    for batch_size in (1, 3, 8):
        collector = Collector(len(samples), batch_size, loss_weighting="items")
        for start in range(0, len(samples), batch_size):
            items = torch.cat(samples[start : start + batch_size])
            rows = len(samples[start : start + batch_size])
            collector.add(losses=items.mean(), num_rows=rows, num_items=torch.tensor(len(items)))
        results.add(round(collector.loss, 12))
    assert results == {round(torch.cat(samples).mean().item(), 12)}


def test_a_batch_without_items_does_not_spoil_the_loss():
    collector = Collector(loss_weighting="items")
    collector.add(losses=torch.tensor(float("nan")), num_rows=2, num_items=0)
    assert np.isnan(collector.loss)
    collector.add(losses=torch.tensor(3.0), num_rows=2, num_items=5)
    assert collector.loss == 3


def test_without_a_count_of_items_rows_are_the_items():
    collector = Collector(loss_weighting="items")
    collector.add(losses=torch.tensor(1.0), num_rows=1)
    collector.add(losses=torch.tensor(4.0), num_rows=2)
    assert collector.loss == 3


def test_more_rows_than_announced_are_kept():
    collector = Collector(3, 2)
    for start in (0, 2, 4):
        collector.add(predictions=torch.arange(start, start + 2), num_rows=2)
    assert collector.predictions.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("concat", [True, False])
def test_past_the_limit_the_same_arrays_come_from_files(tmp_path, concat):
    def collect(**settings):
        torch.manual_seed(0)
        collector = Collector(30, 3, concat=concat, **settings)
        for i in range(10):
            logits = (torch.randn(3, 1 + i % 4, 2), torch.randn(3).bfloat16())
            collector.add(predictions=logits, labels=torch.randint(9, (3,)), num_rows=3)
        return collector

    spilled, plain = collect(memory_limit=100, spill_folder=tmp_path), collect()
    ours = spilled.predictions if concat else spilled.predictions[4]
    assert isinstance(ours[0], np.memmap)
    assert not list(tmp_path.iterdir())
    assert_equal(map_nested(np.array, spilled.predictions), plain.predictions)
    assert_equal(map_nested(np.array, spilled.labels), plain.labels)
    ours[0][:] = 7  # the metrics function may write to what it is given
    assert np.all(ours[0] == 7)


@pytest.mark.parametrize("loss_weighting", [None, "items"])
def test_thousands_of_losses_wait_in_one_tensor(loss_weighting):
    torch.manual_seed(0)
    losses = torch.rand(2500)
    collector = Collector(batch_size=3, loss_weighting=loss_weighting)
    for loss in losses:
        collector.add(losses=loss, num_rows=3, num_items=torch.tensor(2))
        assert len(collector._losses._pending) <= 1001
    np.testing.assert_array_equal(collector.losses, losses.repeat_interleave(3))
    if loss_weighting is None:
        assert collector.loss == float(losses.repeat_interleave(3).numpy().mean())
        assert collector.weight == 7500
    else:
        assert collector.loss == sum(2 * loss for loss in losses.double().tolist()) / 5000
        assert collector.weight == 5000


def test_indices_are_of_the_rows_that_were_added_though_the_loader_read_ahead():
    collector = Collector(10, find_rows=lambda: np.array([7, 3, 9, 1]))
    collector.add(predictions=torch.zeros(2, 1), num_rows=2)
    assert collector.indices.tolist() == [7, 3]
    assert Collector(10).indices is None


@pytest.mark.parametrize(
    ("finite_only", "values", "expected"),
    [(True, [1.0, math.nan, 3.0], 2.0), (False, [1.0, math.inf], math.inf), (True, [math.inf], math.inf)],
)
def test_losses_that_are_not_finite_are_left_out_with_a_warning(finite_only, values, expected, caplog):
    collector = Collector(batch_size=2, finite_only=finite_only)
    for value in values:
        collector.add(losses=torch.tensor(value), num_rows=2)
    assert collector.loss == expected
    assert ("2 of 6 rows" in caplog.text) == (expected == 2.0)
