"""Between two logs nothing is read from the device: a read would make the host wait for it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tiny
from footplate import Trainer, TrainerCallback

ATEN = torch.ops.aten
# operators whose result the host must know before it can go on: a number, or a shape that depends on values
WAITING = {
    *(ATEN._local_scalar_dense.default, ATEN.equal.default, ATEN.is_nonzero.default, ATEN.nonzero.default),
    *(ATEN.masked_select.default, ATEN._unique2.default, ATEN.repeat_interleave.Tensor),
}
# methods that copy to the host without an operator of their own, on a CPU
COPYING = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu}


class HostReads(TorchDispatchMode):
    """Counts reads of tensors by the host: `.item()`, `float(t)`, `if t`, `.tolist()`, `t[mask]`, ..."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._copies = Copies(self.found)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_mask = func is ATEN.index.Tensor and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if func in WAITING or is_mask:
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> HostReads:
        self._copies.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._copies.__exit__(*error)


class Copies(TorchFunctionMode):
    """Counts the copies that no operator shows."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in COPYING:
            self.found.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Marks(TrainerCallback):
    """Notes at the begin and end of each update how many reads there were."""

    def __init__(self) -> None:
        self.reads: HostReads | None = None
        self.steps: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(len(self.reads.found))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(len(self.reads.found))


class Recording(Trainer):
    """Records a part of its loss."""

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.record("part", loss)
        return (loss, outputs) if return_outputs else loss


def train(tmp_path, settings):
    """The reads of a run in order, and their number at the begin and end of each update."""
    chosen = {"max_steps": 100, "logging_steps": 50, "max_grad_norm": 1.0, **settings}
    args = tiny.arguments(tmp_path, **chosen)
    rows = tiny.regression_data(8 * 100 * args.gradient_accumulation_steps)  # one epoch
    marks = Marks()
    trainer = Recording(tiny.Regression(), args, train_dataset=rows, callbacks=[marks])
    with HostReads() as reads:
        marks.reads = reads
        trainer.train()
    return reads.found, marks.steps


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 4},
        {"on_nonfinite": "warn"},
        {"gradient_accumulation_steps": 3, "on_nonfinite": "warn", "loss_weighting": "items"},
        {"include_num_input_tokens_seen": "all"},
        {"optim": "sgd"},
        {"max_grad_norm": 0.0},
    ],
    ids=str,
)
def test_a_hundred_updates_read_nothing_and_a_log_reads_at_most_twice(tmp_path, settings):
    found, steps = train(tmp_path, settings)
    assert len(steps) == 200
    for begin, end in zip(steps[::2], steps[1::2], strict=True):
        assert found[begin:end] == []
    between = [end - begin for begin, end in zip(steps[1::2], steps[2::2], strict=False)]
    logs, others = between[49::50], [count for place, count in enumerate(between) if place % 50 != 49]
    assert set(others) == {0}
    assert all(count <= 2 for count in logs), found


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 4}], ids=str)
def test_measuring_modules_reads_once_in_each_measured_update_and_nothing_in_others(tmp_path, settings):
    found, steps = train(tmp_path, {"module_stats_steps": 10, **settings})
    reads = [found[begin:end] for begin, end in zip(steps[::2], steps[1::2], strict=True)]
    assert reads[9::10] == [["tolist"]] * 10
    assert not any(read for place, read in enumerate(reads, start=1) if place % 10)


def test_a_read_is_seen():
    value = torch.ones(3)
    with HostReads() as reads:
        float(value[0])
        bool(value[1] > 0)
        value.tolist()
        value[value > 0]
        torch.nonzero(value)
        value.sum() + 1
    assert len(reads.found) == 5


class Steps(Trainer):
    """Notes the reads of each batch of an evaluation."""

    reads: HostReads
    seen: list[int]

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(len(self.reads.found))
        return super().prediction_step(*args, **kwargs)


@pytest.mark.parametrize("is_ragged", [False, True])
def test_an_evaluation_copies_each_array_once_per_batch_and_reads_no_number(tmp_path, is_ragged):
    """Predictions leave as numpy: one copy of each array per batch, and nothing else that waits."""
    trainer = Steps(
        tiny.Regression(),
        tiny.arguments(tmp_path, per_device_eval_batch_size=8),
        eval_dataset=tiny.regression_data(8 * 20 + (3 if is_ragged else 0)),
        compute_metrics=lambda prediction: {"mean": float(prediction.predictions.mean())},
    )
    trainer.seen = []
    with HostReads() as trainer.reads:
        trainer.evaluate()
    seen, found = trainer.seen, trainer.reads.found
    assert len(seen) == (21 if is_ragged else 20)
    between = [found[begin:end] for begin, end in pairwise(seen[2:])]
    assert not {name for part in between for name in part} - {"numpy", "cpu"}
    assert max(map(len, between)) <= 4
