"""Drives a Trainer up to one update, and watches that one."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from footplate import comm
from footplate.arguments import TrainingArguments
from footplate.callbacks import TrainerCallback
from footplate.data.loader import Loader
from footplate.instruments.activations import ActivationWatch, mark_of
from footplate.instruments.measures import RowMeasure, UpdateMeasure
from footplate.instruments.weights import WeightsBefore, note_gradients
from footplate.outputs import SaveStrategy
from footplate.state import TrainerControl, TrainerState
from footplate.trainer import Trainer

# what must neither be written nor sent; set once the settings were compared with those of the checkpoint
QUIET: dict[str, Any] = {
    "save_strategy": SaveStrategy.NO,
    "load_best_model_at_end": False,
    "save_on_error": False,
    "push_to_hub": False,
}
BUILT_QUIET: dict[str, Any] = {
    **{"report_to": [], "report": False, "show_samples": 0, "push_to_hub": False},
    "module_stats_steps": None,
}


class Stopped(BaseException):
    """Ends training after the update; not an Exception, so that no handler of errors catches it."""


class Replayer(TrainerCallback):
    """Watches one update of a run, and ends the run after it.

    Args:
        trainer: Whose run it is.
        step: The update.
        keeps_marks: Hash weights, outputs and gradients, to compare two runs.
        pause: Is called inside the update: gradients are there, and the weights have not changed yet.
    """

    wants_step_data = False

    def __init__(
        self,
        trainer: Trainer,
        step: int,
        keeps_marks: bool = False,
        pause: Callable[[Replayer], None] | None = None,
    ) -> None:
        self.trainer, self.step, self.keeps_marks, self._pause = trainer, step, keeps_marks, pause
        self.measure = UpdateMeasure()
        self.before: list[tuple[int, float, float]] = []  # step, loss, gradient norm of each update
        self.batches: list[Any] = []  # the micro-batches of the update
        self.outputs: list[Any] = []  # what the model answered
        self.weights: WeightsBefore | None = None
        self.is_inside = self.is_made = False
        self._numbers: list[list[Any]] | None = None
        self._losses: list[float] = []
        self._watch: ActivationWatch | None = None
        self._undo: list[Callable[[], Any]] = []

    # ---- events ----

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Let the run write nothing and end at no time."""
        vars(args).update({name: value for name, value in QUIET.items() if hasattr(args, name)})
        clock = self.trainer._current_run.clock
        clock.max_time = clock.save_every = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin to watch at the right update."""
        self._stop_if_made()
        if state.global_step + 1 == self.step:
            self.is_inside = True
            self._begin()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note loss and gradient norm of each update; in the right one, let the user look around."""
        run = self.trainer._current_run
        assert run.grad_norm is not None
        loss, norm = float(run.meter.update_loss), float(run.grad_norm)
        self.before.append((state.global_step + 1, loss, norm))
        if self.is_inside:
            self.measure.loss, self.measure.grad_norm = math.fsum(self._losses), norm
            self._end_watch()
            if self._pause is not None:
                self._pause(self)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note what the update changed."""
        if self.is_inside and self._watch is not None and self.weights is not None:
            self.measure.learning_rate = self.trainer._get_learning_rate()
            self.weights.note_update(self._watch.measures, self.keeps_marks)
            self._order_modules()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """After the update, only its log is still wanted."""
        if state.global_step >= self.step:
            self.is_inside, self.is_made = False, True
            control.should_evaluate = control.should_save = False
            if not control.should_log and comm.world_size() == 1:
                raise Stopped
            control.should_log = True  # flags of ranks may differ, and all must meet in the log
        return control

    def _stop_if_made(self, *args: Any, **kwargs: Any) -> None:
        if self.is_made:
            raise Stopped

    on_log = on_evaluate = on_save = on_epoch_end = on_train_end = _stop_if_made

    # ---- the update ----

    def _begin(self) -> None:
        """Copy the weights, and put a watch on modules and micro-batches."""
        trainer = self.trainer
        loader = trainer._current_run.feed.loader
        self._numbers = loader.rows_under_way() if isinstance(loader, Loader) else None
        self.weights = WeightsBefore(trainer.model)
        self.measure.nonfinite_weights = self.weights.find_nonfinite()
        # hooks would let a compiled model be compiled anew, with other last bits
        sees_outputs = not trainer.args.torch_compile
        self._watch = ActivationWatch(trainer.model, self.keeps_marks, sees_outputs)
        if self.keeps_marks:
            self.weights.note_marks(self._watch.measures)
        self._undo = [
            replace_on(trainer, "training_step", self._watch_step),
            replace_on(trainer._strategy, "finish_gradients", self._watch_gradients),
        ]
        if sees_outputs:
            self._undo.append(trainer.model.register_forward_hook(self._keep_output).remove)

    def _keep_output(self, module: Any, inputs: Any, output: Any) -> None:
        self.outputs.append(comm.nested_detach(output))

    def _watch_step(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """The step of a micro-batch, with what went in and what came out noted."""

        @functools.wraps(own)
        def step(model: Any, inputs: Any, *rest: Any) -> Any:
            assert self._watch is not None
            seen = comm.map_nested(_copy_leaf, inputs)
            self._watch.begin_batch(inputs)
            self.batches.append(seen)
            result = own(model, inputs, *rest)
            self._losses.append(float(result[0] if isinstance(result, tuple) else result))
            return result

        return step

    def _watch_gradients(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """What makes the gradients whole, with their norms noted before they are clipped."""

        @functools.wraps(own)
        def finish(parameters: Any) -> None:
            assert self._watch is not None
            own(parameters)
            scaler = self.trainer._strategy.scaler
            scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 1.0
            note_gradients(self.trainer.model, self._watch.measures, scale, self.keeps_marks)

        return finish

    def _end_watch(self) -> None:
        """Take the watch off again."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        if self._watch is not None:
            self._watch.detach()

    def finish(self) -> UpdateMeasure:
        """What was measured, of this rank alone; also of an update that an error ended."""
        self._end_watch()
        if self._watch is not None:
            self._order_modules()
            self.measure.first_nonfinite_gradient = self._watch.first_nonfinite_gradient
            self.measure.rows = self._describe_rows(self._watch)
            if self.keeps_marks:
                self.measure.batch_marks = [mark_of(batch) for batch in self.batches]
        return self.measure

    def _order_modules(self) -> None:
        assert self._watch is not None
        self.measure.modules = list(self._watch.measures.values())

    def _describe_rows(self, watch: ActivationWatch) -> list[RowMeasure]:
        """Each row of the update: where it stood, and what of it is not finite."""
        rows: list[RowMeasure] = []
        for index, batch in enumerate(self.batches):
            numbers = self._numbers[index] if self._numbers and index < len(self._numbers) else []
            num_rows = comm.find_batch_size(batch) or 0
            for place in range(num_rows):
                row = RowMeasure(index, place, numbers[place] if len(numbers) == num_rows else None)
                row.nonfinite_in = watch.first_module_of(len(rows))
                row.nonfinite_inputs = find_nonfinite(
                    comm.take_rows(batch, slice(place, place + 1), num_rows)
                )
                rows.append(row)
        return rows


def find_nonfinite(batch: Any) -> list[str]:
    """The entries of a batch that hold NaN or infinity."""
    parts = (
        batch.items()
        if hasattr(batch, "items")
        else enumerate(batch if isinstance(batch, (list, tuple)) else [batch])
    )
    return [
        str(name)
        for name, value in parts
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not bool(value.isfinite().all())
    ]


def replace_on(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Any]) -> Callable[[], None]:
    """Put a function in the place of a method of one object; the result undoes that."""
    kept = vars(owner).get(name)
    setattr(owner, name, wrap(getattr(owner, name)))

    def undo() -> None:
        if kept is None:
            delattr(owner, name)
        else:
            setattr(owner, name, kept)

    return undo


def _copy_leaf(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else copy.copy(leaf)
