"""Batches by tokens: within their budget, every sample once, and exact from any position."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import ranks
import tiny
from footplate import Trainer, TrainerCallback
from footplate.data.order import RandomOrder
from footplate.data.shares import DIVIDE, FILL, Ranks, deal_rounds
from footplate.data.tokens import TokenBatches, TokenBudgetOrder, plan_rounds

NUM_ROWS, BUDGET = 61, 40


def long_tailed(num_samples: int) -> np.ndarray:
    """Lengths as text has them: most short, a few very long."""
    return np.clip(np.random.default_rng(0).lognormal(3, 1, num_samples), 1, None).astype(np.int64)


LENGTHS = long_tailed(500)


# ---- the order ----


@pytest.mark.parametrize("budget", [1, 30, 256, 4096, 10**6])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_every_sample_comes_once_and_no_batch_passes_the_budget(budget, num_ranks):
    order = TokenBudgetOrder(LENGTHS, budget, seed=5, num_ranks=num_ranks)
    for epoch in range(3):
        order.set_epoch(epoch)
        batches = list(TokenBatches(order))
        assert sorted(index for batch in batches for index in batch) == list(range(500))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * LENGTHS[batch].max() <= budget


@pytest.mark.parametrize("budget", [30, 256, 4096])
def test_every_epoch_has_as_many_batches_as_said_and_others_in_them(budget):
    order = TokenBudgetOrder(LENGTHS, budget, seed=5)
    epochs = [order.rounds(epoch) for epoch in range(4)]
    assert {len(rounds) for rounds in epochs} == {order.num_rounds} == {len(TokenBatches(order))}
    sets = [{frozenset(rows) for rows in rounds if len(rows) > 1} for rounds in epochs]
    for earlier, later in itertools.pairwise(sets):
        assert len(earlier & later) < 0.25 * len(later)


def test_the_longest_batch_comes_first_and_the_others_in_no_order_of_length():
    rounds = TokenBudgetOrder(LENGTHS, 256, seed=1).rounds(0)
    longest = [int(LENGTHS[rows].max()) for rows in rounds]
    assert longest[0] == max(LENGTHS)
    assert longest != sorted(longest, reverse=True)


def test_short_rows_fill_the_budget():
    order = TokenBudgetOrder(long_tailed(20000), 2048)
    rounds, lengths = order.rounds(0), order.lengths.numpy()
    used = sum(int(lengths[rows].sum()) for rows in rounds)
    padded = sum(len(rows) * int(lengths[rows].max()) for rows in rounds)
    assert used / padded > 0.95
    assert padded / (len(rounds) * 2048) > 0.93


def test_a_row_longer_than_the_budget_is_a_batch_by_itself():
    rounds = TokenBudgetOrder([3, 50, 4, 60, 3], 12).rounds(0)
    assert [1] in rounds
    assert [3] in rounds
    assert sorted(map(len, rounds)) == [1, 1, 3]


def test_an_order_of_nothing_has_no_batch():
    order = TokenBudgetOrder([], 8)
    assert order.num_rounds == len(order) == len(order.rounds(0)) == 0


@pytest.mark.parametrize("position", [0, 1, 17, 250, 499, 500])
def test_seeking_is_a_slice_of_the_flat_order(position):
    order = TokenBudgetOrder(LENGTHS, 256, seed=3)
    order.set_epoch(2)
    whole = list(order)
    order.seek(position)
    assert [index for rows in order.draw_rounds() for index in rows] == whole[position:]
    assert list(order) == whole  # the next pass is a whole one


def test_an_epoch_that_began_under_other_settings_is_finished_under_them():
    old, new = TokenBudgetOrder(LENGTHS, 256, seed=3), TokenBudgetOrder(LENGTHS, 512, seed=4)
    new.seek(100, old.settings())
    assert [index for rows in new.draw_rounds() for index in rows] == list(old)[100:]


def test_the_size_of_a_batch_follows_its_longest_row():
    assert plan_rounds([30, 10, 10, 4, 4, 4, 4, 4, 4], 20) == [1, 2, 5, 1]
    assert plan_rounds([30, 10, 10, 4, 4, 4, 4, 4, 4], 20, num_ranks=2) == [2, 4, 3]


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="max_tokens=0 holds no row"):
        TokenBudgetOrder([1, 2], 0)


# ---- shares of several processes ----


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("ending", [FILL, DIVIDE])
def test_every_rank_gets_as_many_batches_and_all_rows_come(num_ranks, ending):
    order = TokenBudgetOrder(LENGTHS, 256, num_ranks=num_ranks)
    shares = []
    for rank in range(num_ranks):
        turns = [turn for turn, _ in deal_rounds(order.draw_rounds(), Ranks(rank, num_ranks, ending))]
        assert len(turns) == order.num_rounds
        assert sum(turn.num_round for turn in turns) == 500
        assert all(len(turn.rows) * LENGTHS[turn.rows].max() <= 256 or len(turn.rows) == 1 for turn in turns)
        shares.append(turns)
    own = [index for turns in shares for turn in turns for index in turn.rows[: turn.num_own]]
    assert sorted(own) == list(range(500))
    given = sum(len(turn.rows) for turns in shares for turn in turns)
    assert given == 500 + (-500 % num_ranks if ending == FILL else 0)
    for turns in zip(*shares, strict=True):  # a round has the mean loss of its rows
        assert sum(turn.weight for turn in turns) == pytest.approx(num_ranks)


# ---- real runs ----


class Texts(Dataset):
    """Rows of different lengths, with noise that is drawn when they are read."""

    def __init__(self, num_rows: int = NUM_ROWS) -> None:
        self.lengths = [1 + (7 * index) % 23 for index in range(num_rows - 1)] + [BUDGET + 10]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        length = self.lengths[index]
        ids = (torch.arange(length) + index) % 20
        return {"input_ids": ids, "noise": float(torch.rand(())), "labels": index % 3, "id": index}


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    batch = {name: torch.tensor([row[name] for row in rows]) for name in ("noise", "labels", "id")}
    ids = nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=0)
    return {"input_ids": ids, **batch}


class Classifier(nn.Module):
    """Classes from token ids, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.drop, self.last = nn.Embedding(20, 8), nn.Dropout(0.3), nn.Linear(8, 3)

    def forward(self, input_ids: torch.Tensor, noise: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        hidden = self.words(input_ids).mean(dim=1) + noise[:, None]
        logits = self.last(self.drop(hidden))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Recorder(Trainer):
    """Notes the rows and the padded size of each micro-batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[list[int]] = []
        self.sizes: list[tuple[int, ...]] = []
        super().__init__(*args, **kwargs)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        self.seen.append(inputs["id"].tolist())
        self.sizes.append(tuple(inputs["input_ids"].shape))
        return super().training_step(model, inputs, num_items_in_batch)


class Terminate(TrainerCallback):
    """Sends this process SIGTERM after an update."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.after:
            os.kill(os.getpid(), signal.SIGTERM)


def build(folder: Any, *callbacks: TrainerCallback, data: Any = None, **settings: Any) -> Recorder:
    given = {"per_device_train_tokens": BUDGET, "num_train_epochs": 2, "save_strategy": "steps"}
    given |= {"learning_rate": 0.01, "keep_columns": ["id"], "save_steps": 1000, "logging_steps": 3}
    args = tiny.arguments(folder, **{**given, **settings})
    data = Texts() if data is None else data
    return Recorder(Classifier(), args, train_dataset=data, data_collator=collate, callbacks=[*callbacks])


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_run_of_two_epochs_reads_every_row_twice_in_the_updates_it_planned(tmp_path, accumulation):
    trainer = build(tmp_path, gradient_accumulation_steps=accumulation)
    trainer.train()
    per_epoch = len(trainer.get_train_dataloader())
    assert len(trainer.seen) == 2 * per_epoch
    for epoch in (trainer.seen[:per_epoch], trainer.seen[per_epoch:]):
        assert sorted(index for batch in epoch for index in batch) == list(range(NUM_ROWS))
    assert trainer.state.global_step == trainer.state.max_steps == 2 * -(-per_epoch // accumulation)
    assert trainer.state.epoch == 2
    assert set(trainer.lr_scheduler.get_last_lr()) == {0}
    assert all(rows * length <= BUDGET or rows == 1 for rows, length in trainer.sizes)
    assert max(rows for rows, _ in trainer.sizes) > 8  # the number that rows alone would be cut by


def test_a_run_by_steps_counts_the_samples_of_its_share_of_an_epoch(tmp_path):
    per_epoch = len(build(tmp_path).get_train_dataloader())
    trainer = build(tmp_path, max_steps=per_epoch)
    metrics = trainer.train().metrics
    assert metrics["epoch"] == 1
    rate = metrics["train_samples_per_second"] / metrics["train_steps_per_second"]
    assert rate == pytest.approx(NUM_ROWS / per_epoch, rel=0.05)


def outcome(trainer: Recorder) -> tuple[Any, ...]:
    history = [
        {name: value for name, value in entry.items() if not name.endswith(("runtime", "per_second"))}
        for entry in trainer.state.log_history
    ]
    weights = {name: value.tolist() for name, value in trainer.model.state_dict().items()}
    return weights, history


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("stop", [3, 9])
def test_a_run_cut_inside_an_epoch_goes_on_to_the_last_bit(tmp_path, workers, accumulation, stop):
    settings = {"dataloader_num_workers": workers, "gradient_accumulation_steps": accumulation}
    whole = build(tmp_path / "whole", **settings)
    whole.train()
    cut = build(tmp_path / "cut", Terminate(stop), **settings)
    with pytest.raises(SystemExit):
        cut.train()
    rest = build(tmp_path / "cut", **settings)
    rest.train(resume_from_checkpoint=True)
    assert cut.state.global_step == stop
    assert cut.seen + rest.seen == whole.seen
    assert outcome(rest) == outcome(whole)


def test_workers_change_nothing_about_which_rows_come_together(tmp_path):
    trainers = []
    for workers in (0, 1, 2):
        trainers.append(build(tmp_path / str(workers), dataloader_num_workers=workers))
        trainers[-1].train()
    assert trainers[0].seen == trainers[1].seen == trainers[2].seen
    assert outcome(trainers[1]) == outcome(trainers[2])


def test_two_processes_get_as_many_batches_and_go_on_to_the_last_bit(tmp_path):
    result = ranks.torchrun(Path(__file__).with_name("token_processes.py"), str(tmp_path))
    assert result.code == 0, result.output[-4000:]
    assert result.output.count("equal") == 2


# ---- what cannot work ----


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter([{"input_ids": [1, 2], "labels": 0}])


class Unmeasured(Dataset):
    """Rows with an index and without a number of them."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": [1, 2], "labels": 0}


@pytest.mark.parametrize(("data", "words"), [(Stream(), "is a stream"), (Unmeasured(), "without a length")])
def test_data_that_cannot_be_planned_is_refused(tmp_path, data, words):
    trainer = build(tmp_path, data=data, max_steps=3)
    with pytest.raises(ValueError, match=f"per_device_train_tokens=40.*{words}.*per_device_train_batch_size"):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"x": 1.0}] * 4, "neither a length column 'length' nor the model input 'input_ids' among.*'x'"),
        ([(1, 2)] * 4, "needs samples that are dictionaries; this dataset gives tuple"),
    ],
)
def test_rows_without_a_length_are_refused(tmp_path, rows, words):
    trainer = build(tmp_path, data=rows)
    with pytest.raises(ValueError, match=f"{words}.*leave per_device_train_tokens unset"):
        trainer.train()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy='group_by_length'"),
        (
            {"train_sampling_strategy": "weighted", "sample_weights": "w"},
            "train_sampling_strategy='weighted'",
        ),
        ({"train_sampling_strategy": "sequential"}, "train_sampling_strategy='sequential'"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last=True"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches"),
    ],
)
def test_a_setting_that_cuts_in_another_way_is_refused(tmp_path, settings, words):
    with pytest.raises(ValueError, match=f"per_device_train_tokens=40 cannot go together with .*{words}"):
        tiny.arguments(tmp_path, per_device_train_tokens=40, **settings)


@pytest.mark.parametrize("value", [0, -3, 1.5])
def test_a_budget_that_is_no_number_of_tokens_is_refused(tmp_path, value):
    with pytest.raises(ValueError, match=r"per_device_train_tokens=.*a whole number of 1 or more, or None"):
        tiny.arguments(tmp_path, per_device_train_tokens=value)


def test_another_budget_is_refused_when_a_run_goes_on(tmp_path):
    cut = build(tmp_path, Terminate(3))
    with contextlib.suppress(SystemExit):
        cut.train()
    with pytest.raises(ValueError, match="per_device_train_tokens"):
        build(tmp_path, per_device_train_tokens=2 * BUDGET).train(resume_from_checkpoint=True)


def test_rows_longer_than_the_budget_are_named(tmp_path, caplog):
    build(tmp_path).get_train_dataloader()
    assert f"1 of {NUM_ROWS} rows are longer than per_device_train_tokens=40, up to 50" in caplog.text


def test_an_own_order_is_left_as_it_is(tmp_path):
    class Own(Recorder):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return RandomOrder(NUM_ROWS)

    args = tiny.arguments(tmp_path, per_device_train_tokens=BUDGET, keep_columns=["id"], num_train_epochs=1)
    trainer = Own(Classifier(), args, train_dataset=Texts(), data_collator=collate)
    trainer.train()
    assert {len(batch) for batch in trainer.seen} == {8, NUM_ROWS % 8}
    assert trainer.state.global_step == -(-NUM_ROWS // 8)
