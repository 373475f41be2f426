"""Where the time goes."""

from __future__ import annotations

import time

import footplate
import tiny
from footplate.training.stopwatch import PARTS, Stopwatch


def test_time_belongs_to_the_part_that_its_lap_names():
    watch = Stopwatch()
    time.sleep(0.02)
    watch.lap("data")
    time.sleep(0.01)
    watch.lap("forward")
    watch.lap("data")
    seconds = watch.drain()
    assert 0.02 <= seconds["data"] < 0.2
    assert 0.01 <= seconds["forward"] < 0.2
    assert watch.drain() == {}


def measure(folder):
    """The parts of a small run, and how long it took from its first lap to its end."""
    told: list[dict[str, float]] = []

    class Note(footplate.TrainerCallback):
        def on_train_end(self, args, state, control, trainer=None, **kwargs):
            self.elapsed = time.perf_counter() - trainer.start

        def on_log(self, args, state, control, seconds=None, **kwargs):
            told.append(seconds)

    class Slow(footplate.Trainer):
        def _prepare_for_training(self, *args):
            model = super()._prepare_for_training(*args)
            self.start = time.perf_counter()  # the stopwatch is new
            return model

        def get_batch_samples(self, *args):
            time.sleep(0.01)
            return super().get_batch_samples(*args)

        def compute_loss(self, *args, **kwargs):
            time.sleep(0.02)
            return super().compute_loss(*args, **kwargs)

    args = footplate.TrainingArguments(
        str(folder), max_steps=6, logging_steps=3, eval_strategy="steps", eval_steps=6, disable_tqdm=True
    )
    data = tiny.regression_data(64)
    note = Note()
    trainer = Slow(tiny.Regression(), args, train_dataset=data, eval_dataset=data[:8], callbacks=[note])
    trainer.train()
    return {part: sum(seconds.get(part, 0.0) for seconds in told) for part in PARTS}, note.elapsed


def test_all_the_time_of_a_run_is_accounted_for(tmp_path):
    shares = []
    for attempt in range(5):  # a busy machine may stop the process where no part is timed
        total, elapsed = measure(tmp_path / str(attempt))
        assert total["data"] >= 0.06
        assert total["forward"] >= 0.12
        assert total["evaluation"] >= 0.02
        assert sum(total.values()) <= elapsed + 0.01
        shares.append(sum(total.values()) / elapsed)
        if shares[-1] > 0.8:
            return
    raise AssertionError(shares)
