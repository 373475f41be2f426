"""`Trainer`: a run, an update, a step, an evaluation, each on its own screen."""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from footplate import comm
from footplate.arguments import TrainingArguments
from footplate.callbacks import (
    CallbackHandler,
    DefaultFlowCallback,
    SampleCallback,
    default_progress_callback,
)
from footplate.checkpoint import resume
from footplate.checkpoint import rng as rng_files
from footplate.checkpoint.publish import check_intact, find_state
from footplate.checkpoint.snapshot import HostCopy
from footplate.checkpoint.writer import BackgroundWriter
from footplate.data import columns, loaders, samplers
from footplate.data.choice import limit_rows
from footplate.data.collators import DataCollatorWithPadding, default_data_collator
from footplate.distributed.accelerator import build_accelerator
from footplate.distributed.strategy import build_strategy
from footplate.evaluating import Evaluating
from footplate.evaluation import metrics as metric_tools
from footplate.evaluation.memory import TrainerMemoryTracker
from footplate.evaluation.memory_limit import parse_memory_limit
from footplate.evaluation.streaming import is_streaming
from footplate.integrations.journal_callback import JournalCallback
from footplate.integrations.registry import build_trackers
from footplate.optim import groups, schedules
from footplate.optim.names import find_optimizer
from footplate.outputs import TrainOutput
from footplate.report.callback import ReportCallback
from footplate.saving import Saving
from footplate.state import TRAINER_STATE_NAME, RunIdentity, TrainerControl, TrainerState, export_states
from footplate.training import batches, checks, patches, traits
from footplate.training import loss as losses
from footplate.training.clock import Clock
from footplate.training.meter import Meter, Records
from footplate.training.plan import Extension, Position, TrainingPlan, plan_training
from footplate.training.retry import MicroBatches
from footplate.training.seed import seed_run
from footplate.training.signals import StopRequested, StopSignals
from footplate.training.stopwatch import Stopwatch
from footplate.training.watch import StepData, TrainWindow, UpdateStart, accepts_update
from footplate.wrappers import forward_parameters

logger = logging.getLogger(__name__)

_NOTHING: AbstractContextManager[None] = nullcontext()
_OBEY_NAMES = (
    *("tr_loss", "grad_norm", "model", "trial", "epoch"),
    *("ignore_keys_for_eval", "start_time", "learning_rate"),
)


class Trainer(Evaluating, Saving):
    """Trains, evaluates and predicts with any `torch.nn.Module`.

    Args:
        model: The model to train. Give this or `model_init`.
        args: How to train; without it, the defaults with `output_dir="tmp_trainer"`.
        data_collator: Makes a batch of a list of samples. Default: pads if `processing_class` is a tokenizer,
            else stacks.
        train_dataset: Map-style or iterable; samples are dicts, tuples or tensors.
        eval_dataset: One dataset, or several by name.
        processing_class: Tokenizer, processor or the like; saved with the model.
        model_init: Makes the model anew at each `train()`.
        compute_loss_func: `(outputs, labels, num_items_in_batch)` to loss, instead of the model's own.
        compute_metrics: `EvalPrediction` to a dict of numbers; or a metric object with `update(predictions,
            labels)` and `compute()`, or a dict of such.
        callbacks: Classes or instances of `TrainerCallback`.
        optimizers: An optimizer and a schedule of your own; either may be None.
        optimizer_cls_and_kwargs: An optimizer class and its arguments, instead of `args.optim`.
        preprocess_logits_for_metrics: `(logits, labels)` to what is kept for `compute_metrics`.
        tokenizer: The 4.x name of `processing_class`.
        eval_data_collator: Makes the batches of evaluation and prediction; `data_collator` unless given.

    `model` is always the model itself, `model_wrapped` the outermost wrapper, which the loop calls.
    """

    loss_is_scaled_for_ga: bool | None = (
        None  # for an own compute_loss: is its loss already over the whole update?
    )

    # ---- construct ----

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Callable[[list[Any]], Any] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        model_init: Callable[..., nn.Module] | None = None,
        compute_loss_func: Callable[..., torch.Tensor] | None = None,
        compute_metrics: Any = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None = None,
        preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None = None,
        *,
        tokenizer: Any = None,
        eval_data_collator: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self.args = args if args is not None else TrainingArguments(output_dir="tmp_trainer")
        checks.check_is_arguments(self.args, TrainingArguments)
        seed_run(self.args.seed, self.args.full_determinism)  # before model_init draws weights
        self._device = self.args.device
        self._memory_tracker = TrainerMemoryTracker(self.args.skip_memory_metrics)
        self._memory_tracker.start()

        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.processing_class = processing_class if processing_class is not None else tokenizer
        self.model_init, self.compute_loss_func = model_init, compute_loss_func
        self.compute_metrics = compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.optimizer, self.lr_scheduler = optimizers
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        self.neftune_noise_alpha = self.args.neftune_noise_alpha
        self._has_own_collator = data_collator is not None
        self.data_collator = data_collator if data_collator is not None else self._default_collator()
        self.eval_data_collator = eval_data_collator
        self._check_inputs(model)

        self._accelerator: Any = None
        if type(self).create_accelerator_and_postprocess is not Trainer.create_accelerator_and_postprocess:
            self.create_accelerator_and_postprocess()
        self._strategy = build_strategy(self.args, lambda: self.accelerator)
        self._set_model(model if model is not None else self.call_model_init())
        self._read_traits()

        self.control = TrainerControl()
        self.callback_handler = self._build_callback_handler(callbacks or [])
        self._set_identity(RunIdentity())
        self._reset_run()
        self.state = self._new_state()
        if self.args.should_save:
            os.makedirs(self.args.output_dir, exist_ok=True)
        self._event("on_init_end")
        self._memory_tracker.stop_and_update_metrics()

    def _check_inputs(self, model: nn.Module | None) -> None:
        """Refuse what cannot work, before anything is built."""
        checks.check_model_source(model, self.model_init)
        checks.check_optimizer_sources(
            (self.optimizer, self.lr_scheduler), self.optimizer_cls_and_kwargs, self.model_init
        )
        checks.check_collator(self.data_collator)
        checks.check_collator(self.eval_data_collator or self.data_collator)
        checks.check_eval_dataset(self.args, self.eval_dataset)
        checks.check_train_length(self.args, self.train_dataset, loaders.has_length(self.train_dataset))
        parse_memory_limit(self.args.eval_memory_limit)
        has_objects = is_streaming(self.compute_metrics)
        checks.check_batch_metrics(self.args, self.compute_metrics, has_objects)
        checks.check_train_metrics(self.args, self.compute_metrics, has_objects)
        checks.check_not_yet_supported(self.args)

    def _default_collator(self) -> Callable[[list[Any]], Any]:
        """Padding where the processing class can pad, else stacking."""
        if hasattr(self.processing_class, "pad") and hasattr(self.processing_class, "model_input_names"):
            return DataCollatorWithPadding(self.processing_class)
        return default_data_collator

    @property
    def accelerator(self) -> Any:
        """The `Accelerator`, made when it is first asked for: plain training does without."""
        if self._accelerator is None:
            self.create_accelerator_and_postprocess()
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def create_accelerator_and_postprocess(self) -> None:
        """Set `self.accelerator`."""
        self.accelerator = build_accelerator(self.args)

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
        self.place_model_on_device = self.args.place_model_on_device is not False
        if self.place_model_on_device:
            self._move_model_to_device(model, self._device)
        self.model = self.model_wrapped = model
        config: Any = getattr(model, "config", None)
        if config is not None and not isinstance(config, dict):
            config.use_cache = self.args.use_cache

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        """Move weights and buffers; a model that manages its own placement stays where it is."""
        if (
            getattr(model, "hf_device_map", None) is None
            and getattr(model, "quantization_method", None) is None
        ):
            model.to(device)

    def _read_traits(self) -> None:
        """Learn from signatures what the model takes and gives; subclasses may overwrite any of these."""
        self.model_accepts_loss_kwargs = traits.accepts_loss_kwargs(self.model)
        found = traits.find_label_names(self.model) or (
            ["labels"] if self.compute_loss_func is not None else []
        )
        self.label_names: list[str] = found if self.args.label_names is None else self.args.label_names
        self.can_return_loss = traits.can_return_loss(self.model)
        self._loss_shifts_labels = traits.loss_shifts_labels(self.model)
        self._items_are_shifted = traits.items_are_shifted(self.model, self.compute_loss_func is not None)
        self._signature_columns: list[str] | None = None
        self.label_smoother = losses.find_smoother(self.args.label_smoothing_factor, self.model)
        # kept for collator, loss, metrics and callbacks, but not for a forward that does not name them
        held_back = {*(self.args.keep_columns or ()), "num_items"}
        self._held_back = held_back.difference(forward_parameters(self.model))

    def _build_callback_handler(self, callbacks: list[Any]) -> CallbackHandler:
        """The flow first, then who writes down, the user's callbacks, and last who shows."""
        args = self.args
        handler = CallbackHandler(
            [
                DefaultFlowCallback,
                *([JournalCallback] if args.report else []),
                *build_trackers(args.report_to),
                *callbacks,
            ],
            self.model,
            self.processing_class,
            self.optimizer,
            self.lr_scheduler,
        )
        handler.weak_extras["trainer"] = weakref.ref(self)
        handler.add_callback(default_progress_callback(bool(args.disable_tqdm)))
        if args.show_samples:
            handler.add_callback(SampleCallback(every=None, count=args.show_samples))
        if args.report:
            handler.add_callback(ReportCallback)
        return handler

    def _set_identity(self, identity: RunIdentity) -> None:
        """Begin a run of this name, as far as callbacks can tell."""
        self._identity = identity
        self.callback_handler.extras.update(run_id=identity.run_id, metric_prefixes=("eval", "test"))

    def _new_state(self) -> TrainerState:
        return TrainerState(
            is_local_process_zero=self.is_local_process_zero(),
            is_world_process_zero=self.is_world_process_zero(),
            stateful_callbacks=export_states(self._stateful()),
        )

    def _reset_run(self) -> None:
        """Start values of what a run counts."""
        self.is_in_train = self._has_run = False
        self.hp_name = self.hp_search_backend = None
        self.hub_model_id = None
        self.model_preparation_time: float | None = None
        self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
        self._num_flos_parameters = traits.count_flos_parameters(self.model)
        self._initial_num_input_tokens_seen = 0
        self._grad_norm: torch.Tensor | None = None
        self._learning_rate: float | None = None
        self._position = Position()
        self._loader_state: dict[str, Any] | None = None
        self._was_given_up = False
        self._signals = StopSignals()
        self._clock = Clock()
        self._changes = resume.Differences()
        self._extension: Extension | None = None
        self._writer = BackgroundWriter()
        self._host_copy = HostCopy()
        self._wanted_step: int | None = None  # of the last checkpoint that was asked for, and that was sealed
        self._saved_step: int | None = None
        self._sealed_folder: str | None = None
        self._untold_seals: deque[tuple[int, str]] = deque()  # step and folder, for `on_seal`
        self._stopwatch = Stopwatch()
        self._train_batch_size = self.args.train_batch_size
        self._created_lr_scheduler = False
        self._parameters: list[nn.Parameter] = []
        self._group_rates: dict[str, float] = {}
        self._meter = Meter(self._device)
        self._micro_batches = MicroBatches(self.args.auto_find_batch_size)
        self._record_factor: Any = 1.0
        self._eval_records: Records | None = None  # where record() goes during an evaluation
        self._eval_batch_weight = 1.0
        self._step_data = StepData(self.callback_handler.extras)
        self._train_window = TrainWindow(self.args.train_metrics)
        self._eval_dataloaders: dict[int, Any] = {}  # by identity of the dataset
        self._is_for_loop = False  # the evaluation under way is one of the schedule
        self._current_eval_dataset: Any = None
        self._current_eval_name: str | None = None
        self._is_in_round = False  # between the first and the last of several evaluation sets
        self._eval_weight = 0.0  # rows or items of the last evaluation, to join the losses of several sets

    # ---- data ----

    def get_train_dataloader(self) -> Any:
        """The loader of the training data. An override may return any iterable of batches."""
        if self.train_dataset is None:
            raise ValueError("train() needs data. Pass `train_dataset` to Trainer.")
        return self._get_dataloader(
            self.train_dataset, "training", self._train_batch_size, self._get_train_sampler, is_training=True
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader of an evaluation set: a dataset, the name of one of several, None for the only one."""
        if eval_dataset is None and self.eval_dataset is None:
            raise ValueError("evaluate() needs data. Pass `eval_dataset` to it or to Trainer.")
        is_named = isinstance(eval_dataset, str)
        dataset = self.eval_dataset[eval_dataset] if is_named else eval_dataset
        dataset = dataset if dataset is not None else self.eval_dataset
        # new workers for every evaluation would pile up
        keeps = self.args.dataloader_persistent_workers and (is_named or dataset is self.eval_dataset)
        if keeps and id(dataset) in self._eval_dataloaders:
            return self._eval_dataloaders[id(dataset)]
        limited, chosen = limit_rows(dataset, self.args.max_eval_samples, self.args.seed)
        batch_size = self.args.eval_batch_size
        loader = self._get_dataloader(limited, "evaluation", batch_size, self._get_eval_sampler)
        loader.chosen_rows = chosen
        if keeps:
            self._eval_dataloaders[id(dataset)] = loader
        return loader

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The loader of a test set."""
        return self._get_dataloader(test_dataset, "test", self.args.eval_batch_size, self._get_eval_sampler)

    def _get_dataloader(
        self,
        dataset: Any,
        description: str,
        batch_size: int,
        sampler_fn: Callable[..., Any],
        is_training: bool = False,
    ) -> Any:
        """A loader without the columns nobody asked for."""
        collate = self.data_collator if is_training else self.eval_data_collator or self.data_collator
        if columns.can_drop_columns(dataset):
            dataset = self._remove_unused_columns(dataset, description)
        else:
            collate = self._get_collator_with_removed_columns(collate, description)
        is_map_style = not isinstance(dataset, torch.utils.data.IterableDataset)
        sampler = traits.call_positional(sampler_fn, dataset) if is_map_style else None
        return loaders.build_loader(
            dataset,
            self.args,
            batch_size=batch_size,
            collate=collate,
            sampler=sampler,
            is_training=is_training,
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """The order of training samples, or None for data without length."""
        dataset = train_dataset if train_dataset is not None else self.train_dataset
        if dataset is None or not loaders.has_length(dataset):
            return None
        return samplers.build_order(
            self.args.train_sampling_strategy,
            dataset,
            self.args,
            batch_size=self._train_batch_size,
            model_input_name=next(iter(getattr(self.processing_class, "model_input_names", ())), None),
            weights=samplers.read_weights(self.args.sample_weights, self.train_dataset),
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """The order of evaluation samples: as they stand."""
        if eval_dataset is None or not loaders.has_length(eval_dataset):
            return None
        return samplers.build_order(
            "sequential", eval_dataset, self.args, batch_size=self.args.eval_batch_size
        )

    def _set_signature_columns_if_needed(self) -> None:
        """Set `self._signature_columns`: the names that are not dropped. Override to keep others."""
        if self._signature_columns is None:
            self._signature_columns = columns.signature_columns(self.model, self.label_names)

    def _kept_columns(self) -> list[str]:
        self._set_signature_columns_if_needed()
        return [*(self._signature_columns or ()), *(self.args.keep_columns or ())]

    def _column_notice(self, description: str | None) -> dict[str, Any]:
        """How a dropped column is reported: louder where a part of the user's own may have wanted it."""
        is_own = self._has_own_collator or self.compute_loss_func is not None
        return {"description": description, "model_name": type(self.model).__name__, "custom": is_own}

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        """A dataset of columns without those that nothing names."""
        if not self.args.remove_unused_columns:
            return dataset
        return columns.drop_unused_columns(dataset, self._kept_columns(), **self._column_notice(description))

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[[list[Any]], Any], description: str | None = None
    ) -> Callable[[list[Any]], Any]:
        """A collator that first drops from each sample what nothing names."""
        if not self.args.remove_unused_columns:
            return data_collator
        return columns.ColumnFilter(data_collator, self._kept_columns(), **self._column_notice(description))

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device | None = None
    ) -> tuple[list[Any], Any]:
        """The next micro-batches of one update, fewer at the end, and how many items they hold together."""
        micro_batches = list(islice(epoch_iterator, num_batches))
        return micro_batches, self._get_num_items_in_batch(micro_batches, device or self._device)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """Items the loss of these batches is divided by, or None where each batch averages by itself."""
        if self._weighs_items:
            return sum(self._count_items(batch) for batch in batch_samples)
        if self.model_accepts_loss_kwargs or self.compute_loss_func is not None:
            return losses.count_labels(batch_samples, self._loss_shifts_labels, device)
        return None

    def _count_items(self, batch: Any) -> int:
        return losses.count_items(batch, self.label_names, self._items_are_shifted)

    def _prepare_input(self, data: Any) -> Any:
        """A batch, or a part of one, on the device."""
        return comm.move_to_device(data, self._device)

    def _prepare_inputs(self, inputs: Any) -> Any:
        """A batch as the model takes it. An override must return a batch that may be changed."""
        inputs = self._prepare_input(inputs)
        if isinstance(inputs, Mapping) and not inputs:
            raise ValueError(
                "A batch came out empty: no column of the data is among what "
                f"{type(self.model).__name__}.forward takes ({self._signature_columns}). Rename the "
                "columns, or set remove_unused_columns=False."
            )
        return inputs

    # ---- optimizer ----

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Set `self.optimizer` and `self.lr_scheduler`."""
        self.create_optimizer()
        self.create_scheduler(num_training_steps=num_training_steps, optimizer=self.optimizer)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Set and return `self.optimizer`. Override to bring an optimizer of your own."""
        if self.optimizer is None:
            model = model if model is not None else self.model
            optimizer_class, options = self.optimizer_cls_and_kwargs or traits.call_positional(
                self.get_optimizer_cls_and_kwargs, self.args, model
            )
            self.optimizer = groups.build_optimizer(
                optimizer_class, options, model, self.args, self.get_decay_parameter_names(model)
            )
        optimizer: torch.optim.Optimizer = self.optimizer
        return optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any:
        """Set and return `self.lr_scheduler`. Override to bring a schedule of your own."""
        if self.lr_scheduler is None:
            self.lr_scheduler = schedules.build_schedule(
                self.args, optimizer or self.optimizer, num_training_steps
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    @staticmethod
    def get_optimizer_cls_and_kwargs(
        args: TrainingArguments, model: nn.Module | None = None
    ) -> tuple[Any, Any]:
        """The optimizer class that `args.optim` names, and its arguments."""
        return find_optimizer(args, model)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Names of the parameters that weight decay applies to: neither biases nor norms."""
        return groups.decay_parameter_names(model)

    def _get_learning_rate(self) -> float:
        """The rate of the first parameter group."""
        return float(self.optimizer.param_groups[0]["lr"])

    # ---- train ----

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        *,
        extend_to: float | None = None,
        extend_policy: str = "stretch",
        **kwargs: Any,
    ) -> TrainOutput:
        """Train, from the start or from a checkpoint.

        Args:
            resume_from_checkpoint: A checkpoint's folder; True for the newest intact one in
                `args.output_dir`; "auto" for that if there is one, else the start.
            trial: The trial of a hyperparameter search.
            ignore_keys_for_eval: Keys of the model's outputs to leave out of evaluation.
            extend_to: Go on from the last checkpoint past the planned end: to so many updates where
                `max_steps` is set, else epochs.
            extend_policy: What the schedule does then: "stretch", "hold" or "restart".
        """
        wanted = kwargs.pop("model_path", None) or resume_from_checkpoint
        checkpoint = self._find_checkpoint(wanted or extend_to is not None)
        if kwargs:
            raise TypeError(f"train() takes no {', '.join(map(repr, kwargs))}.")
        self._memory_tracker.start()
        self._extension = None if extend_to is None else Extension(extend_to, extend_policy)
        self._changes = resume.Differences()
        if checkpoint is not None:
            self._changes = resume.review_resume(checkpoint, self.args.to_dict())
        self.is_in_train = True
        try:
            self._prepare_model_for_run(trial, checkpoint)
            with (
                StopSignals() as self._signals,
                patches.embedding_noise(self.model, self.neftune_noise_alpha),
            ):
                result: TrainOutput = traits.call_with_declared(
                    self._inner_training_loop,
                    batch_size=self._train_batch_size,
                    args=self.args,
                    resume_from_checkpoint=checkpoint,
                    trial=trial,
                    ignore_keys_for_eval=ignore_keys_for_eval,
                )
        finally:
            self.is_in_train = False
            self._step_data.release()
            self._writer.join()
        if self._signals.received:
            self._signals.leave()
        return result

    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: TrainingArguments | None = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """A whole run: prepare, epochs, results."""
        loader = self.get_train_dataloader()
        plan = self._plan_run(loader, resume_from_checkpoint)
        model = self._prepare_for_training(plan, loader, resume_from_checkpoint)
        self._check_evaluation(ignore_keys_for_eval)
        logger.info("Training %s: %s", type(self.model).__name__, plan)

        self._event("on_train_begin")
        try:
            if self.args.eval_on_start and plan.first_step == 0:
                self._evaluate(trial, ignore_keys_for_eval, skip_scheduler=True)
            self._take_up(model, plan, trial, ignore_keys_for_eval, resume_from_checkpoint)
            if plan.first_step < plan.max_steps:
                for epoch in range(plan.first_epoch, plan.num_epochs):
                    self._event("on_epoch_begin")
                    self._run_epoch(model, loader, epoch, plan, trial, ignore_keys_for_eval)
                    if self.control.should_training_stop:
                        break
        except StopRequested:
            self._save_checkpoint(model, trial)
        return self._finish_training(plan, trial)

    def _run_epoch(
        self,
        model: nn.Module,
        loader: Any,
        epoch: int,
        plan: TrainingPlan,
        trial: Any,
        ignore_keys: list[str] | None,
    ) -> None:
        """One pass over the loader. Each turn is one update: accumulate, clip, step, report."""
        batches_done = plan.first_batch if epoch == plan.first_epoch else 0
        epoch_iterator = self._start_epoch(loader, epoch, plan)
        for size in plan.update_sizes(batches_done):
            if size > 1:  # an update that may be given up half-way: its batches are then still to come
                self._loader_state = find_state(loader)
            micro_batches, num_items = traits.call_positional(
                self.get_batch_samples, epoch_iterator, size, self._device
            )
            self._stopwatch.lap("data")
            if not micro_batches:  # the stream ended sooner than its length promised
                self._check_not_dry(batches_done)
                break
            if self.state.global_step == plan.first_step:
                self._describe_weighting(micro_batches[0], plan)
            self._event("on_step_begin")
            self._stopwatch.lap("callbacks")
            if not self._accumulate(model, micro_batches, num_items):
                break  # a callback ended the run in the middle of an update
            self._grad_norm = self._clip_grad_norm(model)
            self._event("on_pre_optimizer_step")
            accepted = self._accepts_update(self._grad_norm)
            if accepted:
                self.optimizer.step()
            self._event("on_optimizer_step")
            self._learning_rate = self._note_rates()  # as this update used them, before the schedule moves on
            if accepted:
                self._advance_schedule()
            self._zero_grad()
            self._stopwatch.lap("optimizer")

            batches_done += len(micro_batches)
            self._position.advance(sum(comm.find_batch_size(batch) or 0 for batch in micro_batches))
            self.state.global_step += 1
            self.state.epoch = plan.epoch_at(epoch, batches_done)
            self._event("on_step_end")
            self._step_data.release()
            if self.state.global_step == plan.first_step + 1:
                self._prepare_first_save()
            self.control.should_save |= self._clock.should_save()
            self._report(model, trial, epoch, ignore_keys, plan)
            if self._signals.received or self._clock.should_stop():
                raise StopRequested
            if self.control.should_epoch_stop or self.control.should_training_stop:
                break

        self._position.is_epoch_over = True
        self._event("on_epoch_end")
        self._report(model, trial, epoch, ignore_keys, plan)

    def _report(
        self, model: nn.Module, trial: Any, epoch: int, ignore_keys: list[str] | None, plan: TrainingPlan
    ) -> None:
        """Let the last joint of an update do what the callbacks asked for."""
        self._stopwatch.lap("callbacks")
        self._writer.poll()  # a failed write is said at the next update
        self._tell_of_seals()
        traits.call_with_declared(
            self._maybe_log_save_evaluate,
            tr_loss=self._meter.loss,
            grad_norm=self._grad_norm,
            model=model,
            trial=trial,
            epoch=epoch,
            ignore_keys_for_eval=ignore_keys,
            start_time=plan.start_time,
            learning_rate=self._learning_rate,
        )

    def _accumulate(self, model: nn.Module, loaded: list[Any], num_items: Any) -> bool:
        """Add up the gradients of one update; False where a callback asked to stop half-way."""
        may_undo = self._micro_batches.enabled or self.args.on_nonfinite != "warn" or len(loaded) > 1
        before = UpdateStart(self._train_window.contents(), rng_files.capture_rng()) if may_undo else None
        self._meter.begin_update(may_undo)
        while True:
            micro_batches = self._micro_batches.cut(loaded)
            try:
                return self._accumulate_once(model, micro_batches, num_items)
            except StopRequested:
                self._undo_update(before)
                self._was_given_up = True
                raise
            except (RuntimeError, MemoryError) as error:
                if not self._micro_batches.shrink(error, micro_batches):
                    raise
                self._undo_update(before)
                self.state.train_batch_size = self._micro_batches.max_rows

    def _undo_update(self, before: UpdateStart | None) -> None:
        """Be where the update began: no gradients, the same random numbers to come, the same sums."""
        assert before is not None
        self._zero_grad()
        rng_files.restore_rng(before.rng)
        self._meter.undo_update()
        self._train_window.replace(before.window)

    def _accumulate_once(self, model: nn.Module, micro_batches: list[Any], num_items: Any) -> bool:
        self.current_gradient_accumulation_steps = len(micro_batches)
        step: Any = self.training_step
        extra: tuple[Any, ...] = (num_items,)
        if not traits.takes_positional(step, 3):  # from before 4.46, when the accelerator divided the loss
            extra = ()
            self.accelerator.gradient_accumulation_steps = len(micro_batches)
        for inputs, is_last in batches.mark_last(micro_batches):
            with self._strategy.accumulate(model, sync=is_last):
                result: Any = step(model, inputs, *extra)
            self._stopwatch.lap("backward")
            self._meter.add(result[0] if isinstance(result, tuple) else result)
            self._count_work(inputs)
            if not is_last:
                self._event("on_substep_end")
                if self._signals.received:
                    raise StopRequested
                if self.control.should_epoch_stop or self.control.should_training_stop:
                    return False
        return True

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward of one micro-batch. An override returns the loss, detached."""
        if not model.training:  # an evaluation came between
            self._enter_train_mode(model)
        items_share = None
        if self._weighs_items:
            items_share = self._count_items(inputs) / max(num_items_in_batch, 1)
            if items_share == 0.0:  # the mean over no items is not a number, and adds nothing
                return torch.zeros((), device=self._device)
        inputs = self._prepare_inputs(inputs)
        self._record_factor = self._share_of_update(items_share, num_items_in_batch)
        wants_outputs = self.args.train_metrics > 0 or self.callback_handler.wants_step_data
        seen = dict(inputs) if wants_outputs and isinstance(inputs, Mapping) else inputs
        with self.compute_loss_context_manager():
            loss, outputs = self._call_compute_loss(
                model, inputs, wants_outputs, None if self._weighs_items else num_items_in_batch
            )
        if wants_outputs:
            self._observe(seen, outputs, loss)
        if items_share is not None:
            loss = loss * items_share
        elif self._record_factor != 1.0:
            loss = loss / self.current_gradient_accumulation_steps
        self._stopwatch.lap("forward")
        self._strategy.backward(loss, **self._backward_options())
        return loss.detach()

    def _call_compute_loss(
        self, model: nn.Module, inputs: Any, wants_outputs: bool, num_items: Any
    ) -> tuple[torch.Tensor, Any]:
        """Loss and outputs from `compute_loss`, whichever parameters it takes and whatever it returns."""
        options: dict[str, Any] = {}
        if wants_outputs and traits.declares(self.compute_loss, "return_outputs"):
            options["return_outputs"] = True
        if num_items is not None and traits.declares(self.compute_loss, "num_items_in_batch"):
            options["num_items_in_batch"] = num_items
        result = self.compute_loss(model, inputs, **options)
        return result if isinstance(result, tuple) else (result, None)

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of a micro-batch, and the model's outputs if asked for. Override for your own loss."""
        labels = None
        smooths = self.label_smoother is not None and "labels" in inputs
        if smooths or self.compute_loss_func is not None:
            inputs, labels = batches.take_labels(inputs, self.label_names)
        forward_inputs = batches.without(inputs, self._held_back)
        if self.model_accepts_loss_kwargs and num_items_in_batch is not None:
            forward_inputs = {**forward_inputs, "num_items_in_batch": num_items_in_batch}
        outputs = batches.call_forward(model, forward_inputs)
        loss: torch.Tensor | None
        if self.compute_loss_func is not None:
            options = {"num_items_in_batch": num_items_in_batch} if self._own_loss_counts() else {}
            loss = self.compute_loss_func(outputs, labels, **options)
        elif labels is not None and self.label_smoother is not None:
            shifts = traits.is_causal_lm(self.model)
            loss = self.label_smoother(
                outputs, labels, shift_labels=shifts, num_items_in_batch=num_items_in_batch
            )
        else:
            loss = losses.read_loss(outputs)
        if loss is None:
            self._raise_missing_loss(inputs, outputs)
        return (loss, outputs) if return_outputs else loss

    def compute_loss_context_manager(self) -> AbstractContextManager[Any]:
        """The context `compute_loss` runs in."""
        return self.autocast_smart_context_manager()

    def autocast_smart_context_manager(
        self, cache_enabled: bool | None = True
    ) -> AbstractContextManager[Any]:
        """No further autocast: where mixed precision is on, the model's forward has it inside."""
        return _NOTHING

    def _maybe_log_save_evaluate(
        self,
        tr_loss: torch.Tensor,
        grad_norm: Any = None,
        model: Any = None,
        trial: Any = None,
        epoch: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        start_time: float | None = None,
        learning_rate: float | None = None,
    ) -> None:
        """Do what the control asks for: log, evaluate, save."""
        if isinstance(grad_norm, nn.Module):  # super() called in the order of before 4.38, without a norm
            model, trial, epoch, ignore_keys_for_eval = grad_norm, model, trial, epoch
            grad_norm = self._grad_norm
        if self.control.should_log and self.state.global_step > self._globalstep_last_logged:
            if tr_loss is not self._meter.loss:
                self._meter.take_over(tr_loss)
            logs = self._meter.drain(self.state.global_step)  # host sync
            if grad_norm is not None:
                logs["grad_norm"] = float(grad_norm)
            logs["learning_rate"] = learning_rate if learning_rate is not None else self._get_learning_rate()
            logs.update(self._group_rates)
            train_metrics = metric_tools.plain_numbers(self._train_window.compute(self.compute_metrics))
            logs.update(metric_tools.prefix_keys(train_metrics, "train"))
            self.store_flos()
            traits.call_with_declared(self.log, logs=logs, start_time=start_time)

        metrics = None
        if self.control.should_evaluate:
            metrics = self._evaluate(trial, ignore_keys_for_eval)
            self._stopwatch.lap("evaluation")
            is_best = self._determine_best_metric(metrics, trial)
            if self.args.save_strategy == "best":
                self.control.should_save = is_best
            elif is_best and self.args.load_best_model_at_end:
                self.control.should_save = True  # saved when measured, whatever the schedule of saves

        if self.control.should_save:
            traits.call_with_declared(self._save_checkpoint, model=model, trial=trial, metrics=metrics)
            self._stopwatch.lap("saving")
            self._event("on_save")

    def record(self, name: str, value: torch.Tensor | float) -> None:
        """Log an extra scalar with the next log, averaged as the loss is; in an evaluation, with its metrics.

        Args:
            name: The key in the log.
            value: A number or a scalar tensor, which is not read before the log is.
        """
        if self._eval_records is not None:
            self._eval_records.add(name, value, self._eval_batch_weight, self._eval_batch_weight)
        else:
            self._meter.record(name, value, self._record_factor, self.state.global_step)

    def floating_point_ops(self, inputs: Any) -> float:
        """Operations of forward and backward on a batch, if the model can count its parameters; else 0."""
        name = getattr(self.model, "main_input_name", "input_ids")
        if self._num_flos_parameters == 0 or not isinstance(inputs, Mapping) or name not in inputs:
            return 0
        return float(6 * inputs[name].numel() * self._num_flos_parameters)

    # ---- train: what the loop above names ----

    def _prepare_model_for_run(self, trial: Any, checkpoint: str | None) -> None:
        """The model as this run starts with it."""
        self._hp_search_setup(trial)
        if self.model_init is not None:
            seed_run(self.args.seed, self.args.full_determinism)
            self._set_model(self.call_model_init(trial))
            self.optimizer = self.lr_scheduler = None
        checks.check_is_trainable(self.model)
        patches.apply_fused_kernels(self.model, self.args)
        patches.enable_recompute(self.model, self.args)
        patches.align_special_tokens(self.model, self.processing_class)
        if checkpoint is not None:
            self._load_from_checkpoint(checkpoint)

    def _plan_run(self, loader: Any, checkpoint: str | None) -> TrainingPlan:
        """Count the updates to make, and set the state to where they start."""
        file = Path(checkpoint, TRAINER_STATE_NAME) if checkpoint is not None else None
        saved = TrainerState.load_from_json(str(file)) if file is not None and file.is_file() else None
        num_batches = len(loader) if loaders.has_length(loader) else None
        stored = (saved.stateful_callbacks or {}).pop("Position", None) if saved is not None else None
        position = Position.from_stored(stored)
        if position is not None:
            position = Position(position.epoch) if self.args.ignore_data_skip else position.after_epoch()
        args = self.args if self._extension is None else self._extension.apply_to(self.args)
        plan = plan_training(
            args,
            num_batches,
            self.num_examples(loader) if num_batches else None,
            self._train_batch_size,
            first_step=saved.global_step if saved is not None else 0,
            position=position,
        )
        self._planned_before = saved.max_steps if saved is not None else plan.max_steps
        self._position = position or Position(
            plan.first_epoch, 0, plan.first_sample, is_begun=plan.first_sample > 0
        )
        if self._has_run:  # else an evaluation before it belongs to the same run
            self._set_identity(RunIdentity())
        self._has_run = True
        self.state = saved if saved is not None else self._new_state()
        self.state.compute_steps(self.args, plan.max_steps)
        self.state.max_steps, self.state.num_train_epochs = plan.max_steps, plan.num_epochs
        remembered = self.state.train_batch_size if self.args.auto_find_batch_size else None
        self._micro_batches = MicroBatches(self.args.auto_find_batch_size, remembered)
        self.state.train_batch_size = remembered or self._train_batch_size
        self.state.is_local_process_zero = self.is_local_process_zero()
        self.state.is_world_process_zero = self.is_world_process_zero()
        self._meter = Meter(self._device, plan.first_step)
        if saved is not None:
            self._load_callback_state()
            self._set_identity(self._identity)
            resume.apply_to_state(self._changes, self.state)
        return plan

    def _prepare_for_training(self, plan: TrainingPlan, loader: Any, checkpoint: str | None) -> nn.Module:
        """Optimizer, schedule, wrapped model and sums of this run, in their saved state where it resumes."""
        if self._created_lr_scheduler:
            self.lr_scheduler, self._created_lr_scheduler = None, False  # its end depends on the run
        self.model_wrapped = model = self._wrap_model(self.model)
        self.create_optimizer_and_scheduler(num_training_steps=plan.max_steps)
        self.optimizer = self._strategy.prepare_optimizer(self.optimizer)
        if checkpoint is not None:
            self._resume_optimizer(checkpoint, plan)
        self._parameters = list(model.parameters())
        self._num_flos_parameters = traits.count_flos_parameters(self.model)
        self._initial_num_input_tokens_seen = self.state.num_input_tokens_seen
        self._zero_grad()
        self._enter_train_mode(model)
        self._grad_norm = self._learning_rate = self._loader_state = None
        self._was_given_up = False
        self._wanted_step = self._saved_step = None
        self._untold_seals.clear()
        self._stopwatch = Stopwatch()
        self._clock = Clock(self.args.max_time_seconds, self.args.save_every_seconds)
        handler = self.callback_handler
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler
        handler.train_dataloader = loader
        return model

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        """The model as the loop calls it: in its precision, and compiled where that is asked for."""
        model = self._strategy.prepare_model(model)
        if self.args.torch_compile and training:
            return torch.compile(  # type: ignore[return-value]
                model,
                backend=self.args.torch_compile_backend or "inductor",
                mode=self.args.torch_compile_mode,
            )
        return model

    def _enter_train_mode(self, model: nn.Module) -> None:
        """Dropout and the like on; some optimizers keep other weights for training than for evaluation."""
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()

    def _start_epoch(self, loader: Any, epoch: int, plan: TrainingPlan) -> Iterator[Any]:
        """The batches of an epoch, from where a resumed run left it."""
        is_resumed = epoch == plan.first_epoch and self._position.is_begun
        self._position.begin(epoch)
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        if not is_resumed:
            return iter(loader)
        if self._loader_state is not None and hasattr(loader, "load_state_dict"):
            iterator: Iterator[Any] = iter(loader)
        else:
            iterator = loaders.start_at(loader, plan.first_sample, plan.first_batch)
        rng_files.restore_rng(self._resumed_rng)  # iter() draws from it, and did so before the interruption
        return iterator

    def _describe_weighting(self, batch: Any, plan: TrainingPlan) -> None:
        """Say it where the default makes a result depend on how batches are cut."""
        if self._weighs_items:
            return
        is_split = plan.accumulation > 1 and not self._own_loss_counts()
        is_told = self.model_accepts_loss_kwargs and traits.declares(self.compute_loss, "num_items_in_batch")
        by_model = is_told and self.compute_loss_func is None
        notice = losses.describe_weighting(
            is_averaged=is_split and not by_model,
            is_summed=is_split and by_model and traits.leaves_num_items_unused(self.model),
            weighs_rows=self.eval_dataset is not None and losses.has_item_labels(batch, self.label_names),
        )
        if notice is not None:
            logger.warning(notice)

    def _check_not_dry(self, batches_done: int) -> None:
        """Stop a run whose data gives nothing more; refuse one whose data gave nothing at all."""
        if batches_done == 0:
            checks.check_some_batch(self.state.global_step)
            logger.warning("An epoch gave no batch: training stops at update %d.", self.state.global_step)
            self.control.should_training_stop = True

    def _share_of_update(self, items_share: Any, num_items: Any) -> Any:
        """What the loss of a micro-batch is multiplied by, to be its share of the update's."""
        if items_share is not None:
            return items_share
        is_scaled = self.loss_is_scaled_for_ga
        if is_scaled is None:
            is_told = num_items is not None and traits.declares(self.compute_loss, "num_items_in_batch")
            is_scaled = (self.model_accepts_loss_kwargs and is_told) or self._own_loss_counts()
        return 1.0 if is_scaled else 1.0 / self.current_gradient_accumulation_steps

    def _own_loss_counts(self) -> bool:
        """Whether `compute_loss_func` is told the items of the update, to divide by them."""
        function = self.compute_loss_func
        return function is not None and traits.declares(function, "num_items_in_batch")

    def _observe(self, inputs: Any, outputs: Any, loss: torch.Tensor) -> None:
        """Keep a step for the callbacks of this step and for metrics of training batches."""
        self._step_data.keep(inputs, outputs, loss)
        if self.args.train_metrics and outputs is not None:
            labels = batches.labels_of(inputs, self.label_names, self.compute_loss_func is not None)
            logits = batches.outputs_without_loss(outputs, traits.ignored_outputs(self.model), has_loss=True)
            self._train_window.add(self._preprocess(logits, labels), labels)

    def _backward_options(self) -> dict[str, Any]:
        """LOMO steps inside backward and must be told its rate."""
        return {"learning_rate": self._get_learning_rate()} if "lomo" in self.args.optim else {}

    def _raise_missing_loss(self, inputs: Any, outputs: Any) -> NoReturn:
        message = losses.explain_missing_loss(
            dataset_keys=columns.names_of(self.train_dataset if self.is_in_train else self.eval_dataset),
            batch_keys=[key for key in batches.keys_of(inputs) if batches.entry(inputs, key) is not None],
            forward_names=forward_parameters(self.model),
            output_keys=batches.keys_of(outputs),
            label_names=self.label_names,
            headless=type(self.model).__name__ if traits.has_no_head(self.model) else None,
        )
        raise ValueError(message)

    def _clip_grad_norm(self, model: nn.Module) -> torch.Tensor:
        """Clip the gradients to `args.max_grad_norm` and return their norm before that."""
        return self._strategy.clip_grad_norm(self._parameters, self.args.max_grad_norm)

    def _accepts_update(self, grad_norm: torch.Tensor) -> bool:
        """Whether the gradients may change the weights; syncs only if `on_nonfinite` wants it to."""
        if self._strategy.is_scaled:  # overflow is its ordinary business, and it must see every step
            return True
        self._meter.watch(grad_norm)
        policy, update = self.args.on_nonfinite, self.state.global_step + 1
        if policy == "warn" or accepts_update(policy, grad_norm, self._meter.update_loss, update):
            return True
        self._meter.refuse_update()
        return False

    def _note_rates(self) -> float:
        """The learning rate to log with this update; those of named groups are noted beside it."""
        if self.args.param_groups:
            self._group_rates = groups.named_rates(self.optimizer)
        return self._get_learning_rate()

    def _advance_schedule(self) -> None:
        """One step of the schedule per update made; those that follow a metric move after an evaluation."""
        if not self._strategy.step_was_skipped and not schedules.follows_metric(self.lr_scheduler):
            self.lr_scheduler.step()

    def _zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _count_work(self, inputs: Any) -> None:
        """Add up operations and tokens of a micro-batch."""
        if self._num_flos_parameters or type(self).floating_point_ops is not Trainer.floating_point_ops:
            self.current_flos += float(self.floating_point_ops(inputs))
        mode = self.args.include_num_input_tokens_seen
        if mode != "no":
            name = getattr(self.model, "main_input_name", "input_ids")
            pad_token = getattr(self.processing_class, "pad_token_id", None)
            self._meter.add_tokens(batches.count_input_tokens(inputs, name, str(mode), pad_token))
        every = self.args.torch_empty_cache_steps
        if every is not None and self.state.global_step % every == 0:
            torch.cuda.empty_cache()

    def _finish_training(self, plan: TrainingPlan, trial: Any) -> TrainOutput:
        """Results of the run, and the best model where that is asked for."""
        step = self.state.global_step
        train_loss = self._meter.mean_loss(step)
        num_steps = step - plan.first_step
        num_samples = plan.num_train_samples * num_steps / max(plan.max_steps, 1)
        metrics = metric_tools.speed_metrics("train", plan.start_time, num_samples, num_steps)
        self.store_flos()
        metrics["total_flos"], metrics["train_loss"] = self.state.total_flos, train_loss
        self._memory_tracker.stop_and_update_metrics(metrics, stage="train")
        traits.call_with_declared(self.log, logs=metrics)
        error = self._writer.join()
        self._tell_of_seals()
        if self._saved_step != self._wanted_step:
            raise RuntimeError(
                f"The last checkpoint, of step {self._wanted_step}, was not saved: {error or 'see the log'}. "
                f"The newest one is of step {self._saved_step}."
            ) from error
        is_wanted = self.args.load_best_model_at_end and not self._signals.received
        best = self.state.best_model_checkpoint
        if is_wanted and best is not None:
            check_intact(best)
            self._load_best_model()
        self._event("on_train_end")
        return TrainOutput(step, train_loss, metrics)

    # ---- log ----

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add epoch and step, keep the entry in the history and hand it to the callbacks.

        Args:
            logs: What to log; the epoch is added to it.
            start_time: When training began, for tokens per second.
        """
        logs["epoch"] = self.state.epoch
        if self.args.include_num_input_tokens_seen != "no":
            self.state.num_input_tokens_seen += self._meter.drain_tokens()
            logs["num_input_tokens_seen"] = self.state.num_input_tokens_seen
            if start_time is not None:
                num_tokens = self.state.num_input_tokens_seen - self._initial_num_input_tokens_seen
                logs.update(metric_tools.speed_metrics("train", start_time, num_tokens=num_tokens))
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self._event("on_log", logs=logs, seconds=self._stopwatch.drain())

    # ---- callbacks ----

    def _event(self, name: str, **kwargs: Any) -> None:
        """The one place where control is handed to the callbacks and taken back."""
        self.control = getattr(self.callback_handler, name)(self.args, self.state, self.control, **kwargs)
