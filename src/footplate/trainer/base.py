"""What every part of the Trainer sees: its attributes, the joints, and what several parts use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import comm
from footplate.arguments import TrainingArguments
from footplate.callbacks import CallbackHandler
from footplate.distributed.strategy import Strategy
from footplate.evaluation.memory import TrainerMemoryTracker
from footplate.outputs import EvalLoopOutput, PredictionOutput, TrainOutput
from footplate.state import TrainerControl, TrainerState
from footplate.trainer.evaluation import Evaluation
from footplate.trainer.run import Run
from footplate.training import loss as losses
from footplate.training.compiling import compile_model, find_varied
from footplate.training.loss import LabelSmoother

if TYPE_CHECKING:
    from footplate.hub.publisher import Publisher
    from footplate.search.session import Session

_NOTHING: AbstractContextManager[None] = nullcontext()


class TrainerBase:
    """Attributes and joints of the Trainer, declared once; its parts are classes side by side on this one."""

    # ---- what the user gave ----

    args: TrainingArguments
    train_dataset: Any
    eval_dataset: Any  # one set, or several by name
    processing_class: Any
    data_collator: Callable[[list[Any]], Any]
    eval_data_collator: Callable[[list[Any]], Any] | None
    model_init: Callable[..., nn.Module] | None
    compute_loss_func: Any  # a function; anything else but None says that compute_loss has scaled its loss
    compute_metrics: Any  # a function, or metric objects
    preprocess_logits_for_metrics: Callable[[Any, Any], Any] | None
    optimizer_cls_and_kwargs: tuple[type[torch.optim.Optimizer], dict[str, Any]] | None
    neftune_noise_alpha: float | None
    loss_is_scaled_for_ga: bool | None = None  # for an own compute_loss: is its loss over the whole update?

    # ---- what is made of it ----

    model: nn.Module
    model_wrapped: nn.Module  # the outermost wrapper, which the loop calls
    optimizer: Any  # None until train() makes it; perhaps in a wrapper of Accelerate
    lr_scheduler: Any
    callback_handler: CallbackHandler
    state: TrainerState
    control: TrainerControl
    place_model_on_device: bool
    is_in_train = False
    hp_name: Any = None
    hp_search_backend: Any = None
    hp_space: Any = None
    compute_objective: Any = None
    objective: Any = None  # of the last evaluation of a trial
    model_preparation_time: float | None = None
    jit_compilation_time: float | None = None
    _device: torch.device
    _strategy: Strategy
    _accelerator: Any = None
    _memory_tracker: TrainerMemoryTracker
    _publisher: Publisher | None = None  # the way to the Hub, if it was needed
    _train_batch_size: int
    _has_own_collator: bool
    _created_lr_scheduler = False
    _eval_dataloaders: dict[str, Any]  # kept with their workers, by the name of the set

    # ---- what signatures say; subclasses overwrite freely ----

    model_accepts_loss_kwargs: bool
    label_names: list[str]
    can_return_loss: bool
    label_smoother: LabelSmoother | None
    _signature_columns: list[str] | None = None
    _loss_shifts_labels: bool
    _items_are_shifted: bool
    _held_back: set[str]  # columns for collator, loss and metrics that forward does not take

    # ---- what lives as long as one train(), and as one evaluation ----

    _current_run: Run  # a subclass may well have a `_run` of its own, such as that of a tracker
    _current_evaluation: Evaluation | None = None
    _current_search: Session | None = None  # as long as one search
    _trial: Any = None  # that the run belongs to

    # ---- the joints: methods users override, always reached through self; written in the parts ----

    @abstractmethod
    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
        **kwargs: Any,
    ) -> TrainOutput: ...

    @abstractmethod
    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: TrainingArguments | None = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput: ...

    @abstractmethod
    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor: ...

    @abstractmethod
    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any: ...

    @abstractmethod
    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device | None = None
    ) -> tuple[list[Any], Any]: ...

    @abstractmethod
    def _prepare_inputs(self, inputs: Any) -> Any: ...

    @abstractmethod
    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[torch.Tensor | None, Any, Any]: ...

    @abstractmethod
    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput: ...

    @abstractmethod
    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]: ...

    @abstractmethod
    def predict(
        self, test_dataset: Any, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput: ...

    @abstractmethod
    def get_train_dataloader(self) -> Any: ...

    @abstractmethod
    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any: ...

    @abstractmethod
    def get_test_dataloader(self, test_dataset: Any) -> Any: ...

    @abstractmethod
    def _get_train_sampler(self, train_dataset: Any = None) -> Any: ...

    @abstractmethod
    def _get_eval_sampler(self, eval_dataset: Any) -> Any: ...

    @abstractmethod
    def _set_signature_columns_if_needed(self) -> None: ...

    @abstractmethod
    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer: ...

    @abstractmethod
    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any: ...

    @abstractmethod
    def log(self, logs: dict[str, float], start_time: float | None = None) -> None: ...

    @abstractmethod
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None: ...

    @abstractmethod
    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None: ...

    @abstractmethod
    def _save_checkpoint(
        self, model: nn.Module, trial: Any, metrics: dict[str, float] | None = None
    ) -> None: ...

    @abstractmethod
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
    ) -> None: ...

    # ---- what several parts use ----

    def _event(self, name: str, **kwargs: Any) -> None:
        """The one place where control is handed to the callbacks and taken back."""
        self.control = getattr(self.callback_handler, name)(self.args, self.state, self.control, **kwargs)

    def _prepare_input(self, data: Any) -> Any:
        """A batch, or a part of one, on the device."""
        return comm.move_to_device(data, self._device, self.args.accelerator_config.non_blocking)

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        """The model as the loop calls it: in its precision, and compiled where that is asked for."""
        model = self._strategy.prepare_model(model)
        if self.args.torch_compile and training:
            args = self.args
            varied = find_varied(self.data_collator, args.dataloader_drop_last)
            return compile_model(model, args.torch_compile_backend, args.torch_compile_mode, varied)
        return model

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """Items the loss of these batches is divided by, or None where each batch averages by itself."""
        is_shared = self._current_evaluation is None and not self._current_run.accord.is_alone
        if is_shared and (weights := self._current_run.feed.weights()):
            # a rank without rows of its own got one that does not count
            batch_samples = [batch for batch, weight in zip_longest(batch_samples, weights) if weight != 0.0]
        if self.args.weighs_items:
            names, shifted = self.label_names, self._items_are_shifted
            num_items = sum(losses.count_items(batch, names, shifted) for batch in batch_samples)
            return comm.sum_integers([num_items])[0] if is_shared else num_items
        if self.model_accepts_loss_kwargs or self.compute_loss_func is not None:
            count = losses.count_labels(batch_samples, self._loss_shifts_labels, device)
            return count if not is_shared else losses.count_over_ranks(count, self.args, device)
        return None

    def compute_loss_context_manager(self) -> AbstractContextManager[Any]:
        """The context `compute_loss` runs in."""
        return self.autocast_smart_context_manager()

    def autocast_smart_context_manager(
        self, cache_enabled: bool | None = True
    ) -> AbstractContextManager[Any]:
        """No further autocast: where mixed precision is on, the model's forward has it inside."""
        return _NOTHING
