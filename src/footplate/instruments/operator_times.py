"""What torch's profiler sees of a few updates: the operators, and a trace for a viewer."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from footplate.instruments.profile import Cost, rank_costs

_CLOCK, _NUM_MARKS = "footplate: clock", 5


class OperatorTimes:
    """While it is entered, torch's profiler looks on.

    Args:
        device_type: The kind of device; its own time is counted where there is one.
    """

    def __init__(self, device_type: str) -> None:
        self._on_device = device_type == "cuda"
        activities = [ProfilerActivity.CPU]
        if self._on_device:
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities)
        self._clocks: list[float] = []  # when the marks were made that are in the trace too
        self.spans: Sequence[tuple[str, float, float]] = ()  # parts of updates meanwhile, by `perf_counter`

    def __enter__(self) -> OperatorTimes:
        self._profiler.start()
        for _ in range(_NUM_MARKS):
            with record_function(_CLOCK):
                self._clocks.append(perf_counter())
        return self

    def __exit__(self, *error: object) -> None:
        self._profiler.stop()

    def costs(self, num_updates: int) -> list[Cost]:
        """Each operator in one update, the most expensive first."""
        seconds: dict[str, float] = {}
        calls: dict[str, float] = {}
        for event in self._profiler.key_averages():
            name = str(event.key)
            if "#" in name or name == _CLOCK:  # a mark around others, such as a step of the optimizer
                continue
            micros = event.self_device_time_total if self._on_device else event.self_cpu_time_total
            if micros > 0:
                seconds[name] = micros / 1e6 / num_updates
                calls[name] = event.count / num_updates
        return rank_costs(seconds, calls, sum(seconds.values()))

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write torch's trace with a row for the parts of each update; the path, as it was given."""
        target = Path(path)
        with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".profile-") as folder:
            raw = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(raw))
            trace = json.loads(raw.read_text(encoding="utf-8"))
            trace["traceEvents"] += self._describe_parts(trace["traceEvents"])
            text = json.dumps(trace).encode()
            whole = Path(folder) / "whole"
            whole.write_bytes(gzip.compress(text) if target.suffix == ".gz" else text)
            whole.replace(target)
        return str(path)

    def _describe_parts(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The parts as events of the trace, on its own clock."""
        marks = [event for event in events if event.get("name") == _CLOCK and "ts" in event]
        marks.sort(key=lambda event: float(event["ts"]))
        if len(marks) != len(self._clocks):
            return []
        # a clock was read after its mark began, the later the busier the machine was: the earliest is right
        offset = max(event["ts"] - 1e6 * clock for event, clock in zip(marks, self._clocks, strict=True))
        where = {"pid": marks[0]["pid"], "tid": "footplate"}
        return [
            {
                **{"ph": "X", "cat": "footplate", "name": name, **where},
                "ts": offset + 1e6 * start,
                "dur": 1e6 * (end - start),
            }
            for name, start, end in self.spans
        ]
