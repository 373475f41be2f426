"""What a report shows of one run, collected from its events one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from footplate.integrations.journal import KINDS
from footplate.report.notes import KEEPERS, Keeper
from footplate.report.plain import (
    as_mapping,
    as_number,
    choose_blocks,
    choose_rows,
    numbers_in,
    plain,
    plain_row,
    shorten,
    split_keys,
)
from footplate.report.ranks import RankTable
from footplate.report.series import Series, Spaced, TimeParts
from footplate.resumed import ResumePoint

WHOLE_RUN = {"train_runtime", "total_flos"}  # a log with both is a summary, not a point of a curve
NO_CURVE = {"epoch", "step", "train_runtime"}
BEFORE_UPDATES = {"warning", "model"}  # what a run that fails at once may have told as well
MAX_ROWS, MAX_BLOCKS, MAX_WARNINGS = 20, 200, 100
MAX_SAMPLE_CHARACTERS = 1_500_000  # of all samples in one page


class Moment(NamedTuple):
    """The time of a step: seconds of training, and epochs."""

    step: int
    seconds: float | None
    epoch: float | None


class RunData:
    """One run: its curves, samples, checkpoints, settings and so on.

    Args:
        folder: Where the run keeps its files.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.run_id: str | None = None
        self._pending: list[Mapping[str, Any]] = []  # events of a later run that has nothing to show yet
        self._clear()

    def _clear(self) -> None:
        self.begun: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.curves: dict[tuple[str, str], Series] = {}  # by split and metric
        self.moments: Spaced[Moment] = Spaced(1000, lambda moment: moment.step)
        self.parts = TimeParts()
        self.ranks = RankTable()
        self.notes: dict[str, Keeper] = {kind: make() for kind, make in KEEPERS.items()}
        self.samples: Spaced[dict[str, Any]] = Spaced(MAX_BLOCKS, lambda block: int(block["step"]))
        self.saves: dict[int, str] = {}
        self.best: tuple[int, float | None] | None = None
        self.warnings: dict[str, dict[str, Any]] = {}
        self.resumed_at: list[int] = []
        self.step = 0
        self.epoch: float | None = None
        self.is_over = self.is_broken = self._is_ignored = False
        self.first_time: float | None = None
        self.last_time: float | None = None
        self._seconds_before = 0.0  # of training before the last resume, without the pause between them
        self._resume_time: float | None = None  # when the run began or resumed
        self._last_train_log: tuple[int, float] | None = None
        self._seconds_apart = 0.0  # of evaluating and saving since then: they do not count for the speed

    def add(self, event: Mapping[str, Any]) -> None:
        """Add one event of the journal; an event of an unknown kind or with a wrong step is ignored."""
        kind, step = event.get("kind"), event.get("step", 0)
        add_this = self._find_adder(kind)
        if add_this is None or not isinstance(step, int) or (self._is_ignored and kind != "begin"):
            return
        if self._pending and kind in BEFORE_UPDATES:
            if kind != "warning" or len(self._pending) <= MAX_WARNINGS:
                self._pending.append(event)
            return
        if self._pending and kind != "begin":
            self._show_pending()
        add_this(event)
        if self._is_ignored or self._pending:
            return
        self.step = max(self.step, step)
        time = as_number(event.get("time"))
        if time is not None:
            self.first_time, self.last_time = self.first_time or time, time

    def _find_adder(self, kind: Any) -> Callable[[Mapping[str, Any]], None] | None:
        if kind in self.notes:
            return self.notes[kind].add
        return getattr(self, f"_add_{kind}") if kind in KINDS else None

    # ---- one method for each kind of event ----

    def _add_begin(self, event: Mapping[str, Any]) -> None:
        first_step = event.get("first_step") or 0
        is_other = event.get("run_id") != self.run_id
        # a script that only evaluates in the folder of a run: keep showing the run that trained
        self._is_ignored = is_other and not event.get("max_steps") and bool(self.begun.get("max_steps"))
        # a new run may fail at once: keep showing the earlier run until the new one has something to show
        self._pending = [event] if is_other and self.curves and not self._is_ignored else []
        if self._is_ignored or self._pending:
            return
        if is_other:
            self._clear()
            self.run_id = event.get("run_id")
        else:
            self._cut(ResumePoint(first_step))
        if first_step:
            self.resumed_at.append(first_step)
        self.begun = dict(event)
        self.is_over = False
        self._resume_time = as_number(event.get("time"))
        self._last_train_log = None if self._resume_time is None else (first_step, self._resume_time)
        self._seconds_apart = 0.0

    def _show_pending(self) -> None:
        """Replace the run that is shown by the later one, which has something to show now."""
        pending, self._pending = self._pending, []
        self._clear()
        for event in pending:
            self.add(event)

    def _cut(self, point: ResumePoint) -> None:
        """Drop what a resumed run makes again."""
        curves: list[Any] = list(self.curves.values())
        for records in (*curves, self.moments, self.parts, self.samples, *self.notes.values()):
            records.cut(point)
        self.saves = {step: name for step, name in self.saves.items() if point.keeps(step)}
        self.resumed_at = point.keep(self.resumed_at, lambda step: step)
        self.summary, self.step = {}, point.step
        self.best = self.best if self.best is not None and point.keeps(self.best[0]) else None
        self._seconds_before = (self.moments.last and self.moments.last.seconds) or 0.0

    def _add_log(self, event: Mapping[str, Any]) -> None:
        logs = as_mapping(event.get("logs"))
        if logs.keys() >= WHOLE_RUN:
            self.summary = plain(logs)
            return
        if logs.get("nonfinite") and logs.get("loss") == 0:
            logs = {**logs, "loss": math.nan}  # no value was counted: there is no loss, it is not 0
        step, time = event.get("step", 0), as_number(event.get("time"))
        self._note_moment(step, time, as_number(event.get("epoch", logs.get("epoch"))))
        self._add_points(step, logs, event.get("prefixes"))
        seconds = numbers_in(event.get("seconds"))
        if seconds:
            self.parts.add(step, seconds)
            self._seconds_apart += seconds.get("evaluation", 0.0) + seconds.get("saving", 0.0)
        self.ranks.add(event.get("ranks"))
        if time is not None and "loss" in logs:
            self._note_speed(step, time)

    def _add_predict(self, event: Mapping[str, Any]) -> None:
        self._add_points(event.get("step", 0), as_mapping(event.get("logs")), event.get("prefixes"))

    def _add_points(self, step: int, logs: Mapping[str, Any], prefixes: Any) -> None:
        told = map(str, prefixes) if isinstance(prefixes, list) else ()
        names = split_keys(tuple(logs), tuple(told))
        for key, value in logs.items():
            if key in NO_CURVE or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            self._curve(names[key]).add(step, value)

    def _curve(self, name: tuple[str, str]) -> Series:
        curve = self.curves.get(name)
        if curve is None:
            self.curves[name] = curve = Series()
        return curve

    def _note_moment(self, step: int, time: float | None, epoch: float | None) -> None:
        self.epoch = epoch if epoch is not None else self.epoch
        if self.moments.last is None or self.moments.last.step < step:
            seconds = None
            if time is not None and self._resume_time is not None:
                seconds = round(self._seconds_before + time - self._resume_time, 3)
            self.moments.add(Moment(step, seconds, self.epoch))

    def _note_speed(self, step: int, time: float) -> None:
        """Updates per second since the last log of training, without evaluations and saves between them."""
        if self._last_train_log is not None and step > self._last_train_log[0]:
            num_updates = step - self._last_train_log[0]
            elapsed = time - self._last_train_log[1] - self._seconds_apart
            if elapsed > 0:
                self._curve(("train", "updates_per_second")).add(step, num_updates / elapsed)
        self._last_train_log, self._seconds_apart = (step, time), 0.0

    def _add_samples(self, event: Mapping[str, Any]) -> None:
        rows = event.get("rows")
        if isinstance(rows, list) and rows:
            found = [row for row in rows if isinstance(row, Mapping)]
            shown = [plain_row(row) for row in choose_rows(found, MAX_ROWS)]
            source = str(event.get("source", "eval"))
            self.samples.add({"step": event.get("step", 0), "source": source, "rows": shown})

    def _add_save(self, event: Mapping[str, Any]) -> None:
        step = event.get("step", 0)
        self.saves[step] = Path(str(event.get("folder") or f"checkpoint-{step}")).name
        if isinstance(event.get("best_step"), int):
            self.best = (event["best_step"], as_number(event.get("best_metric")))

    def _add_warning(self, event: Mapping[str, Any]) -> None:
        message = shorten(str(event.get("message", "")))
        known = self.warnings.get(message)
        if known is not None:
            known["count"] += 1
        elif len(self.warnings) < MAX_WARNINGS:
            level, step = str(event.get("level", "WARNING")), event.get("step")
            self.warnings[message] = {"message": message, "level": level, "step": step, "count": 1}

    def _add_end(self, event: Mapping[str, Any]) -> None:
        self.is_over = True
        self.summary = {**plain(as_mapping(event.get("metrics"))), **self.summary}

    # ---- for the page ----

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the run, as plain values."""
        found: dict[str, Any] = plain(as_mapping(self.begun.get("settings")))
        return found

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the arguments when the run was made; older journals do not have them."""
        found: dict[str, Any] = plain(as_mapping(self.begun.get("defaults")))
        return found

    def to_plain(self, num_points: int, num_characters: int = MAX_SAMPLE_CHARACTERS) -> dict[str, Any]:
        """Everything in the form of JSON, with about `num_points` points per curve at most."""
        begun = self.begun
        max_steps = begun.get("max_steps")
        max_steps = max_steps if isinstance(max_steps, int) else 0
        ended = "finished" if self.step >= max_steps and self.is_over else "stopped"
        return {
            "name": shorten(str(begun.get("name") or self.folder.resolve().name)),
            "run_id": str(self.run_id or ""),
            "folder": str(self.folder),
            "status": ended if self.is_over or self.is_broken else "running",
            "step": self.step,
            "max_steps": max_steps,
            "epoch": self.epoch,
            "num_epochs": as_number(as_mapping(begun.get("settings")).get("num_train_epochs")),
            "first_time": self.first_time,
            "last_time": self.last_time,
            "seconds": self.moments.last and self.moments.last.seconds,
            "resumed_at": self.resumed_at,
            "moments": [list(column) for column in zip(*self.moments.items, strict=True)] or [[], [], []],
            "curves": [
                {"split": split, "metric": metric, **curve.to_plain(num_points)}
                for (split, metric), curve in self.curves.items()
            ],
            "parts": self.parts.to_plain(),
            "ranks": self.ranks.to_plain(),
            "samples": choose_blocks(self.samples.items, num_characters),
            "notes": {kind: keeper.to_plain() for kind, keeper in self.notes.items()},
            "checkpoints": self._list_checkpoints(),
            "best": self.find_best(),
            "summary": self.summary,
            "warnings": list(self.warnings.values()),
            "settings": self.settings,
            "model": {k: v for k, v in plain(as_mapping(begun.get("model"))).items() if k != "config"},
            "versions": plain(as_mapping(begun.get("versions"))),
            "machine": plain(as_mapping(begun.get("machine"))),
        }

    def _list_checkpoints(self) -> list[dict[str, Any]]:
        """Every sealed checkpoint, and whether its folder still exists."""
        best_step = self.best[0] if self.best is not None else None
        return [
            {
                "step": step,
                "name": name,
                "is_best": step == best_step,
                "is_last": step == max(self.saves),
                "is_there": (self.folder / name).is_dir(),
            }
            for step, name in sorted(self.saves.items())
        ]

    @property
    def prefers_higher(self) -> bool:
        """Whether a higher value of the metric that decides on the best model is better."""
        is_higher = as_mapping(self.begun.get("settings")).get("greater_is_better")
        return is_higher if isinstance(is_higher, bool) else not self._metric_for_best.endswith("loss")

    @property
    def _metric_for_best(self) -> str:
        settings = as_mapping(self.begun.get("settings"))
        return str(settings.get("metric_for_best_model") or "loss").removeprefix("eval_")

    def find_best(self) -> dict[str, Any] | None:
        """The best value of the metric that decides on the best model, and its step."""
        name = self._metric_for_best
        named = {f"{split}_{metric}": (split, metric) for split, metric in self.curves}
        # each of several evaluation sets has its own split
        split, metric = named.get(f"eval_{name}", ("eval", name))
        curve = self.curves.get((split, metric))
        found = (curve.find_extreme(self.prefers_higher) if curve is not None else None) or self.best
        return None if found is None else {"name": f"{split} {metric}", "step": found[0], "value": found[1]}
