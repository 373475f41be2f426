"""Who is called at an event, in what order, and with what."""

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

# the events that come with inputs, outputs and loss
STEP_DATA_EVENTS = ("on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end")
# called so often that looking up their listeners each time would be felt
FREQUENT_EVENTS = frozenset((*STEP_DATA_EVENTS, "on_step_begin", "on_prediction_step", "on_log"))


def find_listener(callback: Any, event: str) -> Listener | None:
    """The callback's method for `event`, or None where it has none or only the empty one it inherits."""
    method: Listener | None = getattr(callback, event, None)
    original = sys.modules.get("transformers.trainer_callback")
    bases = (TrainerCallback, getattr(original, "TrainerCallback", None))
    function = getattr(method, "__func__", method)
    return None if any(function is getattr(base, event, None) for base in bases) else method


class CallbackHandler(TrainerCallback):
    """Calls the callbacks in the order they were added, each with the control that the one before it left.

    Args:
        callbacks: Classes or instances.
        model: Passed to every callback, like the three that follow.
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
        self.weak_extras: dict[str, Callable[[], Any]] = {}  # owners: not kept alive
        self._indexed: list[Any] = []  # the callbacks that the two below were made from
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._wants_step_data: bool | None = None
        for callback in callbacks:
            self.add_callback(callback)
        if not any(_is_a(callback, "DefaultFlowCallback") for callback in self.callbacks):
            logger.warning(
                "There is no DefaultFlowCallback among the callbacks, so nothing logs, evaluates, saves or "
                "ends the run as the arguments say. Add it with add_callback(DefaultFlowCallback). "
                "The callbacks are:\n%s",
                self.callback_list,
            )

    @property
    def callback_list(self) -> str:
        """The class names of the callbacks, one per line."""
        return "\n".join(type(callback).__name__ for callback in self.callbacks)

    def add_callback(self, callback: Any) -> None:
        """Add a callback, given as class or instance, behind the others."""
        instance = callback() if isinstance(callback, type) else callback
        check_is_callback(instance)
        check_early_stopping(instance)
        is_there = any(type(other) is type(instance) for other in self.callbacks)
        if is_there and not getattr(instance, "may_be_several", False):
            logger.warning(
                "A second %s is added to the callbacks; both will be called. The callbacks so far are:\n%s",
                type(instance).__name__,
                self.callback_list,
            )
        self.callbacks.append(instance)

    def pop_callback(self, callback: Any) -> Any:
        """Remove and return the first callback of a class, or a given instance; None if there is none."""
        is_class = isinstance(callback, type)
        for index, other in enumerate(self.callbacks):
            if isinstance(other, callback) if is_class else other == callback:
                return self.callbacks.pop(index)
        return None

    def remove_callback(self, callback: Any) -> None:
        """Remove the first callback of a class, or a given instance, which must be there."""
        if self.pop_callback(callback) is None and not isinstance(callback, type):
            raise ValueError(f"{callback!r} is not among the callbacks:\n{self.callback_list}")

    def listens(self, event: str) -> bool:
        """Whether any callback does something at `event`."""
        return bool(self._find_listeners(event))

    @property
    def wants_step_data(self) -> bool:  # type: ignore[override]  # asked of the handler, it speaks for all callbacks
        """Whether a callback that hears step events may look at inputs, outputs or loss."""
        if self.callbacks != self._indexed or self._wants_step_data is None:
            self._forget_listeners()
            curious = [callback for callback in self.callbacks if getattr(callback, "wants_step_data", True)]
            self._wants_step_data = any(
                find_listener(callback, event) for callback in curious for event in STEP_DATA_EVENTS
            )
        return self._wants_step_data

    def call_event(
        self, event: str, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Call all listeners of `event` and return the control they end with."""
        return self._call(event, args, state, control, kwargs)

    def _call(
        self,
        event: str,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        kwargs: dict[str, Any],  # handed on as it is: unpacked, it would be copied twice per event
    ) -> TrainerControl:
        if event not in FREQUENT_EVENTS:
            self._forget_listeners()  # an event may have been assigned to an instance since
        listeners = self._find_listeners(event)
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

    def _find_listeners(self, event: str) -> tuple[Listener, ...]:
        if self.callbacks != self._indexed:  # 40 ns: also sees a list that was changed in place
            self._forget_listeners()
        found = self._listeners.get(event)
        if found is None:
            candidates = [find_listener(callback, event) for callback in self.callbacks]
            found = tuple(listener for listener in candidates if listener is not None)
            self._listeners[event] = found
        return found

    def _forget_listeners(self) -> None:
        self._listeners.clear()
        self._wants_step_data = None
        self._indexed = list(self.callbacks)

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_init_end", args, state, control, kwargs)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        control._new_training()
        return self._call("on_train_begin", args, state, control, kwargs)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_train_end", args, state, control, kwargs)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        control._new_epoch()
        return self._call("on_epoch_begin", args, state, control, kwargs)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_epoch_end", args, state, control, kwargs)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        control._new_step()
        return self._call("on_step_begin", args, state, control, kwargs)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_substep_end", args, state, control, kwargs)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_pre_optimizer_step", args, state, control, kwargs)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_optimizer_step", args, state, control, kwargs)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_step_end", args, state, control, kwargs)

    def on_evaluate(  # type: ignore[override]  # the handler cannot report an evaluation without metrics
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Any,
        **kwargs: Any,
    ) -> TrainerControl:
        control.should_evaluate = False
        return self._call("on_evaluate", args, state, control, {"metrics": metrics, **kwargs})

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Any,
        **kwargs: Any,
    ) -> TrainerControl:
        return self._call("on_predict", args, state, control, {"metrics": metrics, **kwargs})

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        control.should_save = False
        return self._call("on_save", args, state, control, kwargs)

    def on_log(  # type: ignore[override]  # nor a log without logs
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float],
        **kwargs: Any,
    ) -> TrainerControl:
        control.should_log = False
        return self._call("on_log", args, state, control, {"logs": logs, **kwargs})

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_prediction_step", args, state, control, kwargs)

    def on_seal(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_seal", args, state, control, kwargs)

    def on_samples(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_samples", args, state, control, kwargs)

    def on_push_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        return self._call("on_push_begin", args, state, control, kwargs)


def check_is_callback(callback: Any) -> None:
    """Refuse what could never be called: something without a single event."""
    if not any(name.startswith("on_") for name in dir(callback)):
        raise TypeError(
            f"{callback!r} is no callback: it has none of the events on_step_end, on_log, ... Derive from "
            "TrainerCallback."
        )


def check_early_stopping(callback: Any) -> None:
    """Refuse the early stopping of transformers, which would take every evaluation for a failure here."""
    original = sys.modules.get("transformers.trainer_callback")
    if original is not None and isinstance(callback, original.EarlyStoppingCallback):
        raise TypeError(
            f"{type(callback).__name__} is transformers' EarlyStoppingCallback, which reads state.best_metric"
            " as the best before this evaluation; here this evaluation is counted already, so the run would "
            "stop too early. Use footplate's EarlyStoppingCallback: it takes the same arguments."
        )


def _is_a(callback: Any, class_name: str) -> bool:
    """Whether the callback derives from a class of this name, footplate's or transformers' own."""
    return any(parent.__name__ == class_name for parent in type(callback).__mro__)
