"""The state of a run and what to do next: plain data, read from and written to JSON."""

from __future__ import annotations

import copy
import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

TRAINER_STATE_NAME = "trainer_state.json"
Exportable = TypeVar("Exportable", bound="ExportableState")


class ExportableState:
    """An object whose state is saved with each checkpoint and restored on resume.

    `state()` returns `{"args": constructor arguments, "attributes": what to set afterwards}`, all of it plain
    values that JSON can hold.
    """

    def state(self) -> dict[str, Any]:
        """What `from_state` needs to rebuild this object."""
        raise NotImplementedError(
            f"{type(self).__name__} is an ExportableState and must define state(), returning "
            '{"args": {...}, "attributes": {...}}.'
        )

    @classmethod
    def from_state(cls: type[Exportable], state: dict[str, Any]) -> Exportable:
        """Build an object from what `state()` returned."""
        instance = cls(**state.get("args", {}))
        for name, value in state.get("attributes", {}).items():
            setattr(instance, name, value)
        return instance


def export_states(exportables: Iterable[Any]) -> dict[str, Any]:
    """The states of all `exportables` by class name; a list if a class occurs more than once."""
    states: dict[str, list[dict[str, Any]]] = {}
    for exportable in exportables:
        # look for the method, not for the class: the ExportableState of transformers is accepted too
        if not callable(getattr(exportable, "state", None)):
            raise TypeError(f"{exportable!r} has no state() method. Derive its class from ExportableState.")
        states.setdefault(type(exportable).__name__, []).append(exportable.state())
    return {name: found[0] if len(found) == 1 else found for name, found in states.items()}


@dataclass
class TrainerState:
    """The state of a run that a resume needs, saved as `trainer_state.json`; a step is one update.

    Args:
        epoch: Epochs done; the fraction is the part of the current epoch.
        global_step: Updates done.
        max_steps: Updates of the whole run.
        logging_steps: Updates between logs.
        eval_steps: Updates between evaluations.
        save_steps: Updates between checkpoints.
        train_batch_size: Rows of a training micro-batch, as found by `auto_find_batch_size`.
        num_train_epochs: Epochs of the whole run.
        num_input_tokens_seen: Tokens that the model got, if they are counted.
        total_flos: Floating point operations done.
        log_history: Every log so far, each with its step.
        best_metric: Best value of `metric_for_best_model` so far.
        best_global_step: The step of that value.
        best_model_checkpoint: The folder that holds that model.
        is_local_process_zero: Whether this process is the first on its machine.
        is_world_process_zero: Whether this process is the first of the run.
        is_hyper_param_search: Whether the run is one trial of a search.
        trial_name: Name of that trial.
        trial_params: Hyperparameters of that trial.
        stateful_callbacks: States by class name, or the `ExportableState` objects to take them from.
    """

    epoch: float = 0
    global_step: int = 0
    max_steps: int = 0
    logging_steps: int = 500
    eval_steps: int = 500
    save_steps: int = 500
    train_batch_size: int | None = None
    num_train_epochs: int = 0
    num_input_tokens_seen: int = 0
    total_flos: float = 0
    log_history: list[dict[str, float]] = None  # type: ignore[assignment]  # None in a file means an empty list
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    is_hyper_param_search: bool = False
    trial_name: str | None = None
    trial_params: dict[str, str | float | int | bool] | None = None
    stateful_callbacks: dict[str, Any] = None  # type: ignore[assignment]  # a list of objects is accepted too

    def __post_init__(self) -> None:
        history: Any = self.log_history
        callbacks: Any = self.stateful_callbacks
        self.log_history = [] if history is None else history
        self.stateful_callbacks = callbacks if isinstance(callbacks, dict) else export_states(callbacks or ())

    def save_to_json(self, json_path: str | os.PathLike[str]) -> None:
        """Write this state to `json_path`."""
        # make the text before opening the file: a value that JSON cannot hold must not destroy the old file
        text = self.to_json_text()
        Path(json_path).write_text(text, encoding="utf-8")

    def to_json_text(self) -> str:
        """This state as the text of `trainer_state.json`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        history, values["log_history"] = values["log_history"], _HISTORY_PLACE
        text = json.dumps(values, indent=2, sort_keys=True, default=_to_plain) + "\n"
        return text.replace(json.dumps(_HISTORY_PLACE), _describe_history(history), 1)

    @classmethod
    def load_from_json(cls, json_path: str | os.PathLike[str]) -> TrainerState:
        """Read a state from `json_path`; fields that this version does not have are left out."""
        values = json.loads(Path(json_path).read_text(encoding="utf-8"))
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def compute_steps(self, args: TrainingArguments, max_steps: int) -> None:
        """Take the intervals from `args`; a value below 1 is a share of `max_steps`."""
        for name in ("logging_steps", "eval_steps", "save_steps"):
            interval = getattr(args, name, None)
            if interval is not None:
                setattr(self, name, math.ceil(max_steps * interval) if interval < 1 else interval)


_HISTORY_PLACE = "<log_history>"  # what stands for the history until its own text takes its place
_SCALARS = frozenset((int, float, str, bool, type(None)))
_FLAT = json.JSONEncoder(sort_keys=True, separators=(",\n      ", ": "))


def _describe_history(history: list[Any]) -> str:
    """The log history as `json.dumps` with an indent of 2 writes it inside an object.

    With an indent, Python's own code encodes every value; without one, compiled code does, twice as fast.
    """
    if history and all(map(_is_flat, history)):
        text = _FLAT.encode(history)[2:-2]
        # in a string, the end of a line would be escaped: this stands between two entries and nowhere else
        return "[\n    {\n      " + text.replace("},\n      {", "\n    },\n    {\n      ") + "\n    }\n  ]"
    return json.dumps(history, indent=2, sort_keys=True, default=_to_plain).replace("\n", "\n  ")


def _is_flat(entry: Any) -> bool:
    return type(entry) is dict and bool(entry) and _SCALARS.issuperset(map(type, entry.values()))


def _to_plain(value: Any) -> Any:
    """Arrays, tensors and their scalars as numbers and lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(
        f"trainer_state.json cannot hold {value!r} of type {type(value).__name__}. Log plain numbers."
    )


@dataclass
class TrainerControl(ExportableState):
    """What the loop should do next: callbacks set the flags, the handler clears them.

    Args:
        should_training_stop: End the run; cleared when training begins.
        should_epoch_stop: End the epoch; cleared when an epoch begins.
        should_save: Save a checkpoint; cleared when a step begins and after saving.
        should_evaluate: Evaluate; cleared when a step begins and after evaluating.
        should_log: Log; cleared when a step begins and after logging.
    """

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False

    def _new_training(self) -> None:
        self.should_training_stop = False

    def _new_epoch(self) -> None:
        self.should_epoch_stop = False

    def _new_step(self) -> None:
        self.should_save = False
        self.should_evaluate = False
        self.should_log = False

    def state(self) -> dict[str, Any]:
        """The flags as constructor arguments."""
        return {"args": {field.name: getattr(self, field.name) for field in fields(self)}, "attributes": {}}


@dataclass
class RunIdentity(ExportableState):
    """The name of a run, which a resume keeps.

    Args:
        run_id: A unique name.
        saved_at: When the checkpoint that it was read from was made, in seconds since 1970.
    """

    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    saved_at: float | None = None

    def state(self) -> dict[str, Any]:
        """The name, to be set again on resume, and the time: a copy changes the times of files."""
        return {"args": {}, "attributes": {"run_id": self.run_id, "saved_at": time.time()}}


def is_exportable(candidate: Any) -> bool:
    """Whether an object has a state to save: also one derived from the ExportableState of transformers."""
    return callable(getattr(candidate, "state", None)) and callable(getattr(candidate, "from_state", None))


class StoredStates:
    """The states of a checkpoint by class name, each to be given back once.

    Args:
        stored: As `export_states` made it.
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._left: dict[str, list[dict[str, Any]]] = {
            name: list(states) if isinstance(states, list) else [states] for name, states in stored.items()
        }

    def take(self, holder: Any) -> dict[str, Any] | None:
        """The state that was stored for `holder`; of several, the first with its constructor arguments."""
        states = self._left.get(type(holder).__name__)
        if not states:
            return None
        own = holder.state().get("args") if len(states) > 1 else None
        index = next((index for index, state in enumerate(states) if state.get("args") == own), 0)
        return states.pop(index)

    @property
    def names_left(self) -> list[str]:
        """The classes whose states nobody has taken, a class once for each state."""
        return [name for name, states in self._left.items() for _ in states]


def restore_states(holders: Iterable[Any], stored: Mapping[str, Any]) -> list[str]:
    """Set the attributes of each holder that were stored for it; return the classes of states left over."""
    states = StoredStates(stored)
    for holder in holders:
        set_attributes(holder, states.take(holder) or {})
    return states.names_left


def set_attributes(holder: Any, state: Mapping[str, Any]) -> None:
    """Set what a stored state says of an object that exists already."""
    for name, value in (state.get("attributes") or {}).items():
        setattr(holder, name, value)


class KeptStates:
    """The states that callbacks have now, to be put back if what they do next is undone."""

    def __init__(self, callbacks: Iterable[Any]) -> None:
        self._states = [(entry, copy.deepcopy(entry.state())) for entry in callbacks if is_exportable(entry)]

    def put_back(self) -> None:
        """Give the callbacks their states back."""
        for callback, state in self._states:
            set_attributes(callback, state)


def rebuild_callbacks(callbacks: Iterable[Any], stored: Mapping[str, Any]) -> list[Any]:
    """The callbacks, those with a stored state made anew with its constructor arguments."""
    left = {name: list(states) if isinstance(states, list) else [states] for name, states in stored.items()}
    rebuilt = []
    for callback in callbacks:
        states = left.get(type(callback).__name__) if is_exportable(callback) else None
        arguments = states.pop(0).get("args") if states else None
        rebuilt.append(type(callback)(**arguments) if arguments else callback)
    return rebuilt


def find_unwritable(states: Mapping[str, Any]) -> dict[str, str]:
    """The classes whose state `trainer_state.json` cannot hold, and why."""
    reasons = {}
    for name, state in states.items():
        try:
            json.dumps(state, default=_to_plain)
        except (TypeError, ValueError) as error:
            reasons[name] = str(error)
    return reasons
