"""`Trainer.profile()`: a few real updates on the clock, without a trace."""

from __future__ import annotations

import itertools
import os
import resource
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import rng
from footplate.callbacks.handler import REPORT_EVENTS, STEP_EVENTS, find_listener
from footplate.comm import find_batch_size
from footplate.data.loader import Loader
from footplate.instruments.module_times import ModuleTimes
from footplate.instruments.operator_times import OperatorTimes
from footplate.instruments.profile import Profile, find_slowest, rank_costs, split_updates
from footplate.instruments.profile_text import Circumstances, find_changes
from footplate.optim import schedules
from footplate.trainer.staging import QUIET, on_stage
from footplate.training import patches, traits
from footplate.training.rehearsal import CannotPutBack, is_users
from footplate.training.timeline import CALLBACKS, LOOP, BatchCount, Timeline, time_laps
from footplate.wrappers import unwrap_model

if TYPE_CHECKING:
    from footplate.trainer.training import Training

# nothing is saved, so no room is made for it
SETTINGS = {**QUIET, "save_strategy": "no"}
NUM_PROFILED = 5  # updates under torch's profiler, and with a clock at each module
_ENDS = {"on_pre_optimizer_step": "clipping", "on_optimizer_step": "optimizer"}  # what ends at an event
_FLAGS = ("should_training_stop", "should_epoch_stop", "should_log", "should_evaluate", "should_save")


def profile_trainer(
    trainer: Training,
    num_updates: int = 20,
    warmup: int = 5,
    *,
    trace: str | os.PathLike[str] | None = None,
    modules: bool = False,
    operators: bool = True,
    callbacks: bool = True,
    puts_back: bool = True,
) -> Profile:
    """Make some updates as training makes them, and say where their time goes.

    Args:
        trainer: The Trainer, which is afterwards as it was.
        num_updates: Updates to time.
        warmup: Updates before them, which are not timed.
        trace: Where to write what torch's profiler saw, for a viewer.
        modules: Time forward by module too.
        operators: Let torch's profiler look at a few more updates.
        callbacks: Call your callbacks as training does.
        puts_back: Set everything back; not needed where the process ends afterwards.
    """
    check_wish(trainer, num_updates, warmup, trace)
    session = Session(trainer, callbacks)
    try:
        with on_stage(trainer, puts_back, SETTINGS) as changed:
            found = session.run(num_updates, warmup, trace, modules, operators or trace is not None)
    except CannotPutBack as reason:
        raise ValueError(
            f"trainer.profile() makes real updates, which would change something for good: {reason}. Run "
            "`footplate profile script.py`, which does it in a process of its own."
        ) from None
    if changed:
        found.notes.append(
            "large tensors that your code writes to were changed and not put back: " + ", ".join(changed[:5])
        )
    return found


def check_wish(trainer: Training, num_updates: int, warmup: int, trace: Any) -> None:
    """Refuse what cannot be measured, before anything is."""
    args = trainer.args
    check_numbers(num_updates, warmup, trace)
    if args.world_size > 1 or args.sharding is not None:
        what = f"{args.world_size} processes" if args.world_size > 1 else "fsdp"
        raise ValueError(
            f"A profile takes one process that holds the whole model, and this run has {what}. Run "
            "`footplate profile script.py` without torchrun and fsdp; how long the processes of a run wait "
            "for each other is in its report, under Speed."
        )


def check_numbers(num_updates: int, warmup: int, trace: Any) -> None:
    """Refuse what makes no sense for any run."""
    for name, value, least in (("num_updates", num_updates, 1), ("warmup", warmup, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"profile({name}={value!r}): give a whole number of at least {least}.")
    if trace is None:
        return
    if not Path(trace).absolute().parent.is_dir():
        raise ValueError(f"trace={str(trace)!r}: its folder does not exist. Create it, or name another.")
    if Path(trace).is_dir():
        raise ValueError(f"trace={str(trace)!r} is a folder. Name a file in it, such as trace.json.")


class Session:
    """One profile: the updates in phases, and what is measured in each.

    Args:
        trainer: The Trainer.
        calls_callbacks: Whether callbacks of the user's own hear of the updates.
    """

    def __init__(self, trainer: Training, calls_callbacks: bool) -> None:
        self.trainer = trainer
        self.device: torch.device = trainer._device
        is_host = self.device.type == "cpu"
        self.wait: Any = None if is_host else torch.get_device_module(self.device).synchronize
        self.timeline = Timeline()
        self.counts = BatchCount(trainer._current_run.tokens, "", find_batch_size)
        given = trainer.callback_handler.callbacks if calls_callbacks else []
        self.callbacks = [one for one in given if is_users_callback(one)]
        self.callback_seconds: dict[str, float] = defaultdict(float)
        self.callback_calls: dict[str, int] = defaultdict(int)
        self.epoch_starts: list[int] = []
        self._begins_epoch = False
        self._left = 0  # updates of the current phase
        self._schedule_lasts = 0  # updates, after which it must begin anew; 0 if it need not
        self._rewind_schedule: Callable[[], None]
        self._phases: Any = iter(())

    def run(self, num_updates: int, warmup: int, trace: Any, modules: bool, operators: bool) -> Profile:
        """Make the updates of all phases, in one go."""
        trainer = self.trainer
        num_profiled = min(NUM_PROFILED, num_updates)
        has_own_optimizer = trainer.optimizer is not None or trainer.optimizer_cls_and_kwargs is not None
        total = warmup + 2 * num_updates + 2 * num_profiled
        model, loader = self._prepare(total)
        compiles = bool(trainer.args.torch_compile)
        times = ModuleTimes(trainer.model, self.wait) if modules and not compiles else None
        seen = OperatorTimes(self.device.type) if operators else None
        self._phases = self._measure(num_updates, warmup, num_profiled, times, seen)
        self._left = next(self._phases)
        try:
            self._make_updates(model)
        finally:
            self._phases.close()
        profile = self._result
        if modules and compiles:
            profile.notes.append("forward has no times by module: torch_compile makes one piece of it")
        profile.modules = times.costs(num_profiled) if times is not None else []
        if seen is not None:
            profile.operators, profile.num_profiled = seen.costs(num_profiled), num_profiled
            if trace is not None:
                profile.trace = seen.write(trace)
        known = describe_circumstances(trainer, loader, "" if has_own_optimizer else trainer.args.optim)
        profile.findings = find_changes(profile, known, self._epoch_start_seconds)
        return profile

    # ---- the updates ----

    def _prepare(self, total: int) -> tuple[nn.Module, Any]:
        """Model, loader and optimizer, as `train()` makes them from the start."""
        trainer = self.trainer
        trainer._prepare_model_for_run(None, None)
        loader = trainer.get_train_dataloader()
        plan = trainer._plan_run(loader, None)
        is_given = trainer.lr_scheduler is not None or not traits.is_ours(trainer.create_scheduler)
        steps = plan.max_steps
        # a schedule may refuse to go past its end
        plan = plan.lasting(max(steps, total))
        trainer._begin_run(plan, loader, None)
        model = trainer._prepare_for_training(loader, None)
        if is_given and steps < total and hasattr(trainer.lr_scheduler, "state_dict"):
            self._schedule_lasts = steps  # one of the user's own knows nothing of more updates
            self._rewind_schedule = schedules.keep_place(trainer.lr_scheduler, trainer.optimizer)
        trainer.is_in_train = True
        run = trainer._current_run
        run.stopwatch = self.timeline
        run.tokens = self.counts = BatchCount(  # type: ignore[assignment]
            run.tokens, traits.main_input_name(trainer.model), find_batch_size
        )
        vars(trainer).update(_event=self._tell)
        if self.wait is not None or not traits.is_ours(trainer._prepare_inputs):
            vars(trainer).update(_prepare_inputs=self._timed_inputs(trainer._prepare_inputs))
        return model, loader

    def _timed_inputs(self, prepare: Any) -> Any:
        name = "moving" if traits.is_ours(prepare) else "preparing inputs"

        def prepare_inputs(inputs: Any) -> Any:
            self.timeline.add("forward")
            prepared = prepare(inputs)
            self.timeline.add(name)
            return prepared

        return prepare_inputs

    def _make_updates(self, model: nn.Module) -> None:
        trainer, run = self.trainer, self.trainer._current_run
        noise = patches.embedding_noise(trainer.model, trainer.neftune_noise_alpha)
        hears = trainer.callback_handler.hears
        with noise, rng.holding(run.generators), run.compiles or nullcontext():
            self._tell("on_train_begin", plan=run.plan, resumed_from=None)
            run.accord.find_listeners(hears(STEP_EVENTS), hears(REPORT_EVENTS), trainer.control)
            for epoch in itertools.count():
                before = trainer.state.global_step
                self._tell("on_epoch_begin")
                trainer._run_epoch(model, epoch, None, None)
                if not self._left:
                    return
                if trainer.state.global_step == before:
                    raise ValueError(
                        "The training data ended before the profile did, and has nothing more to give: "
                        f"{before} updates were made. Profile fewer (num_updates, --updates), or give data "
                        "that can be read again."
                    )

    def _tell(self, name: str, **kwargs: Any) -> None:
        """In the place of `_event`: callbacks of the user's own hear of updates and epochs, and are timed."""
        timeline, trainer = self.timeline, self.trainer
        timeline.add(_ENDS.get(name, LOOP))
        handler = trainer.callback_handler
        for callback in self.callbacks:
            listener = find_listener(callback, name)
            if listener is not None:
                start = perf_counter()
                handler._call([listener], trainer.args, trainer.state, trainer.control, kwargs)
                known = f"{type(callback).__name__}.{name}"
                self.callback_seconds[known] += perf_counter() - start
                self.callback_calls[known] += 1
        timeline.add(CALLBACKS if self.callbacks else LOOP)
        for flag in _FLAGS:
            setattr(trainer.control, flag, False)
        if name == "on_epoch_begin":
            self._begins_epoch = True
        if name == "on_step_end":
            self._end_update()

    def _end_update(self) -> None:
        """Keep what was measured; after the last update of a phase, begin the next, or end the run."""
        self.timeline.end_update()
        self.counts.end_update()
        if self._schedule_lasts and self.trainer.state.global_step % self._schedule_lasts == 0:
            self._rewind_schedule()
            self.timeline.restart()
        if self._begins_epoch:
            self.epoch_starts.append(len(self.timeline.updates) - 1)
            self._begins_epoch = False
        self._left -= 1
        if not self._left:
            self._left = next(self._phases, 0)
            self.trainer.control.should_training_stop = not self._left
            self.timeline.restart()  # what came between two phases belongs to none
            self.counts.restart()

    # ---- the phases ----

    def _measure(self, num_updates: int, warmup: int, num_profiled: int, times: Any, seen: Any) -> Any:
        """Each phase: it says how many updates it takes, and goes on when they are made."""
        timeline = self.timeline
        if warmup:
            yield warmup
        reset_memory(self.device)
        self._forget()
        start = perf_counter()
        yield num_updates
        if self.wait is not None:
            self.wait()
        elapsed = perf_counter() - start
        device_wait = None
        if self.wait is not None:  # the same again, and at each part the device is waited for
            self._forget()
            timeline.wait = self.wait
            yield num_updates
            device_wait = timeline.waited / sum(sum(update.values()) for update in timeline.updates)
            timeline.wait = None
        self._result = self._describe(num_updates, warmup, elapsed, device_wait)
        if times is not None:
            with times:
                yield num_profiled
        if seen is not None:
            first = len(timeline.updates)
            timeline.spans = []
            with seen:
                yield num_profiled
            seen.spans, timeline.spans = timeline.spans, None
            profiled = timeline.updates[first:]
            slowed = sum(sum(update.values()) for update in profiled) / len(profiled)
            self._result.profiler_factor = slowed / self._result.seconds

    def _forget(self) -> None:
        """Begin to count anew."""
        self.timeline.updates.clear()
        self.timeline.num_laps, self.timeline.waited = 0, 0.0
        self.counts.updates.clear()
        self.counts.widths.clear()
        self.callback_seconds.clear()
        self.callback_calls.clear()
        self.epoch_starts.clear()
        self.timeline.restart()

    def _describe(self, num_updates: int, warmup: int, elapsed: float, device_wait: float | None) -> Profile:
        """What the timed updates say."""
        updates, counts = list(self.timeline.updates), list(self.counts.updates)
        parts = split_updates(updates)
        own_seconds = sum(sum(update.values()) for update in updates) / num_updates
        seconds = own_seconds if self.wait is None else elapsed / num_updates
        tokens = [count[1] for count in counts]
        used = [count[2] for count in counts if count[2] is not None]
        known_tokens = sum(tokens) if used and len(used) == len(counts) else 0
        memory, memory_of = measure_memory(self.device)
        self._epoch_start_seconds = excess_at(updates, self.epoch_starts)
        callbacks = {name: spent / num_updates for name, spent in self.callback_seconds.items()}
        calls = {name: number / num_updates for name, number in self.callback_calls.items()}
        return Profile(
            model=type(unwrap_model(self.trainer.model)).__name__,
            device=str(self.device),
            num_updates=num_updates,
            warmup=warmup,
            seconds=seconds,
            parts=parts,
            update_seconds=[sum(update.values()) for update in updates],
            rows_per_update=sum(count[0] for count in counts) / num_updates,
            rows_per_second=sum(count[0] for count in counts) / (seconds * num_updates),
            tokens_per_second=sum(tokens) / (seconds * num_updates) if any(tokens) else None,
            padding=1.0 - float(sum(used)) / known_tokens if known_tokens else None,
            slowest=find_slowest(updates, tokens, self.epoch_starts),
            widths=(min(self.counts.widths, default=0), max(self.counts.widths, default=0)),
            callbacks=rank_costs(callbacks, calls, seconds),
            memory=memory,
            memory_of=memory_of,
            device_wait=device_wait,
            clock_share=self.timeline.num_laps / num_updates * time_laps(1000) / seconds,
            notes=describe_callbacks(self.trainer, self.callbacks),
        )


def excess_at(updates: list[dict[str, float]], starts: list[int]) -> float:
    """How much longer the data of an update takes where an epoch begins, at the least."""
    others = [update["data"] for index, update in enumerate(updates) if index not in starts]
    first = [updates[index]["data"] for index in starts]
    return max(min(first) - sum(others) / len(others), 0.0) if first and others else 0.0


def is_users_callback(callback: Any) -> bool:
    """Whether the class of a callback is the user's own, and not that of a library, which may send things."""
    functions = [getattr(value, "__code__", None) for value in vars(type(callback)).values()]
    return any(code is not None and is_users(code) for code in functions)


def describe_callbacks(trainer: Training, called: list[Any]) -> list[str]:
    """Which callbacks of libraries were not called."""
    others = [
        type(one).__name__
        for one in trainer.callback_handler.callbacks
        if one not in called and not type(one).__module__.startswith("footplate.")
    ]
    if not others:
        return []
    return [f"not called, and so not timed: {', '.join(dict.fromkeys(others))}"]


def describe_circumstances(trainer: Training, loader: Any, optimizer: Any) -> Circumstances:
    """The settings that advice depends on."""
    args = trainer.args
    is_ours = isinstance(loader, Loader)
    return Circumstances(
        num_workers=args.dataloader_num_workers if is_ours else int(getattr(loader, "num_workers", 0) or 0),
        keeps_workers=bool(getattr(loader, "persistent_workers", False)),
        num_cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        loads_in_own_loader=not is_ours,
        reads_stream=is_ours and loader.reads_stream,
        optimizer=str(getattr(optimizer, "value", optimizer)),
        accumulation=args.gradient_accumulation_steps,
        micro_batch_size=args.per_device_train_batch_size,
        sampling=str(args.train_sampling_strategy),
        budgets_tokens=args.per_device_train_tokens is not None,
        compiles=bool(args.torch_compile),
    )


def reset_memory(device: torch.device) -> None:
    """Count the most memory from now on, where a device counts it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def measure_memory(device: torch.device) -> tuple[int, str]:
    """The most bytes that were used, and of what."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), f"of {device}"
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "in this process"
