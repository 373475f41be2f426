"""Which callbacks an event calls, in what order, and with what arguments."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from footplate.callbacks.base import TrainerCallback
from footplate.state import TrainerControl, TrainerState

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

Listener = Callable[..., "TrainerControl | None"]

UPDATE_EVENTS = (
    *("on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"),
)
# Every update may be followed by one of these; the last two come on the rank that writes alone.
STEP_EVENTS = (*UPDATE_EVENTS, "on_seal", "on_note")
REPORT_EVENTS = (
    *("on_train_begin", "on_epoch_begin", "on_log", "on_evaluate", "on_round_end", "on_prediction_step"),
    *("on_save", "on_samples", "on_note"),
)
# These are called so often that a look at every class each time would slow training down.
FREQUENT_EVENTS = frozenset((*UPDATE_EVENTS, "on_prediction_step", "on_log"))
# The API does not have these, so a callback need not have a method for them.
OWN_EVENTS = ("on_round_end", "on_seal", "on_samples", "on_note")


def find_listener(callback: Any, event: str) -> Listener | None:
    """The callback's method for `event`; None if it has none or inherits the empty one."""
    method: Listener | None = getattr(callback, event, None)
    # A callback written for transformers inherits empty events from there. If transformers is not imported,
    # no such callback can exist, and importing it here would cost seconds.
    original = sys.modules.get("transformers.trainer_callback")
    bases = (TrainerCallback, getattr(original, "TrainerCallback", None))
    function = getattr(method, "__func__", method)
    return None if any(function is getattr(base, event, None) for base in bases) else method


def _event(name: str, reset: Callable[[TrainerControl], None] | None = None) -> Any:
    """The handler's method for an event: `reset` flags of the control, then call the callbacks."""

    def call(self: CallbackHandler, args: Any, state: Any, control: Any, **kwargs: Any) -> TrainerControl:
        if reset is not None:
            reset(control)
        return self._tell(name, args, state, control, kwargs)

    call.__name__ = name
    return call


class Listeners:
    """Who hears which event, among some callbacks: looked up once per event, and again after a change."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []  # those that the rest was computed from
        self._own: list[dict[str, Any]] = []  # what is set on each of them
        self._found: dict[str, list[Listener]] = {}

    def of(self, event: str, callbacks: list[Any]) -> list[Listener]:
        """The methods to call, in order. A method that was set on a callback since the last look is found."""
        if callbacks != self.callbacks:  # 40 ns; users may change the list in place
            self.forget(callbacks)
        found = self._found.get(event)
        if found is None:
            methods = [find_listener(callback, event) for callback in callbacks]
            found = self._found[event] = [method for method in methods if method is not None]
        for own in self._own:
            if event in own:  # it may have been set, or set again, at any time
                return [
                    method for callback in callbacks if (method := find_listener(callback, event)) is not None
                ]
        return found

    def forget(self, callbacks: list[Any]) -> None:
        """Look at every class again at the next event."""
        self._found.clear()
        self.callbacks = list(callbacks)
        self._own = [getattr(callback, "__dict__", {}) for callback in callbacks]


class CallbackHandler(TrainerCallback):
    """Calls the callbacks in the order they were added; each gets the control as the previous one left it.

    Every event of the API goes through `call_event`, also one that a subclass overrides or that is set on
    the instance. `recorders` and `reporters` are not in the list that users see: the first hear an event
    before all callbacks, the others after them, whatever `call_event` does.

    Args:
        callbacks: Classes or instances.
        model: Passed to every callback, as are the next three.
        processing_class: Also passed as `tokenizer`.
        optimizer: May be set later.
        lr_scheduler: May be set later.
    """

    def __init__(
        self, callbacks: Iterable[Any], model: Any, processing_class: Any, optimizer: Any, lr_scheduler: Any
    ) -> None:
        self.callbacks: list[Any] = []
        self.model = model
        self.processing_class = processing_class
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.train_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.extras: dict[str, Any] = {}
        self.weak_extras: dict[str, Callable[[], Any]] = {}  # weak, or the handler keeps the Trainer alive
        self.recorders: list[Any] = []
        self.reporters: list[Any] = []
        self._listeners, self._first, self._last = Listeners(), Listeners(), Listeners()
        self._silent: frozenset[str] = frozenset()  # frequent events that no recorder or reporter listens to
        for callback in callbacks:
            self.add_callback(callback)
        if not any(_is_a(callback, "DefaultFlowCallback") for callback in self.callbacks):
            logger.warning(
                "There is no DefaultFlowCallback among the callbacks, so the run does not log, evaluate, "
                "save or end as the arguments say. Add it with add_callback(DefaultFlowCallback). "
                "The callbacks are:\n%s",
                self.callback_list,
            )

    @property
    def callback_list(self) -> str:
        """The class names of the callbacks, one per line."""
        return "\n".join(type(callback).__name__ for callback in self.callbacks)

    def add_callback(self, callback: Any) -> None:
        """Add a callback, a class or an instance, after the others."""
        instance = callback() if isinstance(callback, type) else callback
        check_is_callback(instance)
        is_second = any(type(other) is type(instance) for other in self.callbacks)
        if is_second and not getattr(instance, "may_be_several", False):
            logger.warning(
                "A second %s is added to the callbacks; both will be called. The callbacks so far are:\n%s",
                type(instance).__name__,
                self.callback_list,
            )
        self.callbacks.append(instance)

    def pop_callback(self, callback: Any) -> Any:
        """Remove and return the first callback of a class, or the given instance; None if there is none."""
        is_class = isinstance(callback, type)
        for callbacks in (self.callbacks, self.recorders, self.reporters):
            for index, other in enumerate(callbacks):
                if isinstance(other, callback) if is_class else other == callback:
                    return callbacks.pop(index)
        return None

    def remove_callback(self, callback: Any) -> None:
        """Remove the first callback of a class, or the given instance; an unknown instance raises."""
        if self.pop_callback(callback) is None and not isinstance(callback, type):
            raise ValueError(f"{callback!r} is not among the callbacks:\n{self.callback_list}")

    def listens(self, event: str) -> bool:
        """Whether any callback of the list defines `event`."""
        return bool(self._listeners.of(event, self.callbacks))

    def hears(self, events: Iterable[str]) -> bool:
        """Whether a callback of the user's own listens to one of them: it may set flags on one rank alone."""
        methods = (method for event in events for method in self._listeners.of(event, self.callbacks))
        return any(not method.__module__.startswith("footplate.") for method in methods)

    @property
    def wants_step_data(self) -> bool:  # type: ignore[override]  # here it is computed from all callbacks
        """Whether any callback has declared that it uses inputs, outputs or loss of a step."""
        return any(getattr(callback, "wants_step_data", False) for callback in self.callbacks)

    def call_event(
        self, event: str, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Call all listeners of `event` and return the control that they leave."""
        listeners = self._listeners.of(event, self.callbacks)
        return self._call(listeners, args, state, control, kwargs) if listeners else control

    def _tell(
        self,
        event: str,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        kwargs: dict[str, Any],
    ) -> TrainerControl:
        """Tell those before the list, the list, and those after it."""
        if event in self._silent:
            return self.call_event(event, args, state, control, **kwargs)
        call = self.call_event
        if event not in FREQUENT_EVENTS:
            self.look_again()  # a script may have assigned a method to a class meanwhile
            if event in OWN_EVENTS and not all(hasattr(callback, event) for callback in self.callbacks):
                call = CallbackHandler.call_event.__get__(self)  # a library's asks every callback for it
        control = self._call(self._first.of(event, self.recorders), args, state, control, kwargs)
        control = call(event, args, state, control, **kwargs)
        return self._call(self._last.of(event, self.reporters), args, state, control, kwargs)

    def look_again(self) -> None:
        """Find out anew who listens to what."""
        self._listeners.forget(self.callbacks)
        self._first.forget(self.recorders)
        self._last.forget(self.reporters)
        ours = [*self.recorders, *self.reporters]
        heard = {event for event in FREQUENT_EVENTS for one in ours if find_listener(one, event) is not None}
        self._silent = FREQUENT_EVENTS - heard

    def _call(
        self,
        listeners: list[Listener],
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        kwargs: dict[str, Any],  # not unpacked: that would copy it twice per event
    ) -> TrainerControl:
        if not listeners:
            return control
        shared = {
            "model": self.model,
            "processing_class": self.processing_class,
            "tokenizer": self.processing_class,
            "optimizer": self.optimizer,
            "lr_scheduler": self.lr_scheduler,
            "train_dataloader": self.train_dataloader,
            "eval_dataloader": self.eval_dataloader,
            **{name: reference() for name, reference in self.weak_extras.items()},
            **self.extras,
            **kwargs,
        }
        for listener in listeners:
            answer = listener(args, state, control, **shared)
            if answer is not None:
                control = answer
        return control

    on_init_end = _event("on_init_end")
    on_train_begin = _event("on_train_begin", TrainerControl._new_training)
    on_train_end = _event("on_train_end")
    on_epoch_begin = _event("on_epoch_begin", TrainerControl._new_epoch)
    on_epoch_end = _event("on_epoch_end")
    on_step_begin = _event("on_step_begin", TrainerControl._new_step)
    on_substep_end = _event("on_substep_end")
    on_pre_optimizer_step = _event("on_pre_optimizer_step")
    on_optimizer_step = _event("on_optimizer_step")
    on_step_end = _event("on_step_end")
    on_prediction_step = _event("on_prediction_step")
    on_save = _event("on_save", lambda control: setattr(control, "should_save", False))
    on_round_end = _event("on_round_end")
    on_seal = _event("on_seal")
    on_samples = _event("on_samples")
    on_note = _event("on_note")
    on_push_begin = _event("on_push_begin")

    # These three take what they report by position too, as in the API.

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **kwargs: Any) -> TrainerControl:  # type: ignore[override]
        """Clear `should_log`, then call the callbacks."""
        control.should_log = False
        return self._tell("on_log", args, state, control, {**kwargs, "logs": logs})

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> TrainerControl:  # type: ignore[override]
        """Clear `should_evaluate`, then call the callbacks."""
        control.should_evaluate = False
        return self._tell("on_evaluate", args, state, control, {**kwargs, "metrics": metrics})

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> TrainerControl:
        """Call the callbacks."""
        return self._tell("on_predict", args, state, control, {**kwargs, "metrics": metrics})


def check_is_callback(callback: Any) -> None:
    """Refuse an object that has no method for any event: it would never be called."""
    if not any(name.startswith("on_") for name in dir(callback)):
        raise TypeError(
            f"{callback!r} is not a callback: it has no method for an event such as on_step_end or on_log. "
            "Derive it from TrainerCallback."
        )


def _is_a(callback: Any, class_name: str) -> bool:
    """Whether the callback derives from a class of this name, of footplate or of transformers."""
    return any(parent.__name__ == class_name for parent in type(callback).__mro__)
