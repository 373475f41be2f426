"""How a Trainer saves itself and takes a run up again."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from footplate.api import TrainerApi
from footplate.checkpoint import arguments as argument_files
from footplate.checkpoint import optimizer as optimizer_files
from footplate.checkpoint import resume, rotation, weights
from footplate.checkpoint import rng as rng_files
from footplate.checkpoint.publish import (
    Contents,
    check_intact,
    find_state,
    load_loader_state,
    publish_checkpoint,
)
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.checkpoint.snapshot import HostCopy, num_bytes
from footplate.checkpoint.writer import BackgroundWriter
from footplate.distributed.strategy import Strategy
from footplate.optim import refresh, schedules
from footplate.optim.extend import extend_schedule
from footplate.training import traits
from footplate.training.clock import Clock
from footplate.training.plan import Extension, TrainingPlan


class Saving(TrainerApi):
    """Sealed checkpoints, written while training goes on, and the way back from them."""

    # what the Trainer brings
    processing_class: Any
    data_collator: Any
    is_in_train: bool
    _writer: BackgroundWriter
    _host_copy: HostCopy
    _clock: Clock
    _strategy: Strategy
    _changes: resume.Differences
    _extension: Extension | None
    _planned_before: int
    _created_lr_scheduler: bool
    _loader_state: dict[str, Any] | None
    _was_given_up: bool
    _wanted_step: int | None
    _saved_step: int | None
    _untold_seals: deque[tuple[int, str]]
    _event: Any
    _resumed_rng: dict[str, Any]
    _determine_best_metric: Any
    _report: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model so that `from_pretrained`, or footplate, can load it.

        Args:
            output_dir: The folder; default `args.output_dir`.
        """
        if self.args.should_save:
            traits.call_with_declared(
                self._save, output_dir=output_dir or self.args.output_dir, state_dict=None
            )

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write weights, configuration, processing class and arguments into a folder."""
        folder = output_dir or self.args.output_dir
        assert folder is not None
        os.makedirs(folder, exist_ok=True)
        weights.save_weights(self.model, folder, state_dict)
        processing: Any = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if hasattr(processing, "save_pretrained"):
            processing.save_pretrained(folder)
        argument_files.save_arguments(self.args.to_dict(), folder)

    def _save_checkpoint(self, model: nn.Module, trial: Any, metrics: dict[str, float] | None = None) -> None:
        """Write everything that resuming needs into `checkpoint-<step>`, then let go of the oldest."""
        run_dir = self._get_output_dir(trial)
        step = self.state.global_step
        folder = os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{step}")
        if metrics is not None:
            self._determine_best_metric(metrics, trial)
        self._clock.note_save()
        if not self.args.should_save:
            return
        self._writer.join()
        contents = self._capture_contents(run_dir)
        save_model = self._capture_model(contents)

        def write() -> None:
            publish_checkpoint(folder, save_model, contents)
            self._saved_step, self._sealed_folder = step, folder
            self._untold_seals.append((step, folder))
            self._rotate_checkpoints(output_dir=run_dir)

        self._wanted_step = step
        self._writer.write_in_place = not self._writes_apart()
        self._writer.submit(write, f"Writing {folder}")

    def _tell_of_seals(self) -> None:
        """Name the checkpoints that have become whole on disk since."""
        while self._untold_seals:
            step, folder = self._untold_seals.popleft()
            self._event("on_seal", checkpoint=folder, checkpoint_step=step)

    def _writes_apart(self) -> bool:
        """Whether training may go on while a checkpoint is written: not if somebody looks at it at once."""
        joints = ("save_model", "_save", "_save_checkpoint")
        is_own = any(getattr(type(self), name) is not getattr(Saving, name) for name in joints)
        is_watched = self.callback_handler.listens("on_save")
        return self.args.save_in_background and self.is_in_train and not is_own and not is_watched

    def _prepare_first_save(self) -> None:
        """Make the memory of the first copy while training goes on: touching it is what takes long."""
        if self.args.save_strategy != "no" and not self.args.save_only_model and self._writes_apart():
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            self._writer.submit(
                partial(self._host_copy.prepare, state), "Making room for the first checkpoint"
            )

    def _capture_contents(self, run_dir: str) -> Contents:
        """The state of the run as it is now, apart from the model."""
        self.store_flos()
        self.state.num_input_tokens_seen += self._meter.drain_tokens()
        best_step = self.state.best_global_step
        if best_step is not None:
            best = os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{best_step}")
            is_there = best_step == self.state.global_step or os.path.isdir(best)
            self.state.best_model_checkpoint = best if is_there else None
        self._store_callback_state()
        contents = Contents(self.state.to_json_text())
        if not self.args.save_only_model:
            state = find_state(self.callback_handler.train_dataloader)
            contents.loader = self._loader_state if self._was_given_up else state
            contents.optimizer, contents.schedule = (
                self.optimizer.state_dict(),
                self.lr_scheduler.state_dict(),
            )
            contents.rng = rng_files.capture_rng()
            if self._strategy.scaler is not None:
                contents.scaler = self._strategy.scaler.state_dict()
        return contents

    def _capture_model(self, contents: Contents) -> Callable[[str], None]:
        """What writes the model into a folder: as it is now, if others go on changing it meanwhile."""
        model_state = self.model.state_dict()
        contents.num_bytes = num_bytes([model_state, contents.optimizer])
        if not self._writes_apart():
            return lambda folder: traits.call_with_declared(
                self.save_model, output_dir=folder, _internal_call=True
            )
        copied: dict[str, Any] = self._host_copy.take({"model": model_state, "optimizer": contents.optimizer})
        contents.optimizer = copied["optimizer"]
        model_copy: dict[str, Any] = copied["model"]
        return lambda folder: self._save(folder, model_copy)

    def _find_checkpoint(self, resume_from_checkpoint: str | bool | None) -> str | None:
        """The folder to resume from, if any; one that is not intact is refused."""
        if not resume_from_checkpoint:
            return None
        if resume_from_checkpoint not in (True, "auto"):
            check_intact(str(resume_from_checkpoint))
            return str(resume_from_checkpoint)
        found = rotation.find_last_checkpoint(self.args.output_dir)
        if found is None and resume_from_checkpoint is True:
            raise ValueError(
                f"resume_from_checkpoint=True, and there is no checkpoint in {self.args.output_dir!r}. Check "
                "output_dir, or use resume_from_checkpoint='auto' to start where there is none."
            )
        return found

    def _take_up(
        self,
        model: nn.Module,
        plan: TrainingPlan,
        trial: Any,
        ignore_keys: list[str] | None,
        checkpoint: str | None,
    ) -> None:
        """Bring a resumed run to the very point it was left at, and finish what was cut short there."""
        if checkpoint is None:
            return
        self._load_rng_state(checkpoint)
        self._loader_state = None if self.args.ignore_data_skip else load_loader_state(checkpoint)
        loader = self.callback_handler.train_dataloader
        if self._loader_state is not None and hasattr(loader, "load_state_dict"):
            loader.load_state_dict(self._loader_state)
        if self._position.pending:
            for flag in self._position.pending:
                setattr(self.control, flag, True)
            self._position.pending = []
            self._report(model, trial, plan.first_epoch, ignore_keys, plan)
        self._resumed_rng = rng_files.capture_rng()

    def _resume_optimizer(self, checkpoint: str, plan: TrainingPlan) -> None:
        """Optimizer and schedule as they were, with the settings that were changed since."""
        options = refresh.read_options(self.optimizer)
        self._load_optimizer_and_scheduler(checkpoint)
        if self._strategy.scaler is not None:
            optimizer_files.load_scaler(self._strategy.scaler, checkpoint)
        if self._changes.applied:
            refresh.apply_options(self.optimizer, self.lr_scheduler, options)
        if self._extension is not None:
            build = partial(schedules.build_schedule, self.args, self.optimizer)
            extend_schedule(
                self.lr_scheduler,
                self._extension.policy,
                old_steps=self._planned_before,
                new_steps=plan.max_steps,
                build=build if self._created_lr_scheduler else None,
            )
