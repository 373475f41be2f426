"""Memory of the stages of a run."""

import gc
import sys
import threading
import time

import pytest
import torch
from transformers.trainer_utils import TrainerMemoryTracker as OriginalTracker

from footplate.evaluation import TrainerMemoryTracker

MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _quick_garbage_collection():
    """Keep the collector off what is loaded already: walking through it takes half a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Run:
    """Calls a tracker where a trainer would."""

    def __init__(self, tracker):
        self.tracker = tracker
        tracker.start()
        tracker.stop_and_update_metrics()

    def train(self):
        self.tracker.start()
        self.evaluate()  # inside another stage: part of it
        metrics = {}
        self.tracker.stop_and_update_metrics(metrics)
        return metrics

    def evaluate(self):
        self.tracker.start()
        metrics = {}
        self.tracker.stop_and_update_metrics(metrics)
        return metrics

    def predict(self):
        self.tracker.start()
        metrics = {}
        self.tracker.stop_and_update_metrics(metrics)
        return metrics


@pytest.mark.parametrize("order", [("train", "evaluate", "predict"), ("evaluate", "train")], ids=str)
def test_reported_keys_are_the_originals(order):
    ours, theirs = Run(TrainerMemoryTracker()), Run(OriginalTracker())
    for method in order:
        our_metrics, their_metrics = getattr(ours, method)(), getattr(theirs, method)()
        assert set(our_metrics) == set(their_metrics)
        assert all(type(value) is int for value in our_metrics.values())


def test_memory_kept_and_memory_freed_are_told_apart():
    tracker = TrainerMemoryTracker()
    tracker.start("train")
    kept = torch.ones(40 * MEGABYTE // 4)
    freed = torch.ones(120 * MEGABYTE // 4)
    time.sleep(0.1)  # let the sampler look
    del freed
    metrics = {}
    tracker.stop_and_update_metrics(metrics, "train")
    assert len(kept)
    assert 30 * MEGABYTE < metrics["train_mem_cpu_alloc_delta"] < 70 * MEGABYTE
    assert 90 * MEGABYTE < metrics["train_mem_cpu_peaked_delta"] < 150 * MEGABYTE


def test_no_thread_is_left_behind():
    def samplers():
        return [thread for thread in threading.enumerate() if thread.name == "footplate-memory"]

    tracker = TrainerMemoryTracker()
    tracker.start("train")
    tracker.start("train")  # a run that ended with an exception, begun again
    assert len(samplers()) == 1
    tracker.stop_and_update_metrics({}, "train")
    assert not samplers()


def test_skipped_means_nothing_happens(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    tracker = TrainerMemoryTracker(skip_memory_metrics=True)
    metrics = {}
    tracker.start()
    tracker.stop_and_update_metrics(metrics)
    assert metrics == {}


def test_a_missing_psutil_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ImportError, match=r"footplate\[memory\]"):
        TrainerMemoryTracker()


def test_an_unknown_caller_is_told_to_name_the_stage():
    with pytest.raises(ValueError, match=r"test_an_unknown_caller.*start\(stage="):
        TrainerMemoryTracker().start()
