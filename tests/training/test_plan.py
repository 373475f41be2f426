"""The numbers of a plan are the original's, on real loaders of every shape."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys

import pytest
import transformers
from torch.utils.data import DataLoader, IterableDataset

import tiny
from footplate.batch import has_length
from footplate.data import num_examples
from footplate.training.plan import Extension, Position, choose_extension, plan_training

DURATIONS = [
    {"num_train_epochs": 1},
    {"num_train_epochs": 3},
    {"num_train_epochs": 2.3},
    {"num_train_epochs": 0.1},
    {"max_steps": 1},
    {"max_steps": 7},
    {"max_steps": 100},
]


class Stream(IterableDataset):
    def __init__(self, length=None):
        self.length = length

    def __iter__(self):
        return iter(range(self.length or 20))


class SizedStream(Stream):
    def __repr__(self):
        return f"SizedStream({self.length})"

    def __len__(self):
        return self.length


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    return tiny.build_trainer(folder, tiny.Regression(), tiny.regression_data(4), library=transformers)


def plan_of(loader, folder, **settings):
    """footplate's plan, as the tuple that the original returns."""
    args = tiny.arguments(folder, **settings)
    num_batches = len(loader) if has_length(loader) else None
    examples = num_examples(loader, args.train_batch_size) if num_batches else None
    return plan_training(args, num_batches, examples, args.train_batch_size)


def as_original(plan):
    return (
        plan.num_epochs,
        plan.updates_per_epoch,
        plan.num_examples,
        plan.num_train_samples,
        plan.total_batch_size,
        plan.batches_per_epoch,
        plan.max_steps,
    )


@pytest.mark.parametrize("accumulation", [1, 3, 8])
@pytest.mark.parametrize("duration", DURATIONS, ids=str)
@pytest.mark.parametrize("dataset", [range(8), range(40), range(53), SizedStream(53)], ids=repr)
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_number_is_the_originals(original, tmp_path, dataset, duration, accumulation, drop_last):
    settings = {**duration, "gradient_accumulation_steps": accumulation}
    loader = DataLoader(dataset, batch_size=8, drop_last=drop_last)
    their_args = tiny.arguments(tmp_path, transformers, **settings)
    expected = original.set_initial_training_values(their_args, loader)
    assert as_original(plan_of(loader, tmp_path, **settings)) == expected


@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_stream_of_unknown_length_has_the_originals_numbers(original, tmp_path, accumulation):
    settings = {"max_steps": 6, "gradient_accumulation_steps": accumulation}
    loader = DataLoader(Stream(), batch_size=8)
    expected = original.set_initial_training_values(
        tiny.arguments(tmp_path, transformers, **settings), loader
    )
    plan = plan_of(loader, tmp_path, **settings)
    assert as_original(plan) == expected
    assert plan.num_epochs == sys.maxsize


def test_what_cannot_be_counted_or_is_empty_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"max_steps=-1.*__len__"):
        plan_of(DataLoader(Stream(), batch_size=8), tmp_path)
    with pytest.raises(ValueError, match=r"no batch.*dataloader_drop_last"):
        plan_of(DataLoader(range(3), batch_size=8, drop_last=True), tmp_path)


@pytest.mark.parametrize(("num_batches", "accumulation"), itertools.product([1, 4, 7, 8], [1, 3, 4, 9]))
def test_the_updates_of_an_epoch_use_every_batch_once(tmp_path, num_batches, accumulation):
    args = tiny.arguments(tmp_path, gradient_accumulation_steps=accumulation)
    plan = plan_training(args, num_batches, None, 8)
    sizes = list(plan.update_sizes())
    assert sum(sizes) == num_batches
    assert len(sizes) == plan.updates_per_epoch
    assert set(sizes[:-1]) <= {accumulation}
    assert 1 <= sizes[-1] <= accumulation
    for updates_done in range(plan.updates_per_epoch + 1):
        assert list(plan.update_sizes(sum(sizes[:updates_done]))) == sizes[updates_done:]
    assert plan.epoch_at(2, num_batches) == 3.0


def test_a_resumed_run_starts_in_its_epoch_after_the_updates_it_made(tmp_path):
    args = tiny.arguments(tmp_path, gradient_accumulation_steps=2)
    places = [
        (plan.start.epoch, plan.first_batch, plan.start.samples_done)
        for plan in (plan_training(args, 5, None, 8, first_step=step) for step in range(5))
    ]
    assert places == [(0, 0, 0), (0, 2, 16), (0, 4, 32), (1, 0, 0), (1, 2, 16)]


def test_a_loader_without_a_dataset_counts_full_batches(tmp_path):
    plan = plan_training(tiny.arguments(tmp_path), 5, None, 8)
    assert (plan.num_examples, plan.num_train_samples) == (40, 120)


def test_a_plan_does_not_change(tmp_path):
    plan = plan_training(tiny.arguments(tmp_path), 5, None, 8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.max_steps = 3


def position_after(num_samples: int, epoch: int = 1) -> Position:
    return Position(epoch, samples_done=num_samples, is_begun=True)


@pytest.mark.parametrize(
    ("batch_size", "first_batch", "max_steps"), [(8, 2, 15), (4, 4, 5 + 2 + 6 + 10), (16, 1, 5 + 2 + 2 + 3)]
)
def test_another_batch_size_goes_on_at_the_same_sample(tmp_path, batch_size, first_batch, max_steps):
    args = tiny.arguments(tmp_path, num_train_epochs=3)
    num_batches = -(-40 // batch_size)
    plan = plan_training(args, num_batches, 40, batch_size, first_step=7, position=position_after(16))
    assert (plan.start.epoch, plan.start.samples_done, plan.first_batch) == (1, 16, first_batch)
    assert plan.max_steps == max_steps
    assert sum(plan.update_sizes(plan.first_batch)) * batch_size >= 24


@pytest.mark.parametrize(
    ("batch_size", "accumulation", "num_epochs"), [(8, 1, 5), (4, 1, 4), (16, 1, 5), (8, 2, 5), (2, 4, 5)]
)
def test_with_another_batch_size_the_epochs_last_until_max_steps(
    tmp_path, batch_size, accumulation, num_epochs
):
    args = tiny.arguments(tmp_path, max_steps=22, gradient_accumulation_steps=accumulation)
    num_batches, position = -(-40 // batch_size), position_after(16, epoch=3)
    plan = plan_training(args, num_batches, 40, batch_size, first_step=17, position=position)
    assert (plan.max_steps, plan.num_epochs) == (22, num_epochs)
    possible = len([*plan.update_sizes(plan.first_batch)])
    possible += (plan.num_epochs - 4) * plan.updates_per_epoch
    assert 5 <= possible < 5 + plan.updates_per_epoch


def test_the_end_moves_once_for_a_run_that_is_resumed_twice(tmp_path):
    args = tiny.arguments(tmp_path, max_steps=12)
    # 10 updates of 4 rows an epoch, after 8 of 10 rows: 8 updates were two epochs
    plan = plan_training(args, 10, 40, 4, first_step=8, position=Position(2))
    assert (plan.num_epochs, plan.shift) == (3, (0, 1))
    position = Position(2, 8, is_begun=True, batches_done=2, cut=(10, 4), shift=(10, *plan.shift))
    assert plan_training(args, 10, 40, 4, first_step=10, position=position).num_epochs == 3
    longer = tiny.arguments(tmp_path, max_steps=32)
    assert plan_training(longer, 10, 40, 4, first_step=10, position=position).num_epochs == 5


@pytest.mark.parametrize("duration", [{"max_steps": 15}, {"num_train_epochs": 3}])
def test_epochs_that_a_callback_ends_early_move_no_end(tmp_path, duration):
    args = tiny.arguments(tmp_path, **duration)
    # of 5 updates an epoch 2 were made, in the first one and in the second
    position = Position(1, 16, is_begun=True, batches_done=2, cut=(5, 8), shift=(5, 0, 0))
    for place in (position, dataclasses.replace(position, is_epoch_over=True).for_resume(skips_data=True)):
        plan = plan_training(args, 5, 40, 8, first_step=4, position=place)
        assert (plan.max_steps, plan.num_epochs) == (15, 3)


def test_an_epoch_that_is_over_is_followed_by_the_next():
    over = Position(2, 40, is_begun=True, is_epoch_over=True, pending=["should_save"])
    assert over.for_resume(skips_data=True) == Position(3, pending=["should_save"])
    inside = position_after(8)
    assert inside.for_resume(skips_data=True) is inside
    assert inside.for_resume(skips_data=False) == Position(inside.epoch)


def test_a_position_comes_back_from_a_checkpoint():
    inside = dataclasses.replace(position_after(8), pending=("should_save",))
    stored = json.loads(json.dumps(inside.state()))
    stored["attributes"]["updates_done"] = 4  # an earlier version stored more
    lists = {"pending": ["should_save"], "cut": [], "eval_loaders": [], "shift": []}
    assert Position.from_stored(stored) == dataclasses.replace(inside, **lists)
    assert Position.from_stored(None) is None


@pytest.mark.parametrize(
    ("max_steps", "given", "expected"),
    [
        (-1, {"epochs": 5.0}, Extension(5.0, None, "hold")),
        (-1, {"steps": 7}, Extension(None, 7, "hold")),
        (-1, {"end": 5}, Extension(5, None, "hold")),
        (10, {"end": 20}, Extension(None, 20, "hold")),
        (10, {}, None),
    ],
)
def test_an_extension_is_in_epochs_or_in_updates(tmp_path, max_steps, given, expected):
    args = tiny.arguments(tmp_path, max_steps=max_steps)
    values = {"epochs": None, "steps": None, "end": None, **given}
    assert choose_extension(args, **values, policy="hold") == expected


def test_an_extension_in_both_units_is_refused(tmp_path):
    with pytest.raises(ValueError, match="extend_to_epochs=3 and extend_to_steps=9"):
        choose_extension(tiny.arguments(tmp_path), 3, 9, None, "hold")


def test_an_extension_in_epochs_overrides_max_steps(tmp_path):
    later = Extension(4, None, "hold").apply_to(tiny.arguments(tmp_path, max_steps=10))
    assert (later.max_steps, later.num_train_epochs) == (-1, 4.0)


def test_a_loader_that_cuts_as_before_goes_on_at_the_same_batch(tmp_path):
    """Batches of a sampler of the user's own may be of any size: their number says more than their rows."""
    position = Position(1, 11, is_begun=True, batches_done=6, cut=[13, 3])
    args = tiny.arguments(tmp_path, num_train_epochs=3)
    plan = plan_training(args, 13, 29, 3, first_step=19, position=position, num_drawn=23)
    assert (plan.first_batch, plan.max_steps) == (6, 39)
    other = plan_training(args, 12, 29, 2, first_step=19, position=position, num_drawn=23)
    assert other.first_batch == 6  # 12 samples left, in batches of 2


def test_a_checkpoint_from_beyond_the_end_of_the_data_gets_advice(tmp_path):
    args = tiny.arguments(tmp_path, num_train_epochs=3)
    with pytest.raises(ValueError, match=r"after sample 16 of its epoch.*has 12 samples now") as caught:
        plan_training(args, 3, 12, 4, first_step=9, position=position_after(16), num_drawn=12)
    assert "ignore_data_skip=True" in str(caught.value)


# ---- a budget of tokens ----


@pytest.mark.parametrize(("num_ranks", "num_batches"), [(1, 20), (2, 10)])
def test_batches_by_tokens_count_the_rows_that_they_have_on_average(tmp_path, num_ranks, num_batches):
    args = tiny.arguments(tmp_path, per_device_train_tokens=64, max_steps=30, gradient_accumulation_steps=2)
    plan = plan_training(args, num_batches, 101, 8, num_drawn=101, num_ranks=num_ranks)
    assert plan.micro_batch_size == 6
    assert plan.updates_per_epoch == num_batches // 2
    assert plan.num_train_samples == 101 * 30 / (num_batches // 2)


def test_a_run_by_tokens_goes_on_at_the_batch_where_it_stopped(tmp_path):
    args = tiny.arguments(tmp_path, per_device_train_tokens=64, num_train_epochs=2)
    first = plan_training(args, 20, 101, 8, num_drawn=101)
    cut = (first.batches_per_epoch, first.round_size)
    position = Position(1, samples_done=90, is_begun=True, batches_done=7, cut=cut)
    plan = plan_training(args, 20, 101, 8, first_step=27, position=position, num_drawn=101)
    assert (plan.first_batch, plan.max_steps) == (7, 40)
