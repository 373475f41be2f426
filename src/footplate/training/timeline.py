"""Where the time of each update goes: the loop's stopwatch, which keeps every update by itself."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from footplate.training.stopwatch import Stopwatch

# what a profile tells apart, in the order of an update
PARTS = (
    *("data", "preparing inputs", "moving", "forward", "backward", "clipping", "optimizer"),
    *("callbacks", "the loop itself"),
)
CALLBACKS, LOOP = "callbacks", "the loop itself"
Span = tuple[str, float, float]  # a part, and when it began and ended


class Timeline(Stopwatch):
    """The stopwatch of a profiled run.

    A device works behind the host's back: where `wait` is given, each part ends when the device is done with
    it. The loop calls whatever follows an update "callbacks"; here that is the loop's own work, and only what
    callbacks took themselves is theirs.

    Args:
        wait: Waits until the device is done; None where there is nothing to wait for.
    """

    __slots__ = ("num_laps", "spans", "updates", "wait", "waited")

    def __init__(self, wait: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.wait = wait
        self.updates: list[dict[str, float]] = []
        self.waited = 0.0  # for the device
        self.num_laps = 0
        self.spans: list[Span] | None = None  # filled where it is a list
        self.restart()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to `part`."""
        self.add(LOOP if part == CALLBACKS else part)

    def add(self, part: str) -> None:
        """The same, where the parts of a profile are known by name."""
        if self.wait is not None:
            start = perf_counter()
            self.wait()
            self.waited += perf_counter() - start
        self.num_laps += 1
        start = self._last
        super().lap(part)
        if self.spans is not None:
            self.spans.append((part, start, self._last))

    def end_update(self) -> None:
        """Keep the seconds of each part since the last update ended."""
        self.updates.append(self._seconds)
        self._seconds = dict.fromkeys(PARTS, 0.0)

    def restart(self) -> None:
        """Forget what came since the last update ended."""
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._last = perf_counter()


def time_laps(num_laps: int) -> float:
    """What one lap takes, in seconds; measured on this machine."""
    watch = Timeline()
    start = perf_counter()
    for _ in range(num_laps):
        watch.lap("data")
    return (perf_counter() - start) / num_laps


class BatchCount:
    """In the place of the run's `TokenCounter`: counts rows, tokens and padding of each micro-batch too.

    Args:
        counter: The run's own.
        main_input: The model's main input, whose second dimension is the tokens of a row.
        count_rows: Says how many rows a batch has.
    """

    def __init__(self, counter: Any, main_input: str, count_rows: Callable[[Any], int | None]) -> None:
        self._counter, self._name, self._count_rows = counter, main_input, count_rows
        self.mode = counter.mode
        self._rows = self._tokens = 0
        self._used: Any = None
        self.widths: set[int] = set()  # of micro-batches, in tokens
        self.updates: list[tuple[int, int, Any]] = []  # rows, tokens, and those that are no padding

    def count(self, inputs: Any) -> Any:
        """What the run's own counter says of a micro-batch."""
        self._rows += self._count_rows(inputs) or 0
        tensor: Any = inputs.get(self._name) if hasattr(inputs, "get") else None
        if getattr(tensor, "ndim", 0) == 2 and not tensor.is_floating_point():
            self._tokens += tensor.numel()
            self.widths.add(tensor.shape[1])
            mask = inputs.get("attention_mask")
            if getattr(mask, "shape", None) == tensor.shape:
                used = (mask != 0).sum()  # stays on the device
                self._used = used if self._used is None else self._used + used
        return self._counter.count(inputs)

    def end_update(self) -> None:
        """Keep the counts of the update."""
        self.updates.append((self._rows, self._tokens, self._used))
        self.restart()

    def restart(self) -> None:
        """Forget what came since the last update ended."""
        self._rows, self._tokens, self._used = 0, 0, None
