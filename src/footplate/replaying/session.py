"""One replay inside a process: takes the place of the first `train()`, and tells what it found."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from footplate import comm
from footplate.arguments import TrainingArguments
from footplate.arguments.settle import settle
from footplate.callbacks import PrinterCallback, ProgressCallback, SampleCallback
from footplate.checkpoint import resume
from footplate.checkpoint.resume import compare_arguments
from footplate.cli.drive import replacing
from footplate.instruments.measures import join_ranks
from footplate.integrations.base import TrackerCallback
from footplate.replaying.driver import BUILT_QUIET, Replayer, Stopped
from footplate.replaying.elsewhere import build_with
from footplate.replaying.folder import RunRecord, find_num_ranks
from footplate.replaying.result import Replay, compare_logs
from footplate.replaying.rows import MOST_ROWS, measure_rows, show_rows
from footplate.replaying.text import count
from footplate.trainer import Trainer
from footplate.training import hints
from footplate.voice import is_quiet, say

logger = logging.getLogger(__name__)

OWN_SETTINGS = ("output_dir", "resume_from_checkpoint", "rehearsal")  # that a replay itself changes
SHOWN_TYPES = (ProgressCallback, PrinterCallback, SampleCallback, TrackerCallback)
_add_callback = Trainer.add_callback


@dataclass(frozen=True)
class Wanted:
    """What a user asked for."""

    step: int
    from_start: bool = False
    own_settings: bool = False
    all_rows: bool = False
    keeps_marks: bool = False
    pause: Callable[[Replayer], None] | None = None


class Done(BaseException):
    """Ends the script where it would have trained; not an Exception, which a script may catch."""

    def __init__(self, found: Replay) -> None:
        super().__init__()
        self.found = found


class Refused(BaseException):
    """Ends the script with an error of the replay."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Session:
    """The replay of one run by one script.

    Args:
        record: What the run's folder says.
        wanted: What a user asked for.
        folder: An empty folder, in the place of the run's own.
    """

    def __init__(self, record: RunRecord, wanted: Wanted, folder: str) -> None:
        self.record, self.wanted, self.folder = record, wanted, folder
        self.first_step, self.checkpoint = record.find_start(wanted.step, wanted.from_start)
        self._given: dict[str, Any] = {}  # settings of the script, as they were before `_redirect`
        self._changed: set[str] = set()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """In the block, Trainers are built quiet, and the first `train()` is the replay."""
        build = build_with(self._redirect, self._quieten)
        resumes = logging.getLogger(resume.__name__)
        resumes.addFilter(leave_out_folder)
        try:
            functions = {"__init__": build, "train": self._build_train(), "add_callback": add_unless_sending}
            with replacing(Trainer, **functions), hints.silenced():
                yield
        finally:
            resumes.removeFilter(leave_out_folder)

    def _redirect(self, args: TrainingArguments) -> TrainingArguments:
        """Let a Trainer write into a folder of this replay, and to no service."""
        if self.wanted.own_settings:
            adopt_settings(args, self.record.settings)
        folder: str = comm.ask_first(lambda: self.folder)
        self._given = {name: getattr(args, name) for name in BUILT_QUIET if hasattr(args, name)}
        vars(args).update({**dict.fromkeys(self._given), **{name: BUILT_QUIET[name] for name in self._given}})
        args.output_dir = folder
        return args

    def _quieten(self, trainer: Trainer) -> None:
        """Take callbacks that show or send away; settings are again what the script gave."""
        remove_shown(trainer)
        vars(trainer.args).update(self._given)  # they are compared with those of the checkpoint

    def _build_train(self) -> Any:
        train = Trainer.train

        @functools.wraps(train)
        def replay_first(
            trainer: Trainer,
            resume_from_checkpoint: Any = None,
            trial: Any = None,
            ignore_keys_for_eval: Any = None,
            **kwargs: Any,
        ) -> Any:
            kwargs.pop("model_path", None)
            if self.checkpoint is None:
                kwargs = {name: value for name, value in kwargs.items() if not name.startswith("extend_")}
            try:
                raise Done(self._replay(train, trainer, trial, ignore_keys_for_eval, kwargs))
            except Exception as error:
                raise Refused(error) from error.__cause__

        return replay_first

    def _replay(
        self, train: Any, trainer: Trainer, trial: Any, ignore_keys: Any, options: dict[str, Any]
    ) -> Replay:
        """Train up to the update, and put together what was found."""
        # a rank may have looked at the folder at another moment, or through another file system
        self.record, self.first_step, self.checkpoint = comm.broadcast_object(
            (self.record, self.first_step, self.checkpoint)
        )
        self._announce(trainer)
        if self.checkpoint is None:
            self._compare_settings(trainer.args)
        remove_shown(trainer)  # a script may have added some since its Trainer was built
        trainer.args.rehearsal = "off"  # what a replay cannot do it finds out by itself
        wanted = self.wanted
        replayer = Replayer(trainer, wanted.step, wanted.keeps_marks, wanted.pause)
        trainer.add_callback(replayer)
        checkpoint = str(self.checkpoint) if self.checkpoint is not None else None
        begun, problem = time.monotonic(), None
        try:
            train(trainer, checkpoint, trial, ignore_keys, **options)
        except Stopped:
            pass
        except Exception as error:
            if not replayer.is_inside:
                raise
            problem = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - begun
        if not replayer.is_made and problem is None:
            raise ValueError(
                f"The replay ended after update {trainer.state.global_step}, before update {wanted.step}: "
                "settings, data or a callback end the run there. Compare them with those of the run."
            )
        return self._describe(trainer, replayer, seconds, problem)

    def _describe(self, trainer: Trainer, replayer: Replayer, seconds: float, problem: str | None) -> Replay:
        own, notes = replayer.finish(), self._find_notes(trainer)
        show_rows(trainer, replayer.batches, replayer.outputs, own.rows)
        if self._measures_rows(trainer, len(own.rows), notes) and replayer.weights is not None:
            failed = measure_rows(trainer, replayer.batches, own.rows, replayer.weights)
            notes += [failed] if failed is not None else []
        history = trainer.state.log_history
        steps, mismatches = compare_logs(self.record.logs, history, self.first_step, self.wanted.step)
        return Replay(
            run=str(self.record.folder),
            step=self.wanted.step,
            checkpoint=str(self.checkpoint) if self.checkpoint is not None else None,
            first_step=self.first_step,
            seconds=seconds,
            update=join_ranks(comm.gather_objects(own)) if problem is None else own,
            compared_steps=steps,
            mismatches=mismatches,
            before=replayer.before,
            changed=sorted(self._changed.union(names_of(trainer._current_run.resume.changes))),
            error=problem,
            notes=notes,
        )

    def _measures_rows(self, trainer: Trainer, num_rows: int, notes: list[str]) -> bool:
        """Whether each row is passed through the model alone."""
        if trainer._strategy.shards:
            notes.append("The loss of single rows is not measured with fsdp: all processes must take part.")
            return False
        if num_rows > MOST_ROWS and not self.wanted.all_rows:
            notes.append(
                f"The loss of single rows is not measured for more than {MOST_ROWS} rows without --rows."
            )
            return False
        return True

    def _find_notes(self, trainer: Trainer) -> list[str]:
        notes = []
        num_ranks, now = find_num_ranks(self.checkpoint), comm.world_size()
        if num_ranks is not None and num_ranks != now:
            notes.append(
                f"The run had {num_ranks} processes, and this replay has {now}: to have the same bits, start "
                f"it with torchrun --nproc-per-node {num_ranks} -m footplate replay ..."
            )
        if trainer.args.torch_compile:
            notes.append(
                "With torch_compile no output of a module is seen: hooks would let the model be compiled "
                "anew, and change the last bits. Gradients, weights and rows are measured."
            )
        return notes

    def _compare_settings(self, args: TrainingArguments) -> None:
        """Show what differs from the settings of the run; a resume does so with those of the checkpoint."""
        found = compare_arguments(self.record.settings, args.to_dict())
        changes = resume.Differences(tuple(change for change in found if change.name not in OWN_SETTINGS))
        self._changed.update(names_of(changes))
        if self._changed:
            _, *table = resume.describe(changes).split("\n")
            logger.warning("%s", "\n".join(["Replaying with other settings than the run had:", *table]))

    def _announce(self, trainer: Trainer) -> None:
        """Say what must be made before the update comes, and how long that may take."""
        num_before = self.wanted.step - 1 - self.first_step
        start = f"checkpoint-{self.first_step}" if self.checkpoint is not None else "the start of the run"
        if trainer.is_world_process_zero() and not is_quiet():
            time_needed = self.record.describe_time(num_before + 1)
            say(
                f"From {start}: {count(num_before, 'update')} before update {self.wanted.step}{time_needed}.",
                sys.stderr,
            )


def add_unless_sending(trainer: Trainer, callback: Any) -> None:
    """In the place of `add_callback`: a tracker would send what a script evaluates before it trains."""
    kind = callback if isinstance(callback, type) else type(callback)
    if not issubclass(kind, TrackerCallback):
        _add_callback(trainer, callback)


def remove_shown(trainer: Trainer) -> None:
    """Take callbacks that show or send away."""
    for callback in list(trainer.callback_handler.callbacks):
        if isinstance(callback, SHOWN_TYPES):
            trainer.callback_handler.pop_callback(callback)


def leave_out_folder(record: logging.LogRecord) -> bool:
    """Take what a replay itself changes out of the table of changed settings; False if nothing is left."""
    text = record.getMessage()
    if "\n" not in text:
        return True
    lines = [line for line in text.split("\n") if line.split()[:1] not in ([name] for name in OWN_SETTINGS)]
    record.msg, record.args = "%s", ("\n".join(lines),)
    return len(lines) > 2  # more than a title and the heads of columns


def names_of(changes: Iterable[resume.Difference]) -> set[str]:
    """The changes that may be why numbers differ."""
    return {change.name for change in changes if change.outcome != "harmless"}


def adopt_settings(args: TrainingArguments, saved: Any) -> None:
    """Give the settings the values that a run had, but for where it wrote and what it showed."""
    for change in compare_arguments(saved, args.to_dict()):
        if change.outcome != "harmless" or change.name in (
            "eval_strategy",
            "eval_steps",
            "logging_steps",
            "logging_strategy",
        ):
            setattr(args, change.name, change.was)
    settle(args)
