"""The report on ranks that stand still: who is behind, where the others wait, and all stacks."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType

from footplate.distributed.naming import name_ranks

MAX_FRAMES = 30  # of one thread: the innermost ones
MAX_STACKS = 12_000  # characters of one rank
WAITING_PLACES = ("/torch/distributed/", "/torch/nn/parallel/distributed.py")
MAX_GROUPS = 8  # ranks whose stacks are the same are shown once


@dataclass(frozen=True)
class Place:
    """Where a rank is."""

    step: int
    stage: str
    turn: int  # beats before this one in its step: the same number is the same line of the program
    stood: float  # seconds since it last moved, by its own clock
    host: str
    process: int
    count: int  # how often it has told where it is
    is_over: bool  # it has left the watched block
    is_gone: bool = False  # it no longer tells where it is

    @property
    def spot(self) -> str:
        """Step and stage in words."""
        return f"at step {self.step} in {self.stage!r}"


@dataclass(frozen=True)
class Stacks:
    """The Python stacks of a rank, and whether its main thread is where ranks wait for one another."""

    text: str = "No stacks were received.\n"
    is_waiting: bool = False


def collect_stacks() -> Stacks:
    """The stacks of this process: the main thread first, footplate's own watches left out."""
    frames = sys._current_frames()
    main = threading.main_thread().ident
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for number in sorted(frames, key=lambda number: number != main):
        name = names.get(number, "a thread that Python did not start")
        if name.startswith("footplate-"):
            continue
        lines = traceback.format_stack(frames[number])[-MAX_FRAMES:]
        parts.append(f"{name}:\n{''.join(lines)}")
    text = "".join(parts)
    text = text if len(text) <= MAX_STACKS else f"{text[:MAX_STACKS]}\n…\n"
    return Stacks(text, main in frames and is_in_collective(frames[main]))


# where backward runs: torch's own function, and what footplate calls in its place for a loss on the CPU
BACKWARD = ("_engine_run_backward", "_call_engine")


def is_in_collective(frame: FrameType) -> bool:
    """Whether the innermost function waits for other ranks, as backward does in its reductions."""
    code = frame.f_code
    path = code.co_filename.replace(os.sep, "/")
    return any(place in path for place in WAITING_PLACES) or code.co_name in BACKWARD


def find_behind(places: Mapping[int, Place], stacks: Mapping[int, Stacks]) -> list[int]:
    """The ranks that the others wait for; none if all are at the same place and wait, or if none waits.

    These are processes that are gone, else the ranks with the lowest step. Of those, ranks outside a
    collective come first, then the ones with the fewest beats in this step. The times that ranks have stood
    still say nothing, as each rank measures them only once per interval.
    """
    gone = [number for number, place in places.items() if place.is_gone]
    running = {number: place for number, place in places.items() if not place.is_over}

    def progress(number: int) -> tuple[int, bool, int]:
        place = running[number]
        return place.step, number in stacks and stacks[number].is_waiting, place.turn

    if gone or len({(place.spot, progress(number)[1]) for number, place in running.items()}) < 2:
        return gone

    last = min(running, key=progress)
    spot, level = running[last].spot, progress(last)[:2]
    return [number for number in running if running[number].spot == spot and progress(number)[:2] == level]


def write_report(places: Mapping[int, Place], stacks: Mapping[int, Stacks]) -> str:
    """The whole report."""
    behind = find_behind(places, stacks)
    others = [number for number in places if number not in behind]
    if behind:
        texts = [*_describe(behind, places), *_describe(others, places, is_waiting=True)]
    else:
        texts = [f"no rank is behind the others: {text}" for text in _describe(others, places)]
    first = behind or others
    shown = _show_stacks([*first, *(number for number in places if number not in first)], stacks)
    return f"Training does not move: {'; '.join(texts)}. The stacks of all ranks follow.\n{shown}"


def _describe(numbers: Iterable[int], places: Mapping[int, Place], is_waiting: bool = False) -> list[str]:
    """One text for each place with the ranks that are there."""
    groups: dict[str, list[int]] = {}
    for number in numbers:
        place = places[number]
        key = "gone" if place.is_gone else "over" if place.is_over else place.spot
        groups.setdefault(key, []).append(number)
    return [_describe_group(group, places, is_waiting) for group in groups.values()]


def _describe_group(group: list[int], places: Mapping[int, Place], is_waiting: bool) -> str:
    place = max((places[number] for number in group), key=lambda place: place.stood)
    name, is_one = name_ranks(group), len(group) == 1
    if is_one:
        name += f" ({place.host}, process {place.process})"
    if place.is_gone:
        return f"{name} no longer answer{'s' * is_one}: ended or stopped, last seen {place.spot}"
    if place.is_over:
        return f"{name} {'has' if is_one else 'have'} finished"
    if is_waiting:
        return f"{name} wait{'s' * is_one} {place.spot} for {place.stood:.0f} s"
    return f"{name} {'has' if is_one else 'have'} stood {place.spot} for {place.stood:.0f} s"


def _show_stacks(numbers: list[int], stacks: Mapping[int, Stacks]) -> str:
    """The stacks in the order of `numbers`; those that are the same once, for all ranks that have them."""
    groups: dict[str, list[int]] = {}
    for number in numbers:
        groups.setdefault(stacks.get(number, Stacks()).text, []).append(number)
    parts = [f"---- {name_ranks(group)} ----\n{text}" for text, group in groups.items()]
    if len(parts) > MAX_GROUPS:
        parts[MAX_GROUPS:] = [f"---- {len(parts) - MAX_GROUPS} more groups of ranks are left out ----\n"]
    return "".join(parts).rstrip()
