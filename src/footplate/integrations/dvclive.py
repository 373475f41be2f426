"""DVCLive: metrics as files of tab-separated values, beside the code or the run."""

from __future__ import annotations

import json
import os
import posixpath
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from footplate.integrations.inside import is_within, stays_inside
from footplate.integrations.known import KnowingTracker
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.integrations.values import numbers
from footplate.resumed import ResumePoint
from footplate.state import TrainerControl, TrainerState
from footplate.words import is_true

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class DVCLiveCallback(KnowingTracker):
    """Writes a run with DVCLive.

    In a DVC repository DVCLive's own defaults apply; elsewhere its files are in `output_dir/dvclive`.
    `HF_DVCLIVE_LOG_MODEL` replaces `log_model` where that is not given.

    Args:
        live: Your own `dvclive.Live`; end it yourself if you resume it.
        log_model: True logs the last or best checkpoint, "all" logs `output_dir` at every checkpoint.
        **kwargs: Arguments for a new `Live`.
    """

    name = "dvclive"

    def __init__(
        self, live: Any = None, log_model: Literal["all"] | bool | None = None, **kwargs: Any
    ) -> None:
        super().__init__()
        if live is not None and not hasattr(live, "log_metric"):
            raise RuntimeError(f"live is a {type(live).__name__}, but must be a dvclive.Live.")
        self.live: Any = live
        self._is_own = live is None
        self._options = kwargs
        self._log_model: Any = _find_log_model() if log_model is None else log_model
        self._latest: dict[str, tuple[int, float]] = {}  # step and value of each curve
        self._final_checkpoint: str | None = None
        self._final_name = "last"

    def open(self, run: Run) -> str | None:
        """Begin the files, or continue them after removing the points that the resumed run makes again."""
        if self._is_own:
            options = {**_default_options(run), **self._options}
            chosen = os.path.abspath(str(options.get("dir") or "dvclive"))
            is_known = run.service_id is not None and os.path.isdir(run.service_id)
            is_resumed = is_known and is_within(str(run.service_id), run.output_dir, chosen)
            points = _cut_tables(Path(str(run.service_id)), run.resume_point) if is_resumed else []
            if is_resumed:
                options.update(dir=run.service_id, resume=True)
            self.live = import_client("dvclive").Live(**options)
        self._latest = {}
        self.learn(run, points if self._is_own else None)
        self.live.log_params(json.loads(json.dumps(run.config, default=str)))
        return os.path.abspath(str(self.live.dir))

    def write(self, values: dict[str, Any], step: int) -> None:
        """Add a point to the file of each number."""
        self.live.step = step
        named = {_clean(key): value for key, value in numbers(values).items()}
        for key, value in self.known.without(named, step).items():
            if self._latest.get(key) != (step, value):  # two logs of one step have the same epoch
                self.live.log_metric(key, value)
                self._latest[key] = step, value
        self.live.next_step()

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Log everything in `output_dir`, if wanted."""
        self._final_checkpoint = folder
        if self._log_model != "all" or self.run is None:
            return
        if stays_inside(self.run.output_dir, self.run.output_dir):
            self.live.log_artifact(self.run.output_dir)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Log the model, if wanted; then DVCLive saves its experiment."""
        folder = self._final_checkpoint or ""
        home = self.run.output_dir if self.run is not None else os.path.dirname(folder)
        if self._log_model is True and os.path.isdir(folder) and stays_inside(folder, home):
            self.live.log_artifact(self._final_checkpoint, name=self._final_name, type="model", copy=True)
        self.live.end()

    # ---- events of the run ----

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Send that training has ended; if the best model was loaded, its checkpoint is the one to log."""
        if args.load_best_model_at_end and state.best_model_checkpoint:
            self.guard.submit(self._set_best, state.best_model_checkpoint)
        super().on_train_end(args, state, control, **kwargs)

    def _set_best(self, folder: str) -> None:
        self._final_checkpoint, self._final_name = folder, "best"


def _find_log_model() -> Literal["all"] | bool:
    asked = os.getenv("HF_DVCLIVE_LOG_MODEL", "")
    return "all" if asked.lower() == "all" else is_true(asked)


def _default_options(run: Run) -> dict[str, Any]:
    """DVCLive's own defaults in a DVC repository; elsewhere there is none to save an experiment in."""
    from dvclive.dvc import get_dvc_repo

    if get_dvc_repo() is not None:
        return {}
    return {"dir": str(Path(run.output_dir, "dvclive")), "save_dvc_exp": False, "dvcyaml": None}


def _cut_tables(folder: Path, point: ResumePoint) -> list[tuple[str, int]]:
    """Remove the points that a resumed run makes again; return curve and step of those that stay."""
    points = []
    tables = Path(folder, "plots", "metrics")
    for path in tables.rglob("*.tsv"):
        # a kill may have cut the last line: keep only what ends with a line break
        head, *rows = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines() or ["step"]
        column = head.split("\t").index("step")
        kept = point.keep(rows, partial(_step_of, column=column))
        new = path.with_suffix(".new")
        new.write_text("\n".join([head, *kept, ""]), encoding="utf-8")
        os.replace(new, path)
        name = path.relative_to(tables).with_suffix("").as_posix()
        points += [(name, int(_step_of(row, column))) for row in kept]
    return points


def _step_of(row: str, column: int) -> float:
    """The step of a row; infinite, so that it is dropped, if a row has none."""
    cells = row.split("\t")
    return int(cells[column]) if len(cells) > column and cells[column].isdigit() else float("inf")


def _clean(key: str) -> str:
    """The key as a path that cannot leave DVCLive's folder."""
    return posixpath.normpath(f"/{key}").lstrip("/").replace("\\", "_") or "_"
