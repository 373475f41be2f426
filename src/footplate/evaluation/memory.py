"""How much memory each stage of a run takes."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, MutableMapping
from types import ModuleType
from typing import Any

import torch

# methods of the trainer, and the stage that each one measures
STAGES = {
    "__init__": "init",
    "train": "train",
    "_inner_training_loop": "train",
    "_finalize_training": "train",
    "evaluate": "eval",
    "predict": "test",
}
SAMPLING_SECONDS = 0.002


class TrainerMemoryTracker:
    """Measures what a stage allocates and its peak; a stage inside another one counts as part of it.

    Args:
        skip_memory_metrics: Measure nothing.
    """

    def __init__(self, skip_memory_metrics: bool = False) -> None:
        self.skip_memory_metrics = skip_memory_metrics
        self.cur_stage: str | None = None
        self._done: dict[str, dict[str, int]] = {}
        self._is_init_reported = False
        self._sampler: _PeakSampler | None = None
        self._device = None if skip_memory_metrics else _find_device_module()
        self._device_begin = 0
        if not skip_memory_metrics:
            self._read_host = _host_memory_reader()

    def start(self, stage: str | None = None) -> None:
        """Begin to measure.

        Args:
            stage: "init", "train", "eval" or "test"; by default chosen by the name of the calling method.
        """
        if self.skip_memory_metrics:
            return
        stage = stage or _stage_of_caller()
        if self.cur_stage not in (None, stage):
            return
        if self._sampler is not None:  # the stage starts again after an error ended it
            self._sampler.stop()
        self.cur_stage = stage
        gc.collect()
        if self._device is not None:
            self._device.empty_cache()
            if hasattr(self._device, "reset_peak_memory_stats"):
                self._device.reset_peak_memory_stats()
            self._device_begin = _device_memory(self._device)
        self._sampler = _PeakSampler(self._read_host)

    def stop_and_update_metrics(
        self, metrics: MutableMapping[str, Any] | None = None, stage: str | None = None
    ) -> None:
        """Stop measuring and add the stage's figures to `metrics`.

        Args:
            metrics: Where the figures go; None keeps those of "init" for the first stage that reports.
            stage: As in `start`.
        """
        if self.skip_memory_metrics:
            return
        stage = stage or _stage_of_caller()
        if self.cur_stage != stage or self._sampler is None:
            return
        peak = self._sampler.stop()
        gc.collect()
        self._done[stage] = _differences("cpu", self._sampler.begin, self._read_host(), peak)
        if self._device is not None:
            self._device.empty_cache()
            peak_reader = getattr(self._device, "max_memory_allocated", None)
            now = _device_memory(self._device)
            device_peak = peak_reader() if peak_reader else now
            self._done[stage] |= _differences("gpu", self._device_begin, now, device_peak)
        self.cur_stage, self._sampler = None, None
        if metrics is not None:
            self._report(stage, metrics)

    def _report(self, stage: str, metrics: MutableMapping[str, Any]) -> None:
        """Add the figures of a stage; the first report also has those of the constructor."""
        stages = [stage] if self._is_init_reported or "init" not in self._done else ["init", stage]
        self._is_init_reported = True
        for name in stages:
            for key, value in self._done[name].items():
                if key.endswith("_delta"):
                    metrics[f"{name}_mem_{key}"] = value
        if stages[0] == "init":
            for key in ("cpu", "gpu"):
                if f"{key}_begin" in self._done["init"]:
                    metrics[f"before_init_mem_{key}"] = self._done["init"][f"{key}_begin"]


class _PeakSampler:
    """A thread that reads the memory in use at short intervals and keeps the highest value."""

    def __init__(self, read_memory: Callable[[], int]) -> None:
        self._read_memory = read_memory
        self.begin = self._peak = read_memory()
        self._should_stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="footplate-memory", daemon=True)
        with contextlib.suppress(RuntimeError):  # the system refuses another thread: peaks are missed
            self._thread.start()

    def _watch(self) -> None:
        # the pause leaves the interpreter to the training; the price is that short peaks are missed
        while not self._should_stop.wait(SAMPLING_SECONDS):
            self._peak = max(self._peak, self._read_memory())

    def stop(self) -> int:
        """End the thread; returns the peak in bytes."""
        self._should_stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._peak = max(self._peak, self._read_memory())
        return self._peak


def _differences(kind: str, begin: int, end: int, peak: int) -> dict[str, int]:
    return {
        f"{kind}_begin": begin,
        f"{kind}_alloc_delta": end - begin,
        f"{kind}_peaked_delta": max(0, peak - end),
    }


def _stage_of_caller() -> str:
    """The stage of the method that called the tracker."""
    caller = sys._getframe(2).f_code.co_name
    if caller not in STAGES:
        raise ValueError(
            f"Memory is measured in {sorted(STAGES)}, not in {caller!r}. Name the stage: start(stage=...)."
        )
    return STAGES[caller]


def _host_memory_reader() -> Callable[[], int]:
    """A function that returns the bytes of host memory that this process uses."""
    try:
        import psutil
    except ImportError as error:
        raise ImportError(
            "skip_memory_metrics=False needs psutil: pip install footplate[memory], or leave it True."
        ) from error
    process = psutil.Process()
    return lambda: int(process.memory_info().rss)


def _find_device_module() -> ModuleType | None:
    """The torch module that counts the accelerator's memory; None without an accelerator."""
    return torch.get_device_module() if torch.accelerator.is_available() else None


def _device_memory(module: ModuleType) -> int:
    """Bytes allocated on the accelerator now."""
    read = getattr(module, "memory_allocated", None) or module.current_allocated_memory
    return int(read())
