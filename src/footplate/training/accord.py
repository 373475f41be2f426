"""What one rank asks for and all do: a stop, a save, flags that a callback has set."""

from __future__ import annotations

from typing import NamedTuple

from footplate import comm
from footplate.state import TrainerControl
from footplate.training.clock import Clock
from footplate.training.joint import JointDecisions
from footplate.training.signals import StopSignals

FLAGS = ("should_training_stop", "should_epoch_stop", "should_log", "should_evaluate", "should_save")


class Heard(NamedTuple):
    """What callbacks of the user's own listen to, on any rank: they may set flags on one rank alone."""

    updates: bool = False  # events of every update
    reports: bool = False  # logs, evaluations, saves, epochs


class Accord:
    """Lets ranks decide together; in a single process it only asks the signals and the clock.

    Args:
        signals: Those that ask for a stop.
        clock: Knows when the time is over.
    """

    def __init__(self, signals: StopSignals, clock: Clock) -> None:
        self.is_alone = comm.world_size() == 1
        self._signals = signals
        self._clock = clock
        self._updates = JointDecisions()
        # batches of an evaluation are quicker than updates: their pace must not decide how often these ask
        self._polls = JointDecisions()
        self._heard = Heard()
        self._wants_save = False  # this rank; the others are told soon
        self._is_stopping = False  # all ranks have agreed to stop

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal asks for a stop inside an update: with several ranks, only between updates."""
        return self.is_alone and bool(self._signals.received)

    @property
    def should_stop(self) -> bool:
        """Whether a signal or the clock ends the run now; ranks have agreed on it."""
        return self._wants_stop if self.is_alone else self._is_stopping

    @property
    def stop_reason(self) -> str | None:
        """What ends the run before its last update: the name of a signal, or `max_time`; else None."""
        return self._signals.name or ("max_time" if self.should_stop else None)

    def find_listeners(self, hears_updates: bool, hears_reports: bool, control: TrainerControl) -> None:
        """Learn what callbacks of any rank listen to: all ranks exchange flags then, or none does.

        Args:
            hears_updates: Callbacks of this rank listen to events of every update.
            hears_reports: They listen to logs, evaluations, saves or epochs.
            control: Its flags become those that any rank has set by now.
        """
        if not self.is_alone:
            counts = comm.sum_integers([hears_updates, hears_reports])
            self._heard = Heard(*map(bool, counts))
            self.on_report(control)

    def on_update(self, control: TrainerControl, wants_save: bool) -> None:
        """After an update, let all ranks do what one of them asks for.

        Args:
            control: Its flags become those of any rank.
            wants_save: This rank asks for a save.
        """
        if self.is_alone:
            control.should_save |= wants_save
            return
        self._wants_save |= wants_save
        if self._heard.updates or not self._updates.waits():
            self._exchange(control, self._heard.updates)

    def on_epoch_end(self, control: TrainerControl) -> None:
        """At the end of an epoch, let all ranks do what one of them asks for."""
        if not self.is_alone:
            self._exchange(control, True)

    def on_report(self, control: TrainerControl) -> None:
        """After a log, an evaluation or a save, let flags that a callback has set hold on all ranks."""
        if self._heard.reports:
            self._exchange(control, True)

    def poll_stop(self, at_once: bool = False) -> bool:
        """Whether to stop; every rank calls it equally often, such as after each batch of an evaluation."""
        if not self.is_alone and not self._is_stopping:
            self._stop_together(self._polls.decide([int(self._wants_stop)], at_once)[0])
        return self.should_stop

    @property
    def _wants_stop(self) -> bool:
        return bool(self._signals.received) or self._clock.should_stop()

    def _exchange(self, control: TrainerControl, callbacks_may_differ: bool) -> None:
        flags = [int(getattr(control, name)) for name in FLAGS] if callbacks_may_differ else []
        wishes = [int(self._wants_stop), int(self._wants_save), *flags]
        num_stops, num_saves, *flags = self._updates.decide(wishes, at_once=callbacks_may_differ)
        self._stop_together(num_stops)
        for name, count in zip(FLAGS, flags, strict=False):
            setattr(control, name, bool(count))
        if num_saves:
            control.should_save, self._wants_save = True, False

    def _stop_together(self, num_ranks: int) -> None:
        """Stop if any rank asked for it, and for its reason."""
        if num_ranks:
            self._is_stopping = True
            received = max(comm.gather_objects(self._signals.received))
            self._signals.received = self._signals.received or received
