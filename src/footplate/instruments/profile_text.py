"""A profile as text for people, and the settings that its numbers speak for."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from footplate.instruments.profile import Cost, Finding, PartTime, Profile, format_seconds
from footplate.words import format_bytes

WIDTH = 79  # no line is longer
_BAR, _NAME = 16, 49
_LEAST_SHARE = 0.0005  # a part below it is not shown
MOST_FINDINGS = 3
_LEAST_READING = 0.001  # seconds of an update
LABELS = {"data": "waiting for data", "moving": "moving to the device"}


def format_profile(profile: Profile) -> str:
    """The parts of an update, its speed, what is expensive in it, and what to change."""
    blocks = [
        _format_parts(profile),
        _format_speed(profile),
        _format_costs(
            profile.operators[:10], f"operators of torch, own time ({profile.num_profiled} profiled updates)"
        ),
        _format_costs(profile.modules[:10], "forward by module, own time"),
        _format_callbacks(profile.callbacks),
        [line for one in profile.findings for line in _wrap("change", str(one))],
        [line for note in profile.notes for line in _wrap("note", note)],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _format_parts(profile: Profile) -> list[str]:
    head = (
        f"{profile.model} on {profile.device}: an update takes {format_seconds(profile.seconds)} "
        f"({profile.num_updates} timed, after {profile.warmup} to warm up)"
    )
    shown = [part for part in profile.parts if part.share >= _LEAST_SHARE]
    title = f"  {'':<21}{'mean':>9}{'share':>7}  {'':<{_BAR}}{'middle half':>22}"
    return [_cut(head), title, *(_format_part(part) for part in shown)]


def _format_part(part: PartTime) -> str:
    name = LABELS.get(part.name, part.name)
    spread = f"{f'{format_seconds(part.lower)} .. {format_seconds(part.upper)}':>22}"
    bar = "#" * round(_BAR * part.share)
    share = f"{100 * part.share:.0f}%" if part.share >= 0.01 else "<1%"
    return f"  {name:<21}{format_seconds(part.seconds):>9}{share:>7}  {bar:<{_BAR}}{spread}"


def _format_speed(profile: Profile) -> list[str]:
    speed = f"{_number(profile.updates_per_second)} updates, {_number(profile.rows_per_second)} rows"
    if profile.tokens_per_second is not None:
        padding = "" if profile.padding is None else f" ({100 * profile.padding:.0f}% of them padding)"
        speed += f", {_number(profile.tokens_per_second)} tokens{padding}"
    slowest = profile.slowest
    lines = {
        "a second": speed,
        "slowest": f"update {slowest.number}, {format_seconds(slowest.seconds)}: {slowest.reason}",
        "memory": f"at most {format_bytes(profile.memory)} {profile.memory_of}",
    }
    if profile.device_wait is not None:
        lines["host"] = f"waited {100 * profile.device_wait:.0f}% of the time for {profile.device}"
    lines["overhead"] = f"stopwatch {_percent(profile.clock_share)}"
    if profile.profiler_factor is not None:
        lines["overhead"] += (
            f"; torch's profiler makes an update {profile.profiler_factor:.2g} times as long, so times are "
            "from updates without it"
        )
    if profile.trace is not None:
        lines["trace"] = f"{profile.trace} (open it at ui.perfetto.dev or in chrome://tracing)"
    return [line for name, text in lines.items() for line in _wrap(name, text)]


def _format_costs(costs: Sequence[Cost], title: str) -> list[str]:
    if not costs:
        return []
    lines = [f"{title:<{_NAME + 2}}{'an update':>11}{'share':>8}{'calls':>9}"]
    for cost in costs:
        calls = f"{cost.calls:,.0f}" if cost.calls >= 1 else f"{cost.calls:.1f}"
        lines.append(
            f"  {_shorten(cost.name):<{_NAME}}{format_seconds(cost.seconds):>11}"
            f"{_percent(cost.share):>8}{calls:>9}"
        )
    return lines


def _shorten(name: str) -> str:
    """A name that fits its column: both ends tell names apart, such as a layer and its class."""
    if len(name) <= _NAME:
        return name
    head = _NAME // 4
    return f"{name[:head]}...{name[len(name) - (_NAME - head - 3) :]}"


def _format_callbacks(costs: Sequence[Cost]) -> list[str]:
    shown = [cost for cost in costs if cost.share >= 0.01]
    return _format_costs(shown[:5], "your callbacks")


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%" if share >= 0.095 else f"{100 * share:.1f}%" if share >= 0.001 else "<0.1%"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."


def _wrap(name: str, text: str) -> list[str]:
    indent = " " * 10
    return textwrap.wrap(
        f"{name:<9} {text}", WIDTH, subsequent_indent=indent, break_long_words=True, break_on_hyphens=False
    )


# ---- what to change ----


@dataclass(frozen=True)
class Circumstances:
    """What a run was set to, as far as advice depends on it.

    Args:
        num_workers: Processes that load data.
        keeps_workers: They live from one epoch to the next.
        num_cpus: Processors that this process may use.
        loads_in_own_loader: The loader is the user's own, so settings do not reach it.
        reads_stream: The data have no index, so that rows cannot be sorted.
        optimizer: The `optim` setting, if it made the optimizer.
        accumulation: Micro-batches of one update.
        micro_batch_size: Rows of a micro-batch.
        sampling: The `train_sampling_strategy`.
        budgets_tokens: Whether `per_device_train_tokens` is set.
        compiles: Whether `torch_compile` is set.
    """

    num_workers: int = 0
    keeps_workers: bool = False
    num_cpus: int = 1
    loads_in_own_loader: bool = False
    reads_stream: bool = False
    optimizer: str = ""
    accumulation: int = 1
    micro_batch_size: int = 1
    sampling: str = "random"
    budgets_tokens: bool = False
    compiles: bool = False


def find_changes(profile: Profile, known: Circumstances, epoch_start_seconds: float = 0.0) -> list[Finding]:
    """At most three things that take much of an update and that a setting changes, the largest first.

    Args:
        profile: The numbers.
        known: The settings.
        epoch_start_seconds: What the data of an update took more where an epoch began.
    """
    found = [
        _about_data(profile, known),
        _about_workers(profile, known, epoch_start_seconds),
        _about_padding(profile, known),
        _about_optimizer(profile, known),
        _about_callbacks(profile),
        _about_loop(profile, known),
        _about_host(profile, known),
    ]
    proven = [one for one in found if one is not None]
    return sorted(proven, key=lambda one: -one.share)[:MOST_FINDINGS]


def _about_data(profile: Profile, known: Circumstances) -> Finding | None:
    part = profile.part("data")
    # a few slow reads are not the rule, and a batch takes a worker some tenths of a millisecond to send
    if part.share < 0.15 or part.middle < 0.1 * profile.seconds or part.seconds < _LEAST_READING:
        return None
    text = f"{100 * part.share:.0f}% of the time is spent waiting for data"
    if known.loads_in_own_loader:
        return Finding(f"{text}, from a loader of your own", ("num_workers of that loader",), part.share)
    others = max(profile.seconds - part.seconds, 1e-9)
    # what waiting is left with n workers is known only once they are tried
    wanted = (known.num_workers or 1) * math.ceil((part.seconds + others) / others - 0.01)
    wanted = min(max(wanted, known.num_workers + 1), max(known.num_cpus, 2), 16)
    text += f"; dataloader_num_workers is {known.num_workers}"
    if wanted <= known.num_workers:
        text += f" and there are {known.num_cpus} processors"
        return Finding(f"{text}. Prepare the rows before training, such as with map()", (), part.share)
    return Finding(text, (f"dataloader_num_workers={wanted}",), part.share)


def _about_workers(profile: Profile, known: Circumstances, seconds: float) -> Finding | None:
    if not known.num_workers or known.keeps_workers or seconds < 5 * profile.seconds:
        return None
    text = f"each epoch begins with {format_seconds(seconds)} of starting workers"
    share = seconds / (seconds + sum(profile.update_seconds))
    return Finding(text, ("dataloader_persistent_workers=True",), share)


def _about_padding(profile: Profile, known: Circumstances) -> Finding | None:
    computing = profile.part("forward").share + profile.part("backward").share
    is_sorted = known.sampling == "group_by_length" or known.budgets_tokens
    if profile.padding is None or profile.padding < 0.25 or is_sorted:
        return None
    text = f"{100 * profile.padding:.0f}% of the tokens are padding, which is computed too"
    share = profile.padding * computing
    narrowest, widest = profile.widths
    if narrowest == widest and profile.num_updates > 1:  # to sort them would change nothing
        text += f"; every batch is {widest} tokens wide. Leave padding to the data collator"
        return Finding(f"{text}, which pads to the longest row of a batch", (), share)
    if known.loads_in_own_loader or known.reads_stream:
        return Finding(f"{text}. Put rows of about the same length into a batch", (), share)
    settings = ("train_sampling_strategy='group_by_length'", "per_device_train_tokens")
    return Finding(text, settings, share)


def _about_optimizer(profile: Profile, known: Circumstances) -> Finding | None:
    share = profile.part("optimizer").share
    if share < 0.2 or known.optimizer != "adamw_torch":
        return None
    text = f"the optimizer takes {100 * share:.0f}% of the time, one operator at a time"
    return Finding(text, ("optim='adamw_torch_fused'",), share)


def _about_callbacks(profile: Profile) -> Finding | None:
    share = profile.part("callbacks").share
    if share < 0.1 or not profile.callbacks:
        return None
    first = profile.callbacks[0]
    text = (
        f"callbacks take {100 * share:.0f}% of the time, {first.name} {format_seconds(first.seconds)} of "
        "each update"
    )
    return Finding(f"{text}. Let it act on fewer updates", (), share)


def _about_loop(profile: Profile, known: Circumstances) -> Finding | None:
    share = profile.part("the loop itself").share
    if share < 0.2:
        return None
    text = f"updates are so short that the loop itself takes {100 * share:.0f}% of the time"
    return Finding(text, (f"per_device_train_batch_size={2 * known.micro_batch_size}",), share)


def _about_host(profile: Profile, known: Circumstances) -> Finding | None:
    computing = profile.part("forward").share + profile.part("backward").share
    if profile.device_wait is None or profile.device_wait > 0.1 or computing < 0.5:
        return None
    text = f"{profile.device} waits for Python, which starts its work too slowly"
    settings = (f"per_device_train_batch_size={2 * known.micro_batch_size}",)
    return Finding(text, settings if known.compiles else (*settings, "torch_compile=True"), computing)
