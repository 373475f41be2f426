"""DVCLive: metrics as tables of tab-separated values beside the code or the run."""

from __future__ import annotations

import json
import os
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from footplate.integrations.known import KnowingTracker, numbers
from footplate.integrations.run import Run
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

TRUE_WORDS = ("1", "ON", "YES", "TRUE")


class DVCLiveCallback(KnowingTracker):
    """Writes a run with DVCLive.

    In a DVC repository DVCLive's own defaults hold; elsewhere its files go to `output_dir/dvclive`.
    `HF_DVCLIVE_LOG_MODEL` stands in for `log_model`.

    Args:
        live: A `dvclive.Live` of your own, which you end yourself if you resume it.
        log_model: True to keep the last or best checkpoint, "all" to keep `output_dir` at every checkpoint.
        **kwargs: What a new `Live` is made with.
    """

    name = "dvclive"
    package = "dvclive"

    def __init__(
        self, live: Any = None, log_model: Literal["all"] | bool | None = None, **kwargs: Any
    ) -> None:
        super().__init__()
        if live is not None and not hasattr(live, "log_metric"):
            raise RuntimeError(f"live is a {type(live).__name__}, and has to be a dvclive.Live.")
        self.live: Any = live
        self._is_own = live is None
        self._options = kwargs
        self._log_model: Any = _find_log_model() if log_model is None else log_model
        self._latest: dict[str, tuple[int, float]] = {}  # of a curve; two logs of a step share the epoch
        self._final_checkpoint: str | None = None
        self._final_name = "last"

    def open(self, run: Run) -> str | None:
        """Begin the files, or go on in them without what lies past the resumed step."""
        Live = _import_live()
        if self._is_own:
            options = {**_default_options(run), **self._options}
            is_resumed = run.service_id is not None and os.path.isdir(run.service_id)
            points = _cut_tables(Path(str(run.service_id)), run.first_step) if is_resumed else []
            if is_resumed:
                options.update(dir=run.service_id, resume=True)
            self.live = Live(**options)
        self._latest = {}
        self.learn(run, points if self._is_own else None)
        self.live.log_params(json.loads(json.dumps(run.config, default=str)))
        return os.path.abspath(str(self.live.dir))

    def write(self, values: dict[str, Any], step: int) -> None:
        """A point in the table of each number."""
        self.live.step = step
        named = {_clean(key): value for key, value in numbers(values).items()}
        for key, value in self.known.without(named, step).items():
            if self._latest.get(key) != (step, value):
                self.live.log_metric(key, value)
                self._latest[key] = step, value
        self.live.next_step()

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Keep everything, if it is wanted."""
        self._final_checkpoint = folder
        if self._log_model == "all" and self.run is not None:
            self.live.log_artifact(self.run.output_dir)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Keep the model, if it is wanted; then DVCLive saves its experiment."""
        if self._log_model is True and os.path.isdir(self._final_checkpoint or ""):
            self.live.log_artifact(self._final_checkpoint, name=self._final_name, type="model", copy=True)
        self.live.end()

    # ---- what the run tells it ----

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell that training is over; the best checkpoint is the model where it was loaded at the end."""
        if args.load_best_model_at_end and state.best_model_checkpoint:
            self.guard.submit(self._take_best, state.best_model_checkpoint)
        super().on_train_end(args, state, control, **kwargs)

    def _take_best(self, folder: str) -> None:
        self._final_checkpoint, self._final_name = folder, "best"


def _import_live() -> Any:
    try:
        from dvclive import Live
    except ImportError as error:
        raise ImportError("report_to='dvclive' needs dvclive: pip install footplate[dvclive].") from error
    return Live


def _find_log_model() -> Literal["all"] | bool:
    asked = os.getenv("HF_DVCLIVE_LOG_MODEL", "")
    return "all" if asked.lower() == "all" else asked.upper() in TRUE_WORDS


def _default_options(run: Run) -> dict[str, Any]:
    """DVCLive's own defaults in a DVC repository; elsewhere it has nothing to save an experiment in."""
    from dvclive.dvc import get_dvc_repo

    if get_dvc_repo() is not None:
        return {}
    return {"dir": str(Path(run.output_dir, "dvclive")), "save_dvc_exp": False, "dvcyaml": None}


def _cut_tables(folder: Path, last_step: int) -> list[tuple[str, int]]:
    """Drop what lies past a step, which a resumed run makes again; the points that stay."""
    points = []
    tables = Path(folder, "plots", "metrics")
    for path in tables.rglob("*.tsv"):
        # what follows the last line's end was cut short by a kill
        head, *rows = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines() or ["step"]
        column = head.split("\t").index("step")
        kept = [row for row in rows if _step_of(row, column) <= last_step]
        new = path.with_suffix(".new")
        new.write_text("\n".join([head, *kept, ""]), encoding="utf-8")
        os.replace(new, path)
        name = path.relative_to(tables).with_suffix("").as_posix()
        points += [(name, int(_step_of(row, column))) for row in kept]
    return points


def _step_of(row: str, column: int) -> float:
    """The step of a row; past all others where it has none."""
    cells = row.split("\t")
    return int(cells[column]) if len(cells) > column and cells[column].isdigit() else float("inf")


def _clean(key: str) -> str:
    """A name that stays a file below DVCLive's folder."""
    return posixpath.normpath(f"/{key}").lstrip("/").replace("\\", "_") or "_"
