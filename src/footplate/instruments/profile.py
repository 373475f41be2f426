"""What a profile found: where the time of an update goes, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """A time over several updates, in seconds."""

    mean: float
    lower: float  # a quarter of the updates took less
    middle: float
    upper: float  # a quarter of them took more


@dataclass(frozen=True)
class PartTime:
    """One part of an update.

    Args:
        name: Which.
        seconds: What it took on average.
        share: Of the whole update.
        lower: A quarter of the updates took less.
        middle: Half of them did.
        upper: Three quarters did.
    """

    name: str
    seconds: float
    share: float
    lower: float
    middle: float
    upper: float


@dataclass(frozen=True)
class SlowUpdate:
    """The update that took longest.

    Args:
        number: Which of those that were timed, from 1.
        seconds: What it took.
        reason: The part that took more than usual, and why if that is known.
    """

    number: int
    seconds: float
    reason: str


@dataclass(frozen=True)
class Cost:
    """An operator, a module or a callback, in one update.

    Args:
        name: What it is called; "*" stands for the numbers of equal modules.
        seconds: Its own time, without that of what it calls.
        share: Of the time of all that it is compared with.
        calls: How often it was called.
    """

    name: str
    seconds: float
    share: float
    calls: float


@dataclass(frozen=True)
class Finding:
    """Something that takes much time, proven by the numbers.

    Args:
        text: What, and how much.
        settings: What to set.
        share: Of the time of an update.
    """

    text: str
    settings: tuple[str, ...]
    share: float

    def __str__(self) -> str:
        return f"{self.text}. Try {' or '.join(self.settings)}" if self.settings else self.text


@dataclass
class Profile:
    """Where the time of an update goes; `print` shows it.

    Args:
        model: The name of the model's class.
        device: Where it ran.
        num_updates: Updates that were timed.
        warmup: Updates before them, which were not.
        seconds: What an update took on average, without torch's profiler.
        parts: What it consists of; together they are the update.
        update_seconds: Each update that was timed.
        rows_per_update: Rows of all micro-batches and processes.
        rows_per_second: Rows in a second.
        tokens_per_second: Tokens in a second, padding included; None for data without tokens.
        padding: The share of padding among the tokens; None where it is not known.
        slowest: The slowest update.
        widths: Tokens of a row, in the narrowest and in the widest micro-batch; zeros without tokens.
        operators: What torch's profiler saw, the most expensive first.
        modules: Forward by module, if asked for.
        callbacks: Your callbacks.
        memory: The most bytes that were used so far.
        memory_of: Of what: the device, or this process.
        device_wait: The share of the time that the host waited for the device; None on the CPU.
        clock_share: The share of an update that the stopwatch itself takes.
        profiler_factor: How many times slower an update was under torch's profiler; None without it.
        num_profiled: Updates under torch's profiler.
        findings: What to change, by what it takes.
        notes: What else is to be known.
        trace: The file with torch's trace, if one was asked for.
    """

    model: str
    device: str
    num_updates: int
    warmup: int
    seconds: float
    parts: list[PartTime]
    update_seconds: list[float]
    rows_per_update: float
    rows_per_second: float
    tokens_per_second: float | None
    padding: float | None
    slowest: SlowUpdate
    widths: tuple[int, int] = (0, 0)
    operators: list[Cost] = field(default_factory=list)
    modules: list[Cost] = field(default_factory=list)
    callbacks: list[Cost] = field(default_factory=list)
    memory: int = 0
    memory_of: str = ""
    device_wait: float | None = None
    clock_share: float = 0.0
    profiler_factor: float | None = None
    num_profiled: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trace: str | None = None

    def part(self, name: str) -> PartTime:
        """One part of an update; of zero seconds if it did not occur."""
        found = next((part for part in self.parts if part.name == name), None)
        return found if found is not None else PartTime(name, 0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def updates_per_second(self) -> float:
        """Updates in a second."""
        return 1.0 / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {**asdict(self), "updates_per_second": self.updates_per_second}

    def __str__(self) -> str:
        from footplate.instruments.profile_text import format_profile

        return format_profile(self)


def spread_of(values: Sequence[float]) -> Spread:
    """Mean and quartiles."""
    if len(values) < 2:
        (value,) = values
        return Spread(value, value, value, value)
    lower, middle, upper = quantiles(values, method="inclusive")
    return Spread(sum(values) / len(values), lower, middle, upper)


def split_updates(updates: Sequence[Mapping[str, float]]) -> list[PartTime]:
    """The parts of an update that took any time, in their order."""
    total = sum(sum(update.values()) for update in updates)
    parts = []
    for name in updates[0]:
        times = [update[name] for update in updates]
        spread = spread_of(times)
        if spread.mean > 0.0:
            parts.append(PartTime(name, spread.mean, sum(times) / total, *spread[1:]))
    return parts


def find_slowest(
    updates: Sequence[Mapping[str, float]], tokens: Sequence[int], epoch_starts: Sequence[int]
) -> SlowUpdate:
    """The slowest update, and what is known of why.

    Args:
        updates: The seconds of each part, update by update.
        tokens: The tokens of each update; zeros where there are none.
        epoch_starts: Those that began an epoch.
    """
    totals = [sum(update.values()) for update in updates]
    slowest = max(range(len(totals)), key=totals.__getitem__)
    excess = {
        name: updates[slowest][name] - median(update[name] for update in updates) for name in updates[0]
    }
    part = max(excess, key=lambda name: excess[name])
    if totals[slowest] < 1.1 * median(totals) or len(updates) < 3:
        return SlowUpdate(slowest + 1, totals[slowest], "about as long as the others")
    usual = median(update[part] for update in updates)
    reason = f"{part} took {format_seconds(updates[slowest][part])} instead of {format_seconds(usual)}"
    typical_tokens = median(tokens)
    if slowest in epoch_starts and part == "data":
        reason += ": an epoch began"
    elif part in ("forward", "backward") and tokens[slowest] > 1.2 * typical_tokens > 0:
        reason += f": {tokens[slowest]:,} tokens, others had {typical_tokens:,.0f}"
    return SlowUpdate(slowest + 1, totals[slowest], reason)


def rank_costs(seconds: Mapping[str, float], calls: Mapping[str, float], total: float) -> list[Cost]:
    """Costs in one update, the highest first."""
    costs = [Cost(name, one, one / total if total else 0.0, calls[name]) for name, one in seconds.items()]
    return sorted(costs, key=lambda cost: -cost.seconds)


def format_seconds(seconds: float) -> str:
    """A time such as 12.3 ms, with three digits."""
    if seconds >= 1.0:
        return f"{seconds:.{2 if seconds < 10 else 1}f} s"
    value = 1000 * seconds
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f} ms"
