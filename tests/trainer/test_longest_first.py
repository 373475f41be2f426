"""The longest rows are tried before the first update of a long run, and the run is the same as without."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import random

import pytest
import torch
from datasets import Dataset as Table
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import tiny
from footplate import Trainer, TrainerCallback
from footplate.trainer import longest_first, rehearsing

ENOUGH = rehearsing.NUM_UPDATES


class Lines(nn.Module):
    """Sums embeddings of tokens; running means, dropout and a table of codes that forward itself moves."""

    def __init__(self, num_positions=100, limit=None, odd_call=None):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(50, 8), nn.Embedding(num_positions, 8)
        self.norm, self.dropout, self.head = nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2)
        self.codes = nn.Parameter(torch.ones(8), requires_grad=False)
        self.limit, self.odd_call, self.num_calls, self.seen = limit, odd_call, 0, torch.zeros(1)

    def forward(self, input_ids, labels=None):
        print(f"width {input_ids.shape[1]}")  # the one trace that a trial cannot take back
        self.num_calls += 1
        self.seen += input_ids.numel()
        if self.limit is not None and input_ids.numel() > self.limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried {input_ids.numel()} tokens.")
        hidden = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        self.codes.data.mul_(0.9).add_(0.1 * hidden.detach().mean((0, 1)))
        summed = hidden.sum(1) * self.codes * (torch.nan if self.num_calls == self.odd_call else 1.0)
        logits = self.head(self.dropout(self.norm(summed)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Pad:
    """Pads rows, takes entries out of them and counts its calls, as users' collators do."""

    num_calls = 0

    def __call__(self, rows):
        self.num_calls += 1
        torch.rand(1), random.random()
        ids = [row.pop("input_ids") for row in rows]
        width = max(map(len, ids))
        padded = torch.tensor([one + [0] * (width - len(one)) for one in ids])
        return {"input_ids": padded, "labels": torch.tensor([row["labels"] for row in rows])}


class Events(TrainerCallback):
    """Notes what callbacks are told, but for numbers of time."""

    def __init__(self):
        self.told = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)
        return lambda args, state, control, **kwargs: self.told.append((name, state.global_step))


def rows_of(longest=40, num_rows=30):
    return [
        {"input_ids": [1 + k % 49 for k in range(longest if i == 17 else 5)], "labels": i % 2}
        for i in range(num_rows)
    ]


def build(folder, model=None, data=None, trainer=Trainer, collator=None, callbacks=(), **settings):
    chosen = {"max_steps": ENOUGH, "per_device_train_batch_size": 4, **settings}
    return trainer(
        model if model is not None else Lines(),
        tiny.arguments(folder, **chosen),
        data_collator=collator if collator is not None else Pad(),
        train_dataset=data if data is not None else Table.from_list(rows_of()),
        callbacks=list(callbacks),
    )


def widths(capsys):
    return [int(line.split()[1]) for line in capsys.readouterr().out.splitlines() if line.startswith("width")]


def outcome(trainer, events):
    """All that a run leaves behind."""
    times = ("_runtime", "_per_second")
    log = [
        {key: value for key, value in entry.items() if not key.endswith(times)}
        for entry in trainer.state.log_history
    ]
    model = trainer.model
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    counts = (model.num_calls, model.seen.item(), trainer.data_collator.num_calls)
    return log, weights, counts, events.told, torch.get_rng_state().tolist(), random.getstate()


@pytest.mark.parametrize(
    "settings", [{}, {"gradient_accumulation_steps": 2, "module_stats_steps": 10}, {"bf16": True}]
)
def test_the_run_is_the_same_with_a_trial_and_without(tmp_path, capsys, settings):
    left = []
    for rehearsal in ("off", "quick"):
        events = Events()
        given = {"logging_steps": 7, "include_num_input_tokens_seen": "all", **settings}
        trainer = build(tmp_path / rehearsal, callbacks=[events], rehearsal=rehearsal, **given)
        trainer.train()
        left.append((outcome(trainer, events), widths(capsys)))
    (plain, widths_before), (tried, widths_after) = left
    assert tried == plain
    assert widths_after == [40, *widths_before]


def test_an_update_that_is_left_out_leaves_no_running_means(tmp_path):
    """What undoes an update must not take its buffers for constants because a trial left them alone."""
    left = []
    for rehearsal in ("off", "quick"):
        trainer = build(tmp_path / rehearsal, Lines(odd_call=5), rehearsal=rehearsal, on_nonfinite="skip")
        trainer.train()
        left.append(trainer.model.norm.running_mean.tolist())
    assert left[0] == left[1]
    assert all(map(math.isfinite, left[0]))


class Doubled(nn.Module):
    """Makes a buffer at its first call, and holds one that cannot be written to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("twice", torch.full((1,), 2.0).expand(8))

    def forward(self, hidden):
        if not hasattr(self, "made"):
            self.register_buffer("made", torch.ones(8))
        return hidden * self.twice * self.made


def test_buffers_that_forward_makes_are_no_longer_there_when_the_run_begins(tmp_path, capsys):
    left = []
    for rehearsal in ("off", "quick"):
        model = Lines()
        model.norm = nn.Sequential(model.norm, Doubled())
        trainer = build(tmp_path / rehearsal, model, rehearsal=rehearsal, on_nonfinite="skip")
        trainer.train()
        left.append({name: value.tolist() for name, value in model.state_dict().items()})
    assert left[0] == left[1]
    assert len(widths(capsys)) == 2 * ENOUGH + 1


class Smoother:
    """A label smoother of the user's own, which counts."""

    num_calls = 0

    def __call__(self, outputs, labels, **kwargs):
        self.num_calls += 1
        return nn.functional.cross_entropy(outputs["logits"], labels)


class NoLoss(Lines):
    def forward(self, input_ids, labels=None):
        labels = torch.zeros(len(input_ids), dtype=torch.long) if labels is None else labels
        return super().forward(input_ids, labels)


def test_a_label_smoother_and_a_function_for_logits_do_not_see_the_trial(tmp_path, capsys):
    counts = []
    for rehearsal in ("off", "quick"):
        seen = []

        def shorten(logits, labels, seen=seen):
            seen.append(len(labels))
            return logits

        trainer = build(tmp_path / rehearsal, NoLoss(), rehearsal=rehearsal)
        trainer.args.train_metrics_batches, trainer.compute_metrics = 2, lambda prediction: {}
        trainer.label_smoother, trainer.preprocess_logits_for_metrics = Smoother(), shorten
        trainer.train()
        counts.append((trainer.label_smoother.num_calls, seen))
    assert counts[0] == counts[1]
    assert len(widths(capsys)) == 2 * ENOUGH + 1


def test_the_trainer_has_no_attribute_more_afterwards(tmp_path, capsys):
    trainer = build(tmp_path, remove_unused_columns=False, callbacks=[StopsAtOnce()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert widths(capsys) == [40]
    assert trainer._signature_columns is None


def test_gradients_of_earlier_micro_batches_take_memory_in_the_trial_too(tmp_path, capsys):
    class Looks(Lines):
        def forward(self, input_ids, labels=None):
            print(f"grads {self.head.weight.grad is not None}")
            return super().forward(input_ids, labels)

    build(tmp_path, Looks(), gradient_accumulation_steps=2, callbacks=[StopsAtEnd()]).train()
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("grads")]
    assert found == ["grads True", "grads False", "grads True"]


class StopsAtEnd(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = True


def test_rows_that_nobody_can_copy_and_columns_that_are_no_lengths_end_no_run(tmp_path, capsys):
    slope = torch.ones(1, requires_grad=True)
    for value, is_tried in ((slope * 2, False), ("5 cm", True), (None, True)):
        rows = [{**row, "length": value} for row in rows_of(num_rows=4 * ENOUGH)]
        build(tmp_path, data=rows, num_train_epochs=1, max_steps=-1).train()
        assert len(widths(capsys)) == ENOUGH + is_tried


def test_a_row_that_cannot_be_read_is_warned_of(tmp_path, caplog):
    from datasets import Image
    from PIL import Image as Picture

    Picture.new("RGB", (2, 2)).save(tmp_path / "there.png")
    rows = [
        {**row, "image": str(tmp_path / ("gone.png" if index == 17 else "there.png"))}
        for index, row in enumerate(rows_of())
    ]
    table = Table.from_list(rows).cast_column("image", Image())
    with pytest.raises(FileNotFoundError):
        build(tmp_path, data=table, remove_unused_columns=False).train()
    assert "rows 17, 0, 1, 2 of train_dataset make no batch: FileNotFoundError" in warning_of(caplog)


def test_a_column_that_is_dropped_may_be_unreadable(tmp_path):
    from datasets import Image

    rows = [{"x": float(i), "labels": 2.0 * i, "image": "gone.png"} for i in range(20)]
    trainer = Trainer(
        tiny.Regression(),
        tiny.arguments(tmp_path, max_steps=ENOUGH),
        train_dataset=Table.from_list(rows).cast_column("image", Image()),
    )
    trainer.train()
    assert trainer.state.global_step == ENOUGH


def test_what_fails_with_short_rows_too_is_left_to_the_first_update(tmp_path, caplog, capsys):
    """A model may be set up by a callback, and a collator may want a worker: the trial knows of neither."""

    class SetsUp(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            model.dropout = nn.Dropout(0.2)

    model = Lines()
    del model.dropout
    build(tmp_path, model, callbacks=[SetsUp()]).train()
    assert len(widths(capsys)) == ENOUGH + 2

    def works_in_workers(rows):
        assert torch.utils.data.get_worker_info() is not None
        return Pad()(rows)

    build(tmp_path, collator=works_in_workers, dataloader_num_workers=1).train()
    assert not warning_of(caplog)


def test_a_run_that_goes_on_from_a_checkpoint_is_the_same_with_a_trial_and_without(tmp_path, capsys):
    left = []
    for rehearsal in ("off", "quick"):
        events, folder = Events(), tmp_path / rehearsal
        given = {"logging_steps": 10, "save_steps": 20, "rehearsal": rehearsal, "save_strategy": "steps"}
        build(folder, **{**given, "max_steps": 20}).train()
        capsys.readouterr()
        trainer = build(folder, callbacks=[events], **{**given, "max_steps": 20 + ENOUGH})
        trainer.train(resume_from_checkpoint=True)
        left.append((outcome(trainer, events), widths(capsys)))
    assert left[0][0] == left[1][0]
    assert left[1][1] == [40, *left[0][1]]


def test_rows_in_a_list_come_to_no_harm(tmp_path, capsys):
    rows = rows_of(num_rows=4 * ENOUGH)
    trainer = build(tmp_path, data=rows, num_train_epochs=1, max_steps=-1)
    trainer.train()  # each row once, since the collator takes its tokens away
    assert trainer.state.global_step == ENOUGH
    assert widths(capsys)[0] == 40


def test_another_version_of_torch_may_not_tell_who_looks_on(tmp_path, monkeypatch, capsys):
    monkeypatch.delattr("torch.overrides._get_current_function_mode_stack")
    build(tmp_path).train()
    assert len(widths(capsys)) == ENOUGH


def warning_of(caplog):
    found = [one.getMessage() for one in caplog.records if "longest rows" in one.getMessage()]
    assert all(one.levelno == logging.WARNING for one in caplog.records if "longest rows" in one.getMessage())
    return found[0] if found else ""


class StopsAtOnce(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        raise KeyboardInterrupt


def test_memory_that_the_longest_rows_exhaust_is_warned_of_before_the_first_update(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, Lines(limit=100), callbacks=[StopsAtOnce()]).train()
    text = warning_of(caplog)
    assert "memory ran out with the largest micro-batch, 4 rows of 40 tokens" in text
    assert "(OutOfMemoryError: CUDA out of memory. Tried 160 tokens.)" in text
    assert "a smaller per_device_train_batch_size" in text
    assert "rehearsal='off'" in text


def test_a_row_that_is_longer_than_the_model_has_positions_is_warned_of(tmp_path, caplog):
    with pytest.raises(IndexError):  # training goes on, to that row
        build(tmp_path, Lines(num_positions=30)).train()
    text = warning_of(caplog)
    assert "failed: IndexError: index out of range in self" in text
    assert "in forward: hidden =" in text
    assert "max_length of your tokenizer" in text


def test_a_collator_that_fails_on_the_longest_rows_is_warned_of(tmp_path, caplog):
    def refuse(rows):
        if max(len(row["input_ids"]) for row in rows) > 30:
            raise RuntimeError("a row has no end")
        return Pad()(rows)

    with pytest.raises(RuntimeError):
        build(tmp_path, collator=refuse).train()
    text = warning_of(caplog)
    assert "rows 17, 0, 1, 2 of train_dataset make no batch: RuntimeError: a row has no end" in text


def test_weights_beyond_what_is_copied_are_watched(tmp_path, caplog, monkeypatch):
    class Moves(Lines):
        def forward(self, input_ids, labels=None):
            with torch.no_grad():
                self.codes.mul_(0.99)
            return super().forward(input_ids, labels)

    monkeypatch.setattr(longest_first, "WEIGHT_BYTES", 0)
    build(tmp_path, Moves()).train()
    assert "forward wrote to large tensors" in warning_of(caplog)
    assert "[8] of torch.float32" in warning_of(caplog)


class Own(Trainer):
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)


class OwnSampler(Trainer):
    """Leaves the longest row out."""

    def _get_train_sampler(self, dataset=None):
        return [index for index in range(30) if index not in (16, 17)]


class OwnParallel(Trainer):
    def _prepare_context_parallel_inputs(self, model, inputs):
        return super()._prepare_context_parallel_inputs(model, inputs)


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = rows_of()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return dict(self.rows[index])


class HoldsFile(Lines):
    def __init__(self, file):
        super().__init__()
        self.file = file.open("w")


@pytest.mark.parametrize(
    "given",
    [
        {"max_steps": ENOUGH - 1},
        {"rehearsal": "off"},
        {"auto_find_batch_size": True},
        {"skip_memory_metrics": False},
        {"trainer": Own},
        {"trainer": OwnSampler},
        {"trainer": OwnParallel},
        {"per_device_train_tokens": 100},
        {"data": Rows()},
        {"data": Table.from_list(rows_of(longest=5))},
    ],
    ids=[
        *(
            "too_short",
            "off",
            "finds_batch_size",
            "measures_memory",
            "own_step",
            "own_sampler",
            "own_parallel",
        ),
        *("by_tokens", "rows_by_code", "as_long"),
    ],
)
def test_it_is_not_tried_where_it_would_disturb_or_tell_nothing(tmp_path, capsys, given):
    build(tmp_path, **given).train()
    num_updates = given.get("max_steps", ENOUGH)
    assert len(widths(capsys)) == num_updates


def test_it_is_not_tried_where_somebody_looks_on(tmp_path, capsys):
    watched = Lines()
    watched.head.register_forward_hook(lambda *args: None)
    stepping = Lines()
    stepping.head.weight.register_post_accumulate_grad_hook(lambda weight: None)
    patched = build(tmp_path / "patched")
    patched.compute_loss = lambda model, inputs, *args, **kwargs: model(**inputs)["loss"]
    wrapped = build(tmp_path / "wrapped")
    wrapped.compute_loss = functools.wraps(wrapped.compute_loss)(
        lambda *args, **kwargs: kept(*args, **kwargs)
    )
    kept = type(wrapped).compute_loss.__get__(wrapped)
    compiled = Lines()
    compiled.head.compile(backend="eager")
    own_file = build(tmp_path / "file", HoldsFile(tmp_path / "notes.txt"))
    models = [build(tmp_path, model) for model in (watched, stepping, compiled)]
    for trainer in (*models, patched, wrapped, own_file):
        trainer.train()
        assert len(widths(capsys)) == ENOUGH
    own_file.model.file.close()


class Counts(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def see_all_modules():
    return contextlib.closing(Closing(nn.modules.module.register_module_forward_hook(lambda *args: None)))


class Closing:
    def __init__(self, handle):
        self.close = handle.remove


@pytest.mark.parametrize(
    "watch",
    [
        see_all_modules,
        Counts,
        lambda: FlopCounterMode(display=False),
        lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda value: value, lambda value: value),
    ],
    ids=["hook", "function mode", "operations", "profiler", "saved tensors"],
)
def test_it_is_not_tried_where_all_of_torch_is_watched(tmp_path, capsys, watch):
    trainer = build(tmp_path, callbacks=[StopsAtEnd()])
    with watch():
        trainer.train()
    assert len(widths(capsys)) == 1


def test_it_is_tried_where_torch_has_a_default_device(tmp_path, capsys):
    with torch.device("cpu"):
        build(tmp_path, callbacks=[StopsAtEnd()]).train()
    assert widths(capsys)[0] == 40


def test_a_model_of_a_library_may_hook_itself(tmp_path, capsys):
    """Noise for embeddings is a hook of ours."""
    model = Lines()
    model.get_input_embeddings = lambda: model.tokens
    build(tmp_path, model, neftune_noise_alpha=0.1).train()
    assert len(widths(capsys)) == ENOUGH + 1


def test_a_resume_with_too_few_updates_left_tries_nothing(tmp_path, capsys):
    build(tmp_path, save_strategy="steps", save_steps=10, max_steps=10).train()
    capsys.readouterr()
    build(tmp_path, max_steps=ENOUGH + 5).train(resume_from_checkpoint=True)
    assert len(widths(capsys)) == ENOUGH - 5
