"""`Trainer`: its constructor, and the parts it is made of."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from footplate.arguments import TrainingArguments
from footplate.arguments.adopt import adopt
from footplate.arguments.derived import apply_log_level
from footplate.arguments.notices import warn_once
from footplate.arguments.unsupported import check_supported
from footplate.batch import has_length
from footplate.callbacks import CallbackHandler, DefaultFlowCallback, default_progress_callback
from footplate.data.collators.default import default_data_collator
from footplate.distributed.strategy import build_strategy
from footplate.evaluation.memory import TrainerMemoryTracker
from footplate.evaluation.memory_limit import parse_memory_limit
from footplate.evaluation.streaming import is_streaming
from footplate.integrations.journal import KINDS
from footplate.integrations.journal_callback import JournalCallback
from footplate.integrations.registry import build_trackers
from footplate.samples.predictor import Predictor, name_eval_sets
from footplate.state import TrainerControl
from footplate.trainer.run import Run
from footplate.trainer.searching import Searching
from footplate.trainer.sharing import open_hub
from footplate.training import checks, traits
from footplate.training import loss as losses
from footplate.training.seed import seed_run
from footplate.wrappers import forward_parameters

Collator = Callable[[list[Any]], Any]

# of this process alone: locks, threads, connections, and what points back to the Trainer
LEFT_BEHIND = (
    *("callback_handler", "_current_run", "_current_evaluation", "_current_search", "_accelerator"),
    *("_strategy", "_publisher", "_eval_dataloaders", "_memory_tracker"),
)


class Trainer(Searching):
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
        compute_loss_func: `(outputs, labels, num_items_in_batch)` to loss, instead of the model's own. If it
            is not callable, such as text, it says that your `compute_loss` has scaled its loss already.
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

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Collator | None = None,
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
        eval_data_collator: Collator | None = None,
    ) -> None:
        self.args = adopt(args) if args is not None else TrainingArguments(output_dir="tmp_trainer")
        checks.check_order(model, self.args, data_collator, TrainingArguments)
        checks.check_is_arguments(self.args, TrainingArguments)
        apply_log_level(self.args)
        seed_run(self.args.seed, self.args.full_determinism)  # before model_init draws weights
        self._device = self.args.device
        self._memory_tracker = TrainerMemoryTracker(self.args.skip_memory_metrics)
        self._memory_tracker.start()

        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.processing_class = processing_class if processing_class is not None else tokenizer
        self.model_init, self.compute_loss_func = model_init, compute_loss_func
        self.optimizer, self.lr_scheduler = optimizers
        self.optimizer_cls_and_kwargs = optimizer_cls_and_kwargs
        self.compute_metrics = compute_metrics
        self.preprocess_logits_for_metrics = preprocess_logits_for_metrics
        self.neftune_noise_alpha = self.args.neftune_noise_alpha
        self._has_own_collator = data_collator is not None
        self.data_collator = find_collator(data_collator, self.processing_class, self.args, model)
        self.eval_data_collator = eval_data_collator
        self._check_inputs(model)

        self._set_model(model if model is not None else self.call_model_init())
        if makes_accelerator(self):
            self.create_accelerator_and_postprocess()
        self._strategy = build_strategy(self.args, lambda: self.accelerator, self._accelerator)
        self._read_traits()

        self.control = TrainerControl()
        self.callback_handler = build_handler(self, callbacks or [])
        self._train_batch_size, self._eval_dataloaders = self.args.train_batch_size, {}
        self._current_run = Run(self.args, self._device, self.callback_handler.extras)
        self.state = self._current_run.new_state(self.control, self.callback_handler.callbacks)
        self.state.is_local_process_zero = self.is_local_process_zero()
        self.state.is_world_process_zero = self.is_world_process_zero()
        if self.args.should_save:
            os.makedirs(self.args.output_dir, exist_ok=True)
        open_hub(self)
        self._event("on_init_end")
        self._memory_tracker.stop_and_update_metrics()

    def __reduce__(self) -> Any:
        """How a Trainer travels to another process: without what belongs to this one."""
        kept = {name: value for name, value in vars(self).items() if name not in LEFT_BEHIND}
        return arrive, (type(self), kept, list(self.callback_handler.callbacks))

    def _check_inputs(self, model: nn.Module | None) -> None:
        """Refuse what cannot work, before anything is built."""
        checks.check_model_source(model, self.model_init)
        checks.check_optimizer_sources(
            (self.optimizer, self.lr_scheduler), self.optimizer_cls_and_kwargs, self.model_init
        )
        checks.check_collator(self.data_collator)
        checks.check_collator(self.eval_data_collator or self.data_collator)
        checks.check_eval_dataset(self.args, self.eval_dataset)
        checks.check_train_length(self.args, self.train_dataset, has_length(self.train_dataset))
        if self.args.should_save:
            checks.check_output_dir(self.args.output_dir)
        parse_memory_limit(self.args.eval_memory_limit)
        has_objects = is_streaming(self.compute_metrics)
        checks.check_batch_metrics(self.args, self.compute_metrics, has_objects)
        checks.check_train_metrics(self.args, self.compute_metrics, has_objects)
        check_supported(self.args)

    def _read_traits(self) -> None:
        """Learn from signatures what the model takes and gives; subclasses may overwrite any of these."""
        self.model_accepts_loss_kwargs = traits.accepts_loss_kwargs(self.model)
        found = traits.find_label_names(self.model) or (
            ["labels"] if callable(self.compute_loss_func) else []
        )
        self.label_names = found if self.args.label_names is None else self.args.label_names
        self.can_return_loss = traits.can_return_loss(self.model)
        self._loss_shifts_labels = traits.loss_shifts_labels(self.model)
        self._items_are_shifted = traits.items_are_shifted(self.model, callable(self.compute_loss_func))
        self._signature_columns = None
        self.label_smoother = losses.find_smoother(self.args.label_smoothing_factor, self.model)
        # kept for collator, loss, metrics and callbacks, but not for a forward that does not name them
        held_back = {*(self.args.keep_columns or ()), "num_items"}
        self._held_back = held_back.difference(forward_parameters(self.model))


def arrive(kind: type[Trainer], attributes: dict[str, Any], callbacks: list[Any]) -> Trainer:
    """A Trainer in another process, with what belongs to a process made anew.

    Args:
        kind: Its class.
        attributes: What it took along.
        callbacks: Its callbacks, in their order.
    """
    trainer = kind.__new__(kind)
    vars(trainer).update(attributes)
    trainer._memory_tracker = TrainerMemoryTracker(trainer.args.skip_memory_metrics)
    trainer._eval_dataloaders = {}
    trainer._strategy = build_strategy(trainer.args, lambda: trainer.accelerator, None)
    trainer.callback_handler = build_handler(trainer, [])
    trainer.callback_handler.callbacks = callbacks
    trainer._current_run = Run(trainer.args, trainer._device, trainer.callback_handler.extras)
    return trainer


def makes_accelerator(trainer: Trainer) -> bool:
    """Whether a subclass has a say in the Accelerator, and so expects one from the beginning."""
    makers = (trainer.create_accelerator_and_postprocess, trainer._build_accelerator_args)
    return any(not traits.is_ours(maker) for maker in makers)


def find_collator(
    given: Collator | None, processing_class: Any, args: TrainingArguments, model: nn.Module | None
) -> Collator:
    """The collator that was given; else padding where the processing class can pad, else stacking."""
    pads = hasattr(processing_class, "pad") and hasattr(processing_class, "model_input_names")
    if given is None and pads:
        from footplate.data.collators.multiples import build_padding

        config = getattr(model, "config", None)
        return build_padding(processing_class, config, args.padding_multiple, args.torch_compile)
    if args.padding_multiple is not None and args.should_log:
        warn_once(
            f"padding_multiple={args.padding_multiple}: no effect, because "
            f"{'a data_collator was given' if given is not None else 'no tokenizer was given to pad with'}. "
            "Set it in that collator, or pass a tokenizer as processing_class without a data_collator."
        )
    return given if given is not None else default_data_collator


def build_handler(trainer: Trainer, callbacks: list[Any]) -> CallbackHandler:
    """The flow first, then the trackers, the user's callbacks, and last those who show."""
    args = trainer.args
    handler = CallbackHandler(
        [DefaultFlowCallback, *build_trackers(args.report_to), *callbacks],
        trainer.model,
        trainer.processing_class,
        trainer.optimizer,
        trainer.lr_scheduler,
    )
    handler.add_callback(default_progress_callback(bool(args.disable_tqdm)))
    if args.show_samples:
        from footplate.samples.callback import SampleCallback

        handler.add_callback(SampleCallback(every=None, count=args.show_samples))
    if args.report:
        from footplate.report.callback import ReportCallback

        handler.recorders.append(JournalCallback())
        handler.reporters.append(ReportCallback())
    # weak: the handler belongs to the Trainer and must not keep it alive
    handler.weak_extras["trainer"] = weakref.ref(trainer)
    handler.extras["predictor"] = build_predictor(weakref.proxy(trainer))
    handler.extras["note"] = functools.partial(keep_note, weakref.proxy(trainer))
    return handler


def keep_note(trainer: Trainer, kind: str, **values: Any) -> None:
    """Tell every callback what was measured; the journal keeps it, and the report may show it."""
    if kind in KINDS:
        raise ValueError(
            f"note({kind!r}): the journal uses this word itself. Choose another one than {KINDS}."
        )
    trainer._event("on_note", kind=kind, values=values)


def build_predictor(trainer: Trainer) -> Predictor:
    """What callbacks predict rows of their choice with; given a weak reference, it keeps nothing alive."""

    def eval_sets() -> dict[str, Any]:
        evaluation = trainer._current_evaluation  # evaluate() may have been given another dataset
        evaluated = evaluation.dataset if evaluation is not None else None
        return name_eval_sets(trainer.eval_dataset if evaluated is None else evaluated)

    return Predictor(
        eval_sets,
        label_names=lambda: trainer.label_names,
        read=lambda dataset: trainer.get_eval_dataloader(dataset),
        predict=lambda batch: trainer._predict_without_side_effects(batch),
        tell=lambda *args, **shown: trainer.callback_handler.on_samples(*args, **shown),
    )
