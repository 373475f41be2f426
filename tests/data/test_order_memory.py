"""The notice of an order that takes much memory, and the setting that decides when it comes."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

import tiny
from footplate import Trainer
from footplate.data import order_memory
from footplate.data.order import RandomOrder
from footplate.data.order_memory import BYTES_PER_ROW, parse_order_limit
from footplate.data.samplers import SAMPLING_STRATEGIES, build_order


class Rows:
    """A dataset of which only the length is asked for."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows


def build(num_rows: int, limit: object = "4GB", strategy: str = "random", should_log: bool = True) -> None:
    args = SimpleNamespace(seed=1, data_seed=None, order_memory_limit=limit, should_log=should_log)
    build_order(strategy, Rows(num_rows), args, batch_size=8)


@pytest.fixture(autouse=True)
def nothing_said_yet():
    order_memory._warn.cache_clear()


def test_an_order_beyond_the_limit_is_named_once_with_its_size_and_the_setting(caplog):
    for _ in range(2):
        build(10**9)
    (record,) = caplog.records
    text = record.getMessage()
    assert record.levelname == "WARNING"
    assert "1,000,000,000 samples takes 48 GB of memory" in text
    assert 'train_sampling_strategy="keyed"' in text
    assert "order_memory_limit=4 GB" in text
    build(2 * 10**9)
    assert len(caplog.records) == 2


def test_the_notice_says_what_the_keyed_order_does_not_do(caplog):
    weights = Rows(10**9)
    args = SimpleNamespace(seed=1, data_seed=None, order_memory_limit="4GB", should_log=True)
    with pytest.raises(TypeError):  # these weights cannot be read, but the notice comes first
        build_order("weighted", Rows(10**9), args, batch_size=8, weights=weights)
    assert "neither weighs samples nor groups them" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"num_rows": 4 * 10**9 // BYTES_PER_ROW},
        {"num_rows": 10**9, "limit": None},
        {"num_rows": 10**9, "limit": "1TB"},
        {"num_rows": 10**9, "limit": 48 * 10**9},
        {"num_rows": 10**9, "strategy": "keyed"},
        {"num_rows": 10**9, "strategy": "sequential"},
        {"num_rows": 10**9, "should_log": False},
    ],
    ids=str,
)
def test_nothing_is_said_within_the_limit_or_without_memory(settings, caplog):
    build(**settings)
    assert not caplog.records


@pytest.mark.parametrize(
    ("value", "num_bytes"), [("4GB", 4 * 10**9), ("512MiB", 2**29), (1000, 1000), (None, None)]
)
def test_a_limit_is_a_number_of_bytes_or_a_size(value, num_bytes):
    assert parse_order_limit(value) == num_bytes


@pytest.mark.parametrize("value", ["much", "4 apples", "", 0, -1, True, 0.5, "0"])
def test_what_is_no_amount_of_memory_is_refused(value):
    with pytest.raises(ValueError, match=r"order_memory_limit=.* is not an amount of memory. Give bytes"):
        parse_order_limit(value)


def test_a_limit_that_is_none_is_refused_before_training(tmp_path):
    arguments = tiny.arguments(tmp_path, order_memory_limit="much")
    trainer = Trainer(tiny.Regression(), arguments, train_dataset=tiny.regression_data(8))
    with pytest.raises(ValueError, match="order_memory_limit='much'"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_every_sampling_strategy_can_be_set(tmp_path):
    for strategy in SAMPLING_STRATEGIES:
        tiny.arguments(tmp_path, train_sampling_strategy=strategy, sample_weights="weight")


def test_the_memory_of_a_row_is_that_of_a_tensor_and_a_list():
    order = RandomOrder(10**5, seed=1)
    indices = order.indices(0)
    tensor = torch.randperm(len(order)).nbytes
    numbers = sum(-(-sys.getsizeof(index) // 16) * 16 for index in indices)  # Python allocates by 16 bytes
    assert (tensor + sys.getsizeof(indices) + numbers) / len(order) == pytest.approx(BYTES_PER_ROW, rel=0.01)
