"""A profile's numbers, and what they speak for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from footplate.instruments.profile import (
    Cost,
    Finding,
    PartTime,
    Profile,
    SlowUpdate,
    find_slowest,
    format_seconds,
    split_updates,
    spread_of,
)
from footplate.instruments.profile_text import Circumstances, find_changes


def profile_of(seconds=0.1, **shares):
    """A profile with these shares of an update; an underscore stands for a space."""
    parts = [
        PartTime(name.replace("_", " "), seconds * share, share, seconds * share, seconds * share, 0.1)
        for name, share in shares.items()
    ]
    return Profile(
        model="Model",
        device="cpu",
        num_updates=20,
        warmup=5,
        seconds=seconds,
        parts=parts,
        update_seconds=[seconds] * 20,
        rows_per_update=8,
        rows_per_second=8 / seconds,
        tokens_per_second=None,
        padding=None,
        slowest=SlowUpdate(3, seconds, "about as long as the others"),
    )


def changes(profile, epoch_start_seconds=0.0, **known):
    return [
        finding.settings for finding in find_changes(profile, Circumstances(**known), epoch_start_seconds)
    ]


def test_a_balanced_update_calls_for_nothing():
    assert changes(profile_of(data=0.05, forward=0.35, backward=0.5, optimizer=0.1), num_cpus=8) == []


@pytest.mark.parametrize(
    ("share", "num_workers", "num_cpus", "setting"),
    [
        (0.3, 0, 8, ("dataloader_num_workers=2",)),
        (0.8, 0, 8, ("dataloader_num_workers=5",)),
        (0.8, 0, 2, ("dataloader_num_workers=2",)),
        (0.5, 2, 8, ("dataloader_num_workers=4",)),
        (0.5, 4, 4, ()),
    ],
)
def test_waiting_for_data_calls_for_as_many_workers_as_would_keep_up(share, num_workers, num_cpus, setting):
    profile = profile_of(data=share, forward=1 - share)
    assert changes(profile, num_workers=num_workers, num_cpus=num_cpus) == [setting]


def test_a_single_slow_read_is_not_the_rule():
    profile = profile_of(data=0.5, forward=0.5)
    profile.parts[0] = replace(profile.parts[0], middle=0.001)
    assert changes(profile) == []


def test_workers_would_not_help_where_a_batch_is_read_in_no_time():
    assert changes(profile_of(seconds=0.001, data=0.5, forward=0.5), num_cpus=8) == []


def test_a_slow_optimizer_calls_for_the_fused_one_unless_it_is_that():
    profile = profile_of(forward=0.7, optimizer=0.3)
    assert changes(profile, optimizer="adamw_torch") == [("optim='adamw_torch_fused'",)]
    assert changes(profile, optimizer="adamw_torch_fused") == []
    assert changes(profile) == []  # one of the user's own


def test_padding_calls_for_sorted_rows_unless_they_are_sorted():
    profile = replace(profile_of(forward=1.0), padding=0.55, widths=(12, 40))
    wanted = ("train_sampling_strategy='group_by_length'", "per_device_train_tokens")
    assert changes(profile) == [wanted]
    assert changes(profile, sampling="group_by_length") == changes(profile, budgets_tokens=True) == []
    assert changes(profile, reads_stream=True) == changes(profile, loads_in_own_loader=True) == [()]


def test_rows_of_one_width_are_not_to_be_sorted():
    (finding,) = find_changes(
        replace(profile_of(forward=1.0), padding=0.55, widths=(40, 40)), Circumstances()
    )
    assert str(finding).endswith(
        "every batch is 40 tokens wide. Leave padding to the data collator, which pads to the longest row of "
        "a batch"
    )


def test_workers_that_start_at_each_epoch_should_live_on():
    profile = profile_of(forward=1.0)
    assert changes(profile, 2.0, num_workers=2) == [("dataloader_persistent_workers=True",)]
    assert changes(profile, 2.0, num_workers=2, keeps_workers=True) == []
    assert changes(profile, 0.1, num_workers=2) == []


def test_tiny_updates_and_a_waiting_device_call_for_larger_batches():
    assert changes(profile_of(forward=0.7, the_loop_itself=0.3), micro_batch_size=8) == [
        ("per_device_train_batch_size=16",)
    ]
    device = replace(profile_of(forward=0.5, backward=0.5), device="cuda:0", device_wait=0.05)
    assert changes(device) == [("per_device_train_batch_size=2", "torch_compile=True")]
    assert changes(device, compiles=True) == [("per_device_train_batch_size=2",)]
    assert changes(replace(device, device_wait=0.8)) == []


def test_at_most_three_are_named_the_largest_first():
    profile = profile_of(data=0.3, callbacks=0.15, the_loop_itself=0.2, optimizer=0.25, forward=0.1)
    profile = replace(profile, callbacks=[Cost("Mine.on_step_end", 0.015, 0.15, 1)])
    found = find_changes(profile, Circumstances(num_cpus=8, optimizer="adamw_torch"))
    assert [finding.share for finding in found] == [0.3, 0.25, 0.2]


# ---- the numbers ----


def test_parts_are_means_with_quartiles_and_what_took_no_time_is_left_out():
    updates = [{"data": float(n), "forward": 2.0, "moving": 0.0} for n in range(1, 6)]
    data, forward = split_updates(updates)
    assert data == PartTime("data", 3.0, 0.6, 2.0, 3.0, 4.0)
    assert forward == PartTime("forward", 2.0, 0.4, 2.0, 2.0, 2.0)
    assert spread_of([7.0]) == (7.0, 7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("slow", "tokens", "starts", "reason"),
    [
        ({"data": 9.0}, 10, [], "data took 9.00 s instead of 1.00 s"),
        ({"data": 9.0}, 10, [2], "data took 9.00 s instead of 1.00 s: an epoch began"),
        ({"forward": 9.0}, 50, [], "forward took 9.00 s instead of 1.00 s: 50 tokens, others had 10"),
        ({"forward": 9.0}, 10, [], "forward took 9.00 s instead of 1.00 s"),
        ({}, 10, [], "about as long as the others"),
    ],
)
def test_the_slowest_update_and_why(slow, tokens, starts, reason):
    updates = [{"data": 1.0, "forward": 1.0} for _ in range(5)]
    updates[2] = {**updates[2], **slow}
    found = find_slowest(updates, [10, 10, tokens, 10, 10], starts)
    assert found.reason == reason
    assert found.number == (3 if slow else 1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.234e-5, "0.012 ms"), (0.00123, "1.23 ms"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (12.34, "12.3 s")],
)
def test_times_have_three_digits(seconds, text):
    assert format_seconds(seconds) == text


def test_the_text_fits_a_terminal_and_json_holds_everything():
    profile = replace(
        profile_of(data=0.3, forward=0.7),
        model="M" * 200,
        tokens_per_second=1234.5,
        padding=0.5,
        operators=[Cost("aten::" + "long_name_" * 12, 0.01, 0.9, 1234.0)],
        modules=[Cost("base_model.model.layers.*.self_attn.q_proj.lora_A.default (Linear)", 0.01, 0.9, 0.5)],
        device_wait=0.4,
        profiler_factor=1.4,
        num_profiled=5,
        findings=[Finding("a finding of many words " * 9, ("setting=1", "other=2"), 0.5)],
        notes=["a note"],
        trace="/somewhere/trace.json",
    )
    lines = str(profile).splitlines()
    assert max(map(len, lines)) <= 79
    assert "note      a note" in lines
    assert any(line.startswith("  waiting for data       30.0 ms    30%  #####  ") for line in lines)
    head = next(line for line in lines if line.startswith("operators of torch"))
    (operator,) = [line for line in lines if line.startswith("  aten::long_n...")]
    assert head.index("an update") + len("an update") == operator.index(" ms") + len(" ms")
    assert any(line.startswith("  base_model.m...ttn.q_proj.lora_A.default (Linear)  ") for line in lines)
    assert json.loads(json.dumps(profile.to_dict()))["updates_per_second"] == pytest.approx(10.0)
