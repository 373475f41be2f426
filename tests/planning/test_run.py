"""A whole plan: its length, disk, table, verdict and text."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch
from torch import nn

import tiny
from footplate.checkpoint.planned import count_saved_weights, count_saves, plan_checkpoints
from footplate.optim.schedules import build_schedule
from footplate.planning import format_plan, plan_run
from footplate.planning.duration import plan_duration, plan_schedule
from footplate.planning.run import read_memory, read_sharding
from footplate.words import format_bytes

BATCH = {"input_ids": torch.ones(4, 12, dtype=torch.long), "labels": torch.ones(4, 12, dtype=torch.long)}


class Heavy(nn.Module):
    """A classifier of tokens with much larger weights than activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(8)))

    def forward(self, input_ids, labels):
        return {"loss": self.layers(input_ids.float().mean() + torch.zeros(1, 128)).mean()}


def plan(folder, batch=BATCH, num_rows=100, model=None, **wanted):
    settings = {"per_device_train_batch_size": 4, **wanted.pop("settings", {})}
    return plan_run(
        model or tiny.gpt(), tiny.arguments(folder, **settings), batch, num_rows=num_rows, **wanted
    )


@pytest.mark.parametrize(
    ("settings", "num_rows", "world_size", "updates", "samples"),
    [
        ({"num_train_epochs": 3}, 100, 1, 75, 300),
        ({"num_train_epochs": 3}, 100, 8, 12, 300),
        ({"num_train_epochs": 3, "dataloader_drop_last": True}, 100, 8, 9, 300),
        ({"num_train_epochs": 1, "gradient_accumulation_steps": 3}, 100, 1, 9, 100),
        ({"max_steps": 10}, None, 4, 10, 160),
    ],
)
def test_updates_and_samples_are_counted(settings, num_rows, world_size, updates, samples, tmp_path):
    args = tiny.arguments(tmp_path, per_device_train_batch_size=4, **settings)
    found = plan_duration(args, BATCH, num_rows, world_size)
    assert (found.updates, found.samples) == (updates, samples)
    assert found.tokens == 12 * samples


def test_a_run_of_one_process_has_the_updates_that_training_makes(tmp_path):
    settings = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}
    trainer = tiny.build_trainer(tmp_path, tiny.Regression(), tiny.regression_data(22), **settings)
    planned = trainer.plan()
    assert trainer.train().global_step == planned.duration.updates


def test_a_stream_without_an_end_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Set max_steps to a positive number"):
        plan_duration(tiny.arguments(tmp_path), BATCH, None, 1)


def test_the_end_of_the_schedule_is_known(tmp_path):
    settings = {"learning_rate": 0.1, "warmup_steps": 0.1, "lr_scheduler_type": "cosine_with_min_lr"}
    args = tiny.arguments(tmp_path, lr_scheduler_kwargs={"min_lr": 0.01}, **settings)
    found = plan_schedule(args, 100, partial(build_schedule, args))
    assert found == ("cosine_with_min_lr", 10, 0.1, pytest.approx(0.01))
    following = tiny.arguments(tmp_path, lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="epoch")
    assert plan_schedule(following, 100, partial(build_schedule, following)).end is None


@pytest.mark.parametrize(
    ("settings", "num_saves"),
    [
        ({"save_strategy": "steps", "save_steps": 30}, 4),
        ({"save_strategy": "steps", "save_steps": 0.25}, 4),
        ({"save_strategy": "epoch"}, 10),
        ({"save_strategy": "no"}, 0),
        ({"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 20}, 5),
    ],
)
def test_saves_are_counted(settings, num_saves, tmp_path):
    best = {"metric_for_best_model": "loss"} if settings["save_strategy"] == "best" else {}
    args = tiny.arguments(tmp_path, **settings, **best)
    assert count_saves(args, num_updates=100, updates_per_epoch=10) == num_saves


@pytest.mark.parametrize(
    ("settings", "num_saves"),
    [
        ({"save_strategy": "steps", "save_steps": 30}, 2),
        ({"save_strategy": "steps", "save_steps": 20}, 2),
        ({"save_strategy": "epoch"}, 4),
    ],
)
def test_saves_before_a_resume_are_not_counted_again(settings, num_saves, tmp_path):
    args = tiny.arguments(tmp_path, **settings)
    assert count_saves(args, num_updates=100, updates_per_epoch=10, first_step=60) == num_saves
    assert count_saves(args, num_updates=100, updates_per_epoch=10, first_step=100) == 0


@pytest.mark.parametrize(("num_present", "num_more"), [(0, 4), (1, 3), (3, 1), (5, 1)])
def test_checkpoints_that_make_way_for_new_ones_are_not_counted_twice(num_present, num_more, tmp_path):
    args = tiny.arguments(tmp_path, save_strategy="steps", save_steps=10, save_total_limit=3)
    saved = plan_checkpoints(tiny.Regression(), args, 0, 100, 10, 50, num_present)
    assert saved.num_written == 5
    assert saved.disk_needed == num_more * saved.num_bytes


def test_a_limit_keeps_the_best_and_needs_room_for_one_more(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 10, "save_total_limit": 1, "max_steps": 100}
    best = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 10}
    plain = plan(tmp_path, settings=saving).checkpoints
    assert (plain.num_written, plain.num_kept) == (10, 1)
    assert plain.disk_needed == 2 * plain.num_bytes
    assert plan(tmp_path, settings={**saving, **best}).checkpoints.num_kept == 2
    assert (
        plan(tmp_path, settings={**saving, "save_only_model": True}).checkpoints.num_bytes < plain.num_bytes
    )


def test_shared_weights_are_saved_once():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    assert count_saved_weights(model) == 128
    model[1].weight = model[0].weight
    assert count_saved_weights(model) == 64


def test_the_smallest_that_fits_is_recommended(tmp_path):
    plan_heavy = partial(plan, tmp_path, model=Heavy())
    free = plan_heavy()
    assert free.fits
    assert (free.recommended.world_size, free.recommended.sharding) == (1, "none")
    peaks = {(row.world_size, row.sharding): row.peak for row in free.table}
    tight = plan_heavy(memory=peaks[2, "full_shard"])
    assert not tight.fits
    assert (tight.recommended.world_size, tight.recommended.sharding) == (2, "full_shard")
    assert "DOES NOT FIT" in str(tight)
    assert "1 rank does not fit into" in str(tight)
    none = plan_heavy(memory=1000)
    assert none.recommended is None
    assert "set activation_checkpointing=True" in str(none)


def test_the_text_is_short_and_narrow_and_json_has_everything(tmp_path):
    settings = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    found = plan(tmp_path, world_size=16, sharding="hybrid", num_eval_rows=50, settings=settings)
    text = format_plan(found)
    assert max(map(len, text.splitlines())) < 100
    assert len(text.splitlines()) < 45
    for words in ("GPT2LMHeadModel", "3,600 tokens", "16 ranks, hybrid", "all-reduce between copies"):
        assert words in text
    assert "predictions, at each evaluation" in text
    values = json.loads(json.dumps(found.to_dict()))
    assert values["memory"]["peak"] == found.memory.peak
    assert values["duration"]["tokens"] == 3600
    assert len(values["table"]) == len(found.table)


def test_a_model_that_cannot_be_tried_is_planned_without_activations(tmp_path):
    found = plan(tmp_path, batch={"unknown": torch.zeros(4, 2)})
    assert not found.memory.is_measured
    assert "note: activations are not known" in str(found)


def test_settings_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Give 1 or more"):
        plan(tmp_path, world_size=0)
    with pytest.raises(ValueError, match="Give a size such as"):
        read_memory("much", torch.device("cpu"))
    with pytest.raises(ValueError, match='memory="80GB"'):
        plan(tmp_path, device="cuda")
    assert read_memory("2GB", torch.device("cpu")) == 2 * 10**9
    assert read_memory(None, torch.device("cpu")) > 10**8


@pytest.mark.parametrize(
    ("fsdp", "sharding"),
    [
        (None, "none"),
        (True, "full_shard"),
        ("full_shard auto_wrap", "full_shard"),
        ("shard_grad_op", "shard_grad_op"),
        (["hybrid_shard", "auto_wrap"], "hybrid"),
    ],
)
def test_the_way_of_sharding_comes_from_the_settings(fsdp, sharding, tmp_path):
    args = tiny.arguments(tmp_path)
    args.fsdp = fsdp
    assert read_sharding(args) == sharding


@pytest.mark.parametrize(
    ("size", "text"),
    [(12, "12 B"), (999_900, "1.00 MB"), (1234, "1.23 kB"), (45.6e9, "45.6 GB"), (2e14, "200 TB")],
)
def test_sizes_have_three_digits(size, text):
    assert format_bytes(size) == text
