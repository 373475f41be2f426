"""Memory of the stages of a run."""

import gc
import json
import subprocess
import sys
import threading

import pytest
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


KEEP_AND_FREE = """
import json, time, torch
from footplate.evaluation import TrainerMemoryTracker

tracker, metrics = TrainerMemoryTracker(), {}
tracker.start("train")
kept, freed = torch.ones(10 << 20), torch.ones(30 << 20)
time.sleep(0.1)  # let the sampler look
del freed
tracker.stop_and_update_metrics(metrics, "train")
print(json.dumps(metrics))
"""


def test_memory_kept_and_memory_freed_are_told_apart():
    # a process of its own: what other tests leave to the garbage collector would be freed in between
    printed = subprocess.run(
        [sys.executable, "-c", KEEP_AND_FREE], check=True, capture_output=True, text=True
    )
    metrics = json.loads(printed.stdout)
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
