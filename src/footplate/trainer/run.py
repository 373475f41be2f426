"""`Run`: all that lives as long as one `train()`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from footplate import comm, rng
from footplate.arguments import TrainingArguments
from footplate.checkpoint.lock import FolderLock
from footplate.checkpoint.resume import Differences
from footplate.checkpoint.saves import Saves
from footplate.data.feed import Feed
from footplate.data.generators import HeldGenerators
from footplate.distributed.hang import HangWatch
from footplate.optim.kept_step import KeptStep
from footplate.state import RunIdentity, TrainerControl, TrainerState, export_states, is_exportable
from footplate.training.accord import Accord
from footplate.training.batches import TokenCounter
from footplate.training.buffers import BufferKeeper
from footplate.training.clock import Clock
from footplate.training.compiling import CompileWatch
from footplate.training.facts import RunFacts
from footplate.training.hints import Hints
from footplate.training.meter import Meter
from footplate.training.plan import Extension, Position, TrainingPlan
from footplate.training.rank_times import compare_ranks
from footplate.training.retry import MicroBatches
from footplate.training.signals import StopSignals
from footplate.training.stopwatch import Stopwatch
from footplate.training.watch import StepData, TrainWindow, accepts_update

if TYPE_CHECKING:
    from footplate.instruments.modules import ModuleWatch

logger = logging.getLogger(__name__)

_UNWATCHED = HangWatch(None)
EVAL_ON_START = "eval_on_start"  # left undone: the evaluation before the first update


class Resume(NamedTuple):
    """What a run goes on from, if it does: settings that changed since, and a later end."""

    changes: Differences = Differences()
    extension: Extension | None = None
    checkpoint: str | None = None


class _UpdateStart(NamedTuple):
    """What an update began with: the window of batches, and the random states before its first forward."""

    window: list[tuple[Any, Any]]
    states: rng.RandomStates | None


class Stage(Enum):
    """What the loop is doing, and so what is lost if it stops here."""

    BETWEEN = "between two updates"
    READING = "reading the batches of an update"
    UPDATING = "making an update"
    ENDING = "an update is made, and its end was not announced yet"


class Run:
    """One `train()`, made anew by each. A Trainer that has not trained has one too, which plans nothing.

    Args:
        args: The settings.
        device: Where sums are kept.
        shared: The dictionary that callbacks are handed at every event.
        identity: The name of the run; a new one by default.
        resume: What it goes on from.
        lock: Keeps other runs out of the folder it writes to; None in processes that write nothing.
    """

    def __init__(
        self,
        args: TrainingArguments,
        device: torch.device,
        shared: dict[str, Any],
        identity: RunIdentity | None = None,
        resume: Resume | None = None,
        lock: FolderLock | None = None,
    ) -> None:
        self._shared = shared
        self._home = _find_working_folder()
        self.lock = lock
        self.identity = identity if identity is not None else RunIdentity()
        self.resume = resume if resume is not None else Resume()
        self.plan = TrainingPlan()
        self.feed = Feed()
        self.generators = HeldGenerators()  # those that datasets and collators hold
        self.eval_loaders: dict[str, Any] = {}  # those whose workers live on
        self.saves = Saves(lock.check if lock is not None else None)
        self.signals = StopSignals()
        self.hang = _UNWATCHED  # replaced by `train()`
        self._rank_times: dict[str, Any] = {}
        self.meter = Meter(device, filters=args.logging_nan_inf_filter)
        self.hints = Hints(str(args.output_dir), args.world_size, args.process_index == 0)
        self.step_data = StepData(shared)
        self.facts = RunFacts()
        self.window = TrainWindow(args.train_metrics_batches)
        self.micro_batches = MicroBatches(args.auto_find_batch_size)
        self.clock = Clock(args.max_time_seconds, args.save_every_seconds)
        self.accord = Accord(self.signals, self.clock)
        self.stopwatch = Stopwatch()
        self.compiles = CompileWatch() if args.torch_compile else None
        # of the model and optimizer of this run
        self.parameters: list[nn.Parameter] = []
        self.step: Callable[[Any], None] = KeptStep()
        self.modules: ModuleWatch | None = None
        self.num_flos_parameters: int | None = None  # counted when first asked for
        self.tokens = TokenCounter("no")
        self.num_tokens_before = 0  # input tokens that were seen before this call
        self.max_steps_before = 0  # the end that was planned before this call extended it
        # of the last update
        self.num_micro_batches = args.gradient_accumulation_steps
        self.is_last_micro_batch = True
        self.grad_norm: torch.Tensor | None = None
        self.learning_rate: float | None = None
        self.group_rates: dict[str, float] = {}
        self.batch_weight = 1.0  # of the micro-batch under way, among those of other ranks
        self.record_factor: Any = 1.0  # what a recorded value is multiplied by: the micro-batch's share
        self.undone: list[str] = []  # events and flags of the control that an interruption leaves undone
        self.ends_epoch = False  # resumed where an epoch had to end: on_epoch_end comes next
        self.has_updates_left = True
        self.buffers = BufferKeeper()
        self.stage = Stage.BETWEEN
        self._random = rng.Recorder()
        self._read_states: rng.RandomStates | None = None  # before the batches of an update were read
        self._update_start: _UpdateStart | None = None

        if identity is None:
            self.announce()

    def announce(self) -> None:
        """Tell callbacks the name of the run, and the prefixes that metrics begin with."""
        self._shared.update(run_id=self.identity.run_id, metric_prefixes=("eval", "test"))

    def anchor(self, path: str) -> str:
        """A path as it was meant when the run began: a thread may change the working folder meanwhile."""
        return os.path.join(self._home, path)

    def locate(self, path: str) -> str:
        """A path as the user wrote it, or anchored if it would mean another place by now."""
        return path if _find_working_folder() == self._home else self.anchor(path)

    @property
    def has_begun(self) -> bool:
        """Whether it was planned: then the next `train()` is another run."""
        return self.plan.max_steps > 0

    def begin(self, plan: TrainingPlan, loader: Any, device: torch.device) -> None:
        """Set the run to where its plan starts."""
        start = plan.start
        self.plan = plan
        self.feed = Feed(loader, start.epoch, start.samples_done, plan.first_batch, start.is_begun)
        self.meter = Meter(device, plan.first_step, self.meter.filters)
        self.undone = list(start.pending)
        self.has_updates_left = plan.first_step < plan.max_steps
        if start.last_update is not None:
            rates = dict(start.last_update)
            self.grad_norm = torch.tensor(rates.pop("grad_norm"))
            self.learning_rate, self.group_rates = rates.pop("learning_rate"), rates

    def new_state(self, control: TrainerControl, callbacks: list[Any]) -> TrainerState:
        """The state of a run that has made no update."""
        return TrainerState(stateful_callbacks=export_states(self.stateful(control, callbacks)))

    def stateful(self, control: TrainerControl, callbacks: list[Any]) -> list[Any]:
        """Whatever has a state that belongs into a checkpoint, besides the position."""
        candidates = [*callbacks, control, self.meter, self.identity, self.facts]
        return [candidate for candidate in candidates if is_exportable(candidate)]

    @property
    def position(self) -> Position:
        """Where in the data the run is, as a checkpoint stores it."""
        feed, plan, last_update = self.feed, self.plan, None
        if self.grad_norm is not None and self.learning_rate is not None:  # host sync, once per checkpoint
            norm = {"grad_norm": float(self.grad_norm), "learning_rate": self.learning_rate}
            last_update = {**norm, **self.group_rates}
        return Position(
            feed.epoch,
            feed.samples_done,
            feed.is_begun,
            feed.is_over,
            tuple(self.undone),
            last_update,
            feed.batches_done,
            (plan.batches_per_epoch, plan.round_size),
            tuple(dict.fromkeys([*plan.start.eval_loaders, *self.eval_loaders])),
            (plan.updates_per_epoch, *plan.shift),
        )

    def position_under(self, control: TrainerControl) -> Position:
        """The position, and that a callback has asked for the end of the epoch, if it has."""
        position = self.position
        is_asked = control.should_epoch_stop and self.stage is Stage.BETWEEN and not position.is_epoch_over
        pending = [*position.pending, "should_epoch_stop"] if is_asked else position.pending
        return replace(position, pending=tuple(dict.fromkeys(pending)))

    # ---- one update ----

    def begin_reading(self, step: int) -> None:
        """Note where an update starts to read."""
        self.stage = Stage.READING
        self.hang.beat(step, "data")
        self.signals.keep()
        self._read_states = self._random.capture()
        self.feed.begin_update(self._read_states)

    def begin_update(self, step: int, num_micro_batches: int, may_undo: bool) -> None:
        """Note what an update begins with: it may be given up or, if `may_undo`, be made again."""
        self.stage = Stage.UPDATING
        self.hang.beat(step, "update")
        may_undo = may_undo or num_micro_batches > 1
        self.meter.begin_update(is_single=not may_undo)
        self.buffers.note()
        keeps_states = may_undo or self.feed.reads_stream_here
        self._update_start = _UpdateStart(self.window.contents(), rng.capture() if keeps_states else None)

    def undo_update(self) -> None:
        """Go back to before the first forward: no gradients, the same random numbers, sums and buffers."""
        assert self._update_start is not None
        self.zero_grad()
        self.meter.undo_update()
        self.window.replace(self._update_start.window)
        self.buffers.restore()
        if self._update_start.states is not None:
            rng.restore(self._update_start.states)

    def finish_update(self, state: TrainerState, epoch: int, micro_batches: list[Any]) -> None:
        """The weights have changed: count the update and what it used."""
        self.zero_grad()
        self.meter.finish_update()
        self.feed.advance(micro_batches)
        state.num_input_tokens_seen += self._drain_tokens()  # callbacks stop by it
        state.global_step += 1
        state.epoch = self.plan.epoch_at(epoch, self.feed.batches_done)
        self.stage = Stage.ENDING
        if self.compiles is not None:
            self.compiles.report(self.plan.start_time)

    def _drain_tokens(self) -> int:
        """Input tokens of this update, over all ranks; later where the device would have to be asked."""
        if self.accord.is_alone or self.tokens.mode == "no":
            return self.meter.drain_tokens(may_wait=False)
        return comm.sum_integers([self.meter.drain_tokens()])[0]

    def give_up_update(self) -> None:
        """Go back to the end of the last update, so that a resumed run makes this one from its beginning."""
        if self.stage in (Stage.BETWEEN, Stage.ENDING):
            return
        assert self._read_states is not None
        if not self._random.compare():
            logger.warning(
                "Something draws from Python's random generator for the first time: a resumed run may draw "
                "other numbers from it than this one."
            )
        if self.stage is Stage.UPDATING:
            self.undo_update()
        # what was read of a stream is kept: its samples cannot be read twice
        if self.stage is Stage.READING or not self.feed.reads_stream_here:
            self.feed.rewind()
            rng.restore(self._read_states)
        self.stage = Stage.BETWEEN

    # ---- an interruption ----

    def note_stop(self, control: TrainerControl) -> None:
        """Let a resumed run end epoch or training where this one was to end it when it was interrupted."""
        if self.stage is Stage.BETWEEN:
            stops = ("should_epoch_stop", "should_training_stop")
            self.undone += [flag for flag in stops if getattr(control, flag) and flag not in self.undone]

    def take_undone(self) -> list[str]:
        """What the interrupted run left undone, to be done now."""
        undone, self.undone = self.undone, []
        if self.max_steps_before <= self.plan.first_step < self.plan.max_steps:  # it was at its planned end
            undone = [name for name in undone if name != "should_training_stop"]
        return undone

    def resume_stop(self, control: TrainerControl) -> None:
        """Make no update if a callback had ended the epoch, or the run, before the interruption."""
        control.should_training_stop |= self.plan.first_step >= self.plan.max_steps
        stops = control.should_training_stop
        self.ends_epoch = self.feed.is_begun and (stops or control.should_epoch_stop)
        self.has_updates_left = self.ends_epoch or (self.has_updates_left and not stops)

    # ---- other ranks ----

    def compare_ranks(self, num_updates: int) -> None:
        """Note how fast each rank was since the last log, from what they said at this one."""
        if not self.accord.is_alone:
            rows = num_updates * self.plan.micro_batch_size * self.plan.accumulation
            times = [list(time) for time in compare_ranks(self.meter.notes)]
            self._rank_times = {"ranks": {"rows": rows, "times": times}}

    def take_rank_times(self) -> dict[str, Any]:
        """What `compare_ranks` noted, once, as arguments of `on_log`; empty in a single process."""
        times, self._rank_times = self._rank_times, {}
        return times

    # ---- gradients, weights and updates of each module ----

    def watch_modules(self, watch: ModuleWatch) -> None:
        """Measure some of the updates."""
        self.modules, self.step = watch, watch.around(self.step)

    def measure_gradients(self, update: int) -> None:
        """Measure the gradients of an update before they are clipped, if it is to be measured."""
        if self.modules is not None:
            self.modules.see_gradients(update)

    def tell_modules(self) -> None:
        """Note what was measured of the update that is over."""
        if self.modules is not None:
            self.modules.tell()

    # ---- whether an update counts ----

    def accepts_update(self, policy: str, step: int) -> bool:
        """Whether the gradients may change the weights; asks the device only if `policy` wants it to."""
        assert self.grad_norm is not None
        self.meter.watch(self.grad_norm)
        try:
            if policy == "warn" or accepts_update(policy, self.grad_norm, self.meter.update_loss, step):
                return True
        except FloatingPointError:
            self.hints.tell_nonfinite(step)
            raise
        self.meter.refuse_update()
        self.buffers.restore()  # running means that took in what is not a number would never lose it
        return False

    def zero_grad(self) -> None:
        """Free the gradients of all parameters."""
        for parameter in self.parameters:
            parameter.grad = None


def _find_working_folder() -> str:
    """The working folder; empty if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""
