"""What comes before the first update: model, plan and optimizer, new or from a checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from footplate.arguments.notices import warn_once
from footplate.batch import find_length
from footplate.checkpoint import resume
from footplate.data.feed import describe_fill, search_data
from footplate.data.loader import micro_batch_size, num_drawn
from footplate.optim import refresh, schedules
from footplate.optim.extend import extend_schedule
from footplate.state import TRAINER_STATE_NAME, TrainerState
from footplate.trainer.optimizing import Optimizing
from footplate.trainer.trials import adopt_model, note_trial
from footplate.training import checks, patches, traits
from footplate.training.batches import TokenCounter
from footplate.training.buffers import BufferKeeper
from footplate.training.modes import enter_training
from footplate.training.plan import Position, TrainingPlan, plan_training
from footplate.training.seed import seed_run
from footplate.training.stopwatch import Stopwatch


class Preparing(Optimizing):
    """A run as it stands before its first update."""

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """A new model from `model_init`, which may take the trial."""
        assert self.model_init is not None
        model = self.model_init(trial) if traits.takes_positional(self.model_init, 1) else self.model_init()
        if model is None:
            raise RuntimeError("`model_init` returned None. Let it return the model.")
        return model

    def _set_model(self, model: nn.Module) -> None:
        """Take over a model: check it, put it on the device."""
        checks.check_is_module(model)
        # a model that will be sharded is moved layer by layer then: the whole may not fit
        self.place_model_on_device = (
            self.args.place_model_on_device is not False and self.args.sharding is None
        )
        if self.place_model_on_device:
            self._move_model_to_device(model, self._device)
        self.model = self.model_wrapped = model
        config: Any = getattr(model, "config", None)
        if config is not None and not isinstance(config, dict):
            config.use_cache = self.args.use_cache

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        """Move weights and buffers; a model that manages its own placement stays where it is."""
        marks = (getattr(model, "hf_device_map", None), getattr(model, "quantization_method", None))
        if marks == (None, None):
            model.to(device)

    def _prepare_model_for_run(self, trial: Any, checkpoint: str | None) -> None:
        """The model as this run starts with it."""
        if self.model_init is not None:
            seed_run(self.args.seed, self.args.full_determinism)
            self._set_model(self.call_model_init(trial))
            self.optimizer = self.lr_scheduler = None
            if self._current_search is not None:
                adopt_model(self, self._current_search)
        checks.check_is_trainable(self.model)
        patches.apply_fused_kernels(self.model, self.args)
        patches.enable_recompute(self.model, self.args)
        patches.align_special_tokens(self.model, self.processing_class)
        if checkpoint is not None and not self._strategy.shards:
            self._load_from_checkpoint(checkpoint)

    def _plan_run(self, loader: Any, saved: TrainerState | None) -> TrainingPlan:
        """Count the updates to make, from the start or from where `saved` stopped."""
        position = None
        if saved is not None:
            position = Position.from_stored((saved.stateful_callbacks or {}).get("Position"))
        if position is not None:
            position = position.for_resume(skips_data=not self.args.ignore_data_skip)
        extension = self._current_run.resume.extension
        num_batches = find_length(loader)
        return plan_training(
            self.args if extension is None else extension.apply_to(self.args),
            num_batches,
            self.num_examples(loader) if num_batches else None,
            micro_batch_size(self.args, self._train_batch_size),
            first_step=saved.global_step if saved is not None else 0,
            position=position,
            num_drawn=num_drawn(loader),
            num_ranks=self.args.world_size,
        )

    def _begin_run(self, plan: TrainingPlan, loader: Any, saved: TrainerState | None) -> None:
        """Set run and state to where the plan starts."""
        run = self._current_run
        run.begin(plan, loader, self._device)
        run.eval_loaders = self._eval_dataloaders
        evaluated = {"eval_dataset": self.eval_dataset, "eval_data_collator": self.eval_data_collator}
        search_data(run.generators, loader, **evaluated)
        notice = describe_fill(loader)
        if notice is not None and self.args.should_log:
            warn_once(notice)
        run.max_steps_before = saved.max_steps if saved is not None else plan.max_steps
        self.state = saved or run.new_state(self.control, self.callback_handler.callbacks)
        note_trial(self.state, self._trial, self._current_search)
        self.state.compute_steps(self.args, plan.max_steps)
        self.state.max_steps, self.state.num_train_epochs = plan.max_steps, plan.num_epochs
        run.micro_batches.max_rows = self.state.train_batch_size if self.args.auto_find_batch_size else None
        self.state.train_batch_size = run.micro_batches.max_rows or self._train_batch_size
        self.state.is_local_process_zero = self.is_local_process_zero()
        self.state.is_world_process_zero = self.is_world_process_zero()
        run.num_tokens_before = self.state.num_input_tokens_seen
        if saved is None:
            return
        if run.resume.checkpoint is not None:
            resume.relocate_best(self.state, run.resume.checkpoint, str(self.args.output_dir))
        self._load_callback_state()
        run.announce()  # the name of the run came back with the callbacks' states
        resume.apply_to_state(run.resume.changes, self.state)

    def _prepare_for_training(self, loader: Any, checkpoint: str | None) -> nn.Module:
        """Optimizer, schedule and wrapped model of this run, in their saved state where it resumes."""
        run = self._current_run
        if self._created_lr_scheduler:
            self.lr_scheduler, self._created_lr_scheduler = None, False  # its end depends on the run
        self.model_wrapped = model = self._wrap_model(self.model)
        if checkpoint is not None and self._strategy.shards:  # each rank reads its part alone
            self._load_from_checkpoint(checkpoint)
        self.create_optimizer_and_scheduler(num_training_steps=run.plan.max_steps)
        self.optimizer = self._strategy.prepare_optimizer(self.optimizer)
        if checkpoint is not None:
            self._resume_optimizer(checkpoint)
        has_own_loss = not (traits.is_ours(self.compute_loss) and traits.is_ours(self.training_step))
        checks.check_optimizer_parameters(self.optimizer, self.model, has_own_loss)
        run.parameters = list(model.parameters())
        run.buffers = BufferKeeper(self.model)
        run.tokens = TokenCounter(self.args.include_num_input_tokens_seen, self.model, self.processing_class)
        run.zero_grad()
        enter_training(model, self.optimizer)
        run.stopwatch = Stopwatch()
        handler = self.callback_handler
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler
        handler.train_dataloader = loader
        watch_modules(self)
        return model

    def _resume_optimizer(self, checkpoint: str) -> None:
        """Load optimizer and schedule, then re-apply the settings that were changed since."""
        run = self._current_run
        options = refresh.read_options(self.optimizer)
        self._load_optimizer_and_scheduler(checkpoint)
        self._load_scaler(checkpoint)
        if run.resume.changes.applied:
            refresh.apply_options(self.optimizer, self.lr_scheduler, options)
        if run.resume.extension is not None:
            build = partial(schedules.build_schedule, self.args, self.optimizer)
            extend_schedule(
                self.lr_scheduler,
                run.resume.extension.policy,
                old_steps=run.max_steps_before,
                new_steps=run.plan.max_steps,
                build=build if self._created_lr_scheduler else None,
            )


def watch_modules(trainer: Preparing) -> None:
    """Measure gradients, weights and updates of each module, if the settings ask for it."""
    args, strategy = trainer.args, trainer._strategy
    is_first = args.process_index == 0
    if not args.module_stats_steps or not (is_first or strategy.shards):  # else all processes have the same
        return
    from footplate.instruments.modules import ModuleWatch

    trainer._current_run.watch_modules(
        ModuleWatch(
            trainer.model,
            args.module_stats_steps,
            note=trainer.callback_handler.extras["note"] if is_first else None,
            scaler=strategy.scaler,
            join=strategy.join_norms if strategy.shards else None,
        )
    )


def find_saved_state(checkpoint: str | None) -> TrainerState | None:
    """The state that a checkpoint holds; None without a checkpoint, or where it holds only weights."""
    file = Path(checkpoint, TRAINER_STATE_NAME) if checkpoint is not None else None
    return TrainerState.load_from_json(file) if file is not None and file.is_file() else None
