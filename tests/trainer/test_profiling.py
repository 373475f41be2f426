"""`Trainer.profile()` finds what was planted, and the run after it is the same to the last bit."""

from __future__ import annotations

import json
import random
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset

import tiny
from footplate import Trainer, TrainerCallback
from footplate.trainer.profiling import SETTINGS, Session, profile_trainer
from footplate.trainer.staging import on_stage

NAP = 0.008


def build(folder, *, model=None, data=None, trainer=Trainer, given=None, **settings):
    arguments = tiny.arguments(folder, **{"max_steps": 40, "per_device_train_batch_size": 4, **settings})
    data = data if data is not None else tiny.regression_data(256)
    return trainer(
        model if model is not None else tiny.Regression(), arguments, train_dataset=data, **(given or {})
    )


def quick(trainer, num_updates=6, warmup=2, **wanted):
    return profile_trainer(trainer, num_updates, warmup, operators=False, **wanted)


class SleepyRows(Dataset):
    """Rows that take long to read, `seconds` for a batch of four."""

    def __init__(self, seconds=NAP, num_rows=256):
        self.rows, self.seconds = tiny.regression_data(num_rows), seconds

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        time.sleep(self.seconds / 4)
        return self.rows[index]


class SleepyModel(tiny.Regression):
    """Sleeps in forward, or in backward."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def forward(self, x, labels=None):
        if self.where == "forward":
            time.sleep(NAP)
        outputs = super().forward(x, labels)
        if self.where == "backward":
            outputs["loss"].register_hook(lambda slope: time.sleep(NAP))
        return outputs


class SleepyCallback(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(NAP)


class SleepyOptimizer(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(NAP)
        return super().step(closure)


def plant(folder, what):
    """A Trainer whose updates spend their time in one place."""
    if what == "data":
        return build(folder, data=SleepyRows())
    if what in ("forward", "backward"):
        return build(folder, model=SleepyModel(what))
    if what == "callbacks":
        return build(folder, given={"callbacks": [SleepyCallback()]})
    model = tiny.Regression()
    return build(folder, model=model, given={"optimizers": (SleepyOptimizer(model.parameters(), 0.1), None)})


# ---- what was planted is found ----


@pytest.mark.parametrize("what", ["data", "forward", "backward", "callbacks", "optimizer"])
def test_the_slow_part_is_named(what, tmp_path):
    profile = quick(plant(tmp_path, what))
    assert profile.part(what).middle >= NAP
    # by the middle ones: a busy machine may hold up a single update anywhere
    assert profile.part(what).middle > 0.6 * sum(part.middle for part in profile.parts)


def test_the_parts_are_the_whole_and_the_updates_the_wall_time(tmp_path):
    trainer = build(tmp_path, data=SleepyRows(), given={"callbacks": [Stamps()]})
    (stamps,) = [one for one in trainer.callback_handler.callbacks if isinstance(one, Stamps)]
    profile = quick(trainer, 8, 2, puts_back=False)
    times = stamps.times[2:]  # behind the two updates of warm-up
    took = times[7] - stamps.times[1]
    assert sum(profile.update_seconds) == pytest.approx(took, rel=0.05)
    assert sum(part.seconds for part in profile.parts) == pytest.approx(profile.seconds, rel=1e-6)
    assert sum(part.share for part in profile.parts) == pytest.approx(1.0)
    assert profile.rows_per_second == pytest.approx(4 * 8 / took, rel=0.05)
    assert profile.rows_per_update == 4


class Stamps(TrainerCallback):
    """When updates ended."""

    def __init__(self):
        self.times = []

    def on_step_end(self, args, state, control, **kwargs):
        self.times.append(time.perf_counter())


def test_accumulated_micro_batches_belong_to_one_update(tmp_path):
    profile = quick(build(tmp_path, model=SleepyModel("forward"), gradient_accumulation_steps=3))
    assert profile.rows_per_update == 12
    assert profile.part("forward").middle >= 3 * NAP


def test_slow_data_is_read_by_workers_when_they_are_set(tmp_path):
    alone = quick(build(tmp_path, data=SleepyRows(0.02)), 12, 2)
    helped = quick(build(tmp_path, data=SleepyRows(0.02), dataloader_num_workers=2), 12, 10)
    assert helped.seconds < 0.7 * alone.seconds


def test_the_advice_names_the_setting_and_its_value(tmp_path):
    (finding,) = quick(plant(tmp_path, "data")).findings
    assert "spent waiting for data; dataloader_num_workers is 0. Try dataloader_num_workers=" in str(finding)


def test_the_slow_callback_is_named(tmp_path):
    profile = quick(plant(tmp_path, "callbacks"))
    assert profile.callbacks[0].name == "SleepyCallback.on_step_end"
    assert profile.callbacks[0].seconds >= NAP
    assert "SleepyCallback.on_step_end" in str(profile.findings[0])


def test_callbacks_are_left_out_if_that_is_asked_for(tmp_path):
    assert quick(plant(tmp_path, "callbacks"), callbacks=False).part("callbacks").seconds == 0


def test_an_input_hook_of_a_subclass_is_a_part_of_its_own(tmp_path):
    class Preparing(Trainer):
        def _prepare_inputs(self, inputs):
            time.sleep(NAP)
            return super()._prepare_inputs(inputs)

    assert quick(build(tmp_path, trainer=Preparing)).part("preparing inputs").middle >= NAP


class OneSlowRow(SleepyRows):
    def __getitem__(self, index):
        time.sleep(20 * NAP if index == 21 else 0)
        return self.rows[index]


def test_the_slowest_update_is_told_with_its_reason(tmp_path):
    trainer = build(tmp_path, data=OneSlowRow(), train_sampling_strategy="sequential")
    slowest = quick(trainer, 8, 1).slowest
    assert slowest.number in (4, 5)  # the batch of rows 20 to 23 is read one ahead
    assert slowest.seconds >= 20 * NAP
    assert slowest.reason.startswith("data took ")


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(1, 1)

    def forward(self, input_ids, attention_mask, labels):
        return {"loss": (self.line(input_ids.float().unsqueeze(-1)).squeeze(-1) * attention_mask).mean()}


def test_tokens_and_padding_are_counted(tmp_path):
    mask = torch.tensor([1] * 4 + [0] * 12)
    rows = [{"input_ids": torch.arange(16), "attention_mask": mask, "labels": 0} for _ in range(64)]
    profile = quick(build(tmp_path, model=Padded(), data=rows))
    assert profile.padding == pytest.approx(0.75)
    assert profile.tokens_per_second == pytest.approx(16 * profile.rows_per_second)
    assert any("75% of the tokens are padding" in str(finding) for finding in profile.findings)


# ---- torch's profiler, and modules ----


def test_operators_and_a_trace_for_a_viewer(tmp_path):
    path = tmp_path / "trace.json"
    profile = build(tmp_path / "out").profile(4, 1, trace=str(path))
    assert profile.num_profiled == 4
    assert profile.profiler_factor > 0
    assert sum(cost.share for cost in profile.operators) == pytest.approx(1.0)
    names = [cost.name for cost in profile.operators]
    assert any(name.startswith("aten::") for name in names)
    assert not any("#" in name for name in names)
    trace = json.loads(path.read_text())["traceEvents"]
    parts = [event for event in trace if event.get("cat") == "footplate"]
    assert {"data", "forward", "backward", "optimizer"} <= {event["name"] for event in parts}
    assert all(event["dur"] >= 0 for event in parts)
    # the row of parts is on the clock of torch's own events: a backward holds what autograd does
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in parts if e["name"] == "backward"]
    own = [e for e in trace if "autograd::engine" in str(e.get("name")) and e.get("ph") == "X"]
    assert own
    assert all(any(start - 100 <= e["ts"] <= end + 100 for start, end in spans) for e in own)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "trace.json"]


def test_a_trace_without_a_folder_is_refused_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match="its folder does not exist"):
        build(tmp_path).profile(trace=str(tmp_path / "nowhere" / "trace.json"))
    with pytest.raises(ValueError, match="is a folder"):
        build(tmp_path).profile(trace=tmp_path)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Napping() for _ in range(3)])
        self.head = nn.Linear(1, 1)

    def forward(self, x, labels=None):
        hidden = x.float().reshape(len(x), -1)[:, :1]
        for layer in self.layers:
            hidden = layer(hidden)
        return {"loss": (self.head(hidden).squeeze(-1)).square().mean()}


class Napping(nn.Module):
    def forward(self, hidden):
        time.sleep(0.002)
        return hidden


def test_forward_is_timed_by_module_and_equal_ones_are_one(tmp_path):
    rows = [{"x": torch.ones(1), "labels": 0} for _ in range(64)]
    model = TwoLayers()
    profile = quick(build(tmp_path, model=model, data=rows), modules=True)
    first = profile.modules[0]
    assert (first.name, first.calls) == ("layers.* (Napping)", 3)
    assert first.seconds >= 0.006
    whole = next(cost for cost in profile.modules if cost.name == "TwoLayers")
    assert whole.seconds < first.seconds / 2  # without what its parts take
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_backward_computes_again_is_no_forward(tmp_path):
    class Saving(tiny.Regression):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(1, 1)

        def forward(self, x, labels=None):
            return super().forward(checkpoint(self.inner, x.reshape(-1, 1), use_reentrant=False), labels)

    found = quick(build(tmp_path, model=Saving()), modules=True)
    assert {cost.name: cost.calls for cost in found.modules} == {"Saving": 1, "inner (Linear)": 1}


def test_a_compiled_forward_has_no_modules_and_says_so(tmp_path):
    profile = quick(build(tmp_path, torch_compile=True, torch_compile_backend="eager"), modules=True)
    assert profile.modules == []
    assert "torch_compile makes one piece of it" in profile.notes[0]


# ---- a device that works behind the host's back ----


def test_a_device_is_waited_for_at_each_part_but_not_where_the_speed_is_measured(tmp_path):
    trainer = build(tmp_path)
    with on_stage(trainer, True, SETTINGS):
        session = Session(trainer, True)
        session.wait = lambda: time.sleep(0.001)  # as if the device were late by so much
        profile = session.run(6, 1, None, modules=False, operators=False)
    assert sum(part.seconds for part in profile.parts) > max(0.006, 2 * profile.seconds)
    assert profile.part("moving").middle >= 0.001
    assert 0.5 < profile.device_wait < 1
    assert "host      waited " in str(profile)


# ---- no trace ----


class NoisyRows(Dataset):
    """Rows with noise from four generators, one of its own."""

    def __init__(self):
        self.generator, self.reads = np.random.default_rng(7), []

    def __len__(self):
        return 24

    def __getitem__(self, index):
        self.reads.append(index)
        noise = random.random() + float(np.random.rand()) + float(self.generator.random()) + torch.rand(4)
        return {"x": torch.full((4,), index / 24) + noise, "labels": index % 3}


class NoisyModel(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.drop, self.head = nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 3)
        self.seen = {"calls": 0}

    def forward(self, x, labels=None):
        self.seen["calls"] += 1
        logits = self.head(self.drop(self.norm(x)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Remembering(TrainerCallback):
    def __init__(self):
        self.steps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.steps.append(state.global_step)


def run_noisy(folder, profiles, num_workers, before):
    """A run, with profiles before it or between two runs; what can be seen of it."""
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    model, rows, callback = NoisyModel(), NoisyRows(), Remembering()
    args = tiny.arguments(folder, max_steps=7, logging_steps=1, dataloader_num_workers=num_workers)
    trainer = Trainer(model, args, train_dataset=rows, callbacks=[callback])
    if before:
        trainer.train()
    for _ in range(profiles):
        trainer.profile(3, 1, modules=True)
    output = trainer.train()
    logs = [
        {k: v for k, v in entry.items() if "runtime" not in k and "per_second" not in k}
        for entry in trainer.state.log_history
    ]
    drawn = (random.random(), float(np.random.rand()), float(torch.rand(())), float(rows.generator.random()))
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    return weights, logs, drawn, rows.reads, model.seen, callback.steps, output.training_loss


@pytest.mark.parametrize(("num_workers", "before"), [(0, False), (0, True), (2, False)])
def test_a_run_after_it_is_the_same_to_the_last_bit(num_workers, before, tmp_path):
    plain = run_noisy(tmp_path / "plain", 0, num_workers, before)
    profiled = run_noisy(tmp_path / "profiled", 2, num_workers, before)
    assert profiled == plain


def test_nothing_is_written_logged_or_saved(tmp_path):
    class Told(TrainerCallback):
        def on_log(self, *given, **kwargs):
            raise AssertionError("a profile logs nothing")

        on_save = on_evaluate = on_train_end = on_log

    settings = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    given = {"callbacks": [Told()], "eval_dataset": tiny.regression_data(8)}
    trainer = build(tmp_path, given=given, logging_steps=1, **settings)
    before = sorted(path.name for path in tmp_path.iterdir())
    quick(trainer)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert trainer.state.global_step == 0
    assert trainer.state.log_history == []
    assert trainer.optimizer is None


# ---- what cannot be profiled ----


def test_a_stream_that_can_be_read_once_is_left_for_the_command(tmp_path):
    once = iter([{"x": torch.ones(1), "y": torch.ones(1)}] * 99)

    class Once(IterableDataset):
        def __iter__(self):
            return once

    with pytest.raises(ValueError, match=r"Run `footplate profile script\.py`"):
        quick(build(tmp_path, data=Once()))
    assert len(list(once)) == 99


def test_data_that_ends_too_soon_is_said(tmp_path):
    class Two(IterableDataset):
        num_left = 8

        def __iter__(self):
            while self.num_left:
                Two.num_left -= 1
                yield tiny.regression_data(1)[0]

    with pytest.raises(ValueError, match="2 updates were made"):
        quick(build(tmp_path, data=Two()))


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [((0, 1), "num_updates=0"), ((True, 1), "num_updates=True"), ((3, -1), "warmup=-1")],
)
def test_a_wish_that_makes_no_sense_is_refused(wanted, problem, tmp_path):
    with pytest.raises(ValueError, match=problem):
        build(tmp_path).profile(*wanted)


def test_a_short_run_and_a_schedule_with_an_end_are_no_obstacle(tmp_path):
    model = tiny.Regression()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    trainer = build(tmp_path, model=model, data=tiny.regression_data(8), max_steps=2)
    trainer.optimizer = optimizer
    assert quick(trainer, 9, 1).num_updates == 9


@pytest.mark.parametrize("how", ["given", "made by an override"])
def test_a_schedule_of_the_users_own_that_ends_begins_anew(how, tmp_path):
    def make(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)

    class Own(Trainer):
        def create_scheduler(self, num_training_steps, optimizer=None):
            self.lr_scheduler = make(optimizer)
            return self.lr_scheduler

    class Rates(TrainerCallback):
        def __init__(self):
            self.seen = []

        def on_step_begin(self, args, state, control, optimizer, **kwargs):
            self.seen.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]))

    model, rates = tiny.Regression(), Rates()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    is_given = how == "given"
    given = {"optimizers": (optimizer, make(optimizer) if is_given else None), "callbacks": [rates]}
    kind = Trainer if is_given else Own
    trainer = build(tmp_path, model=model, max_steps=5, given=given, trainer=kind)
    assert quick(trainer, 9, 1).num_updates == 9
    assert rates.seen == []
    quick(trainer, 9, 1, puts_back=False)
    assert len(set(rates.seen[:5])) == 5
    assert rates.seen[5:10] == rates.seen[:5]


def test_a_loader_of_the_users_own_is_profiled_and_advised(tmp_path):
    class Own(Trainer):
        def get_train_dataloader(self):
            return DataLoader(SleepyRows(), batch_size=4, collate_fn=self.data_collator)

    (finding,) = quick(build(tmp_path, trainer=Own)).findings
    assert "from a loader of your own" in str(finding)


def test_epochs_follow_each_other(tmp_path):
    seen = []

    class Epochs(TrainerCallback):
        def on_epoch_begin(self, args, state, control, **kwargs):
            seen.append(state.global_step)

    trainer = build(tmp_path, data=tiny.regression_data(12), given={"callbacks": [Epochs()]})
    quick(trainer, 8, 1, puts_back=False)
    assert [later - earlier for earlier, later in pairwise(seen)] == [3] * (len(seen) - 1)
    assert len(seen) >= 3
