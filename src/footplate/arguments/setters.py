"""Set related settings in one call: `args.set_training(learning_rate=1e-4, batch_size=32)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from footplate.arguments.old_names import as_share
from footplate.outputs import HubStrategy, IntervalStrategy, OptimizerNames, SaveStrategy, SchedulerType

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

Arguments = TypeVar("Arguments", bound="TrainingArguments")


def set_training(
    self: Arguments,
    learning_rate: float = 5e-5,
    batch_size: int = 8,
    weight_decay: float = 0,
    num_epochs: float = 3,
    max_steps: int = -1,
    gradient_accumulation_steps: int = 1,
    seed: int = 42,
    activation_checkpointing: bool = False,
    gradient_checkpointing: bool | None = None,
) -> Arguments:
    """Set how to train, and turn `do_train` on.

    Args:
        learning_rate: Learning rate that the schedule starts from or warms up to.
        batch_size: Samples per device and micro-batch.
        weight_decay: Weight decay; not for biases and norm layers.
        num_epochs: Epochs to train.
        max_steps: Updates to train; a positive value overrides `num_epochs`.
        gradient_accumulation_steps: Micro-batches per update.
        seed: Seed of the run.
        activation_checkpointing: Recompute activations to save memory.
        gradient_checkpointing: The older name of `activation_checkpointing`.
    """
    self.do_train = True
    self.learning_rate = learning_rate
    self.per_device_train_batch_size = batch_size
    self.weight_decay = weight_decay
    self.num_train_epochs, self.max_steps = num_epochs, max_steps
    self.gradient_accumulation_steps = gradient_accumulation_steps
    self.seed = seed
    recomputes = activation_checkpointing if gradient_checkpointing is None else gradient_checkpointing
    self.activation_checkpointing = self.gradient_checkpointing = recomputes
    return self


def set_evaluate(
    self: Arguments,
    strategy: str | IntervalStrategy = "no",
    steps: int = 500,
    batch_size: int = 8,
    accumulation_steps: int | None = None,
    delay: float | None = None,
    loss_only: bool = False,
) -> Arguments:
    """Set when and how to evaluate; `do_eval` follows the strategy.

    Args:
        strategy: When to evaluate: "no", "steps" or "epoch".
        steps: Updates between two evaluations.
        batch_size: Samples per device and batch.
        accumulation_steps: No effect: see `unsupported.NO_EFFECT`.
        delay: Epochs or updates to wait before the first evaluation.
        loss_only: Keep only the loss.
    """
    check_steps("set_evaluate", strategy, steps)
    self.eval_strategy = IntervalStrategy(strategy)
    self.do_eval = self.eval_strategy != IntervalStrategy.NO
    self.eval_steps = steps
    self.per_device_eval_batch_size, self.prediction_loss_only = batch_size, loss_only
    self.eval_accumulation_steps = accumulation_steps
    self.eval_delay = 0 if delay is None else delay
    return self


def set_testing(self: Arguments, batch_size: int = 8, loss_only: bool = False) -> Arguments:
    """Set how to predict, and turn `do_predict` on.

    Args:
        batch_size: Samples per device and batch.
        loss_only: Keep only the loss.
    """
    self.do_predict = True
    self.per_device_eval_batch_size, self.prediction_loss_only = batch_size, loss_only
    return self


def set_save(
    self: Arguments,
    strategy: str | SaveStrategy | IntervalStrategy = "steps",
    steps: int = 500,
    total_limit: int | None = None,
    on_each_node: bool = False,
) -> Arguments:
    """Set when to save checkpoints, and how many to keep.

    Args:
        strategy: When to save: "no", "steps", "epoch" or "best".
        steps: Updates between two checkpoints.
        total_limit: Checkpoints to keep.
        on_each_node: Save on every machine.
    """
    check_steps("set_save", strategy, steps)
    self.save_strategy, self.save_steps = SaveStrategy(strategy), steps
    self.save_total_limit, self.save_on_each_node = total_limit, on_each_node
    return self


def set_logging(
    self: Arguments,
    strategy: str | IntervalStrategy = "steps",
    steps: int = 500,
    report_to: str | list[str] = "none",
    level: str = "passive",
    first_step: bool = False,
    nan_inf_filter: bool = False,
    on_each_node: bool = False,
    replica_level: str = "passive",
) -> Arguments:
    """Set when, where and at which level to log.

    Args:
        strategy: When to log: "no", "steps" or "epoch".
        steps: Updates between two logs.
        report_to: Trackers to report to.
        level: Log level of the main process.
        first_step: Log the first update too.
        nan_inf_filter: Leave losses that are not finite out of the mean that is logged.
        on_each_node: Log once per machine.
        replica_level: Log level of the other processes.
    """
    check_steps("set_logging", strategy, steps)
    self.logging_strategy, self.logging_steps = IntervalStrategy(strategy), steps
    names = [report_to] if isinstance(report_to, str) else report_to
    self.report_to = [name for name in names if name != "none"]
    self.log_level, self.log_level_replica, self.log_on_each_node = level, replica_level, on_each_node
    self.logging_first_step, self.logging_nan_inf_filter = first_step, nan_inf_filter
    return self


def set_push_to_hub(
    self: Arguments,
    model_id: str,
    strategy: str | HubStrategy = "every_save",
    token: str | None = None,
    private_repo: bool | None = None,
    always_push: bool = False,
    revision: str | None = None,
) -> Arguments:
    """Set where and when to push, and turn `push_to_hub` on.

    Args:
        model_id: Repository on the Hub.
        strategy: What to push, and when.
        token: Token for the Hub.
        private_repo: Make the repository private.
        always_push: Push even while an earlier push is under way.
        revision: Branch to push to.
    """
    self.push_to_hub = True
    self.hub_model_id, self.hub_revision = model_id, revision
    self.hub_token, self.hub_private_repo = token, private_repo
    self.hub_strategy, self.hub_always_push = HubStrategy(strategy), always_push
    return self


def set_optimizer(
    self: Arguments,
    name: str | OptimizerNames = "adamw_torch",
    learning_rate: float = 5e-5,
    weight_decay: float = 0,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    args: str | None = None,
) -> Arguments:
    """Set the optimizer and its numbers.

    Args:
        name: Name of the optimizer.
        learning_rate: Learning rate that the schedule starts from or warms up to.
        weight_decay: Weight decay; not for biases and norm layers.
        beta1: Decay of Adam's running mean of gradients.
        beta2: Decay of Adam's running mean of squared gradients.
        epsilon: Number that Adam adds to its divisor.
        args: Extra arguments, as `optim_args` takes them.
    """
    self.optim = OptimizerNames(name)
    self.learning_rate, self.weight_decay = learning_rate, weight_decay
    self.adam_beta1, self.adam_beta2, self.adam_epsilon = beta1, beta2, epsilon
    self.optim_args = args
    return self


def set_lr_scheduler(
    self: Arguments,
    name: str | SchedulerType = "linear",
    num_epochs: float = 3.0,
    max_steps: int = -1,
    warmup_steps: float = 0,
    warmup_ratio: float | None = None,
) -> Arguments:
    """Set the schedule of the learning rate and the length of the run.

    Args:
        name: Shape of the learning rate over the run.
        num_epochs: Epochs to train.
        max_steps: Updates to train; a positive value overrides `num_epochs`.
        warmup_steps: Updates of warm-up; below 1, a share of all updates.
        warmup_ratio: The share under its name of 4.x; used if `warmup_steps` is 0.
    """
    self.lr_scheduler_type = SchedulerType(name)
    self.num_train_epochs, self.max_steps = num_epochs, max_steps
    self.warmup_steps = warmup_steps or as_share(warmup_ratio or 0)
    return self


def set_dataloader(
    self: Arguments,
    train_batch_size: int = 8,
    eval_batch_size: int = 8,
    drop_last: bool = False,
    num_workers: int = 0,
    pin_memory: bool = True,
    persistent_workers: bool = False,
    prefetch_factor: int | None = None,
    multiprocessing_context: str | None = None,
    in_order: bool = True,
    auto_find_batch_size: bool = False,
    ignore_data_skip: bool = False,
    sampler_seed: int | None = None,
) -> Arguments:
    """Set how to make and load batches.

    Args:
        train_batch_size: Samples per device and micro-batch.
        eval_batch_size: Samples per device and batch of evaluation.
        drop_last: Drop the last batch if it is short.
        num_workers: Processes that load data.
        pin_memory: Put batches in pinned memory.
        persistent_workers: Keep the workers alive between epochs.
        prefetch_factor: Batches that each worker loads ahead.
        multiprocessing_context: How workers are started.
        in_order: Take the workers' batches in order, not as they become ready.
        auto_find_batch_size: Halve the micro-batch when memory runs out.
        ignore_data_skip: On resume, start the epoch's data from its beginning.
        sampler_seed: Seed of the sample order.
    """
    self.per_device_train_batch_size = train_batch_size
    self.per_device_eval_batch_size = eval_batch_size
    self.dataloader_drop_last, self.dataloader_in_order = drop_last, in_order
    self.dataloader_num_workers, self.dataloader_prefetch_factor = num_workers, prefetch_factor
    self.dataloader_pin_memory, self.dataloader_persistent_workers = pin_memory, persistent_workers
    self.dataloader_multiprocessing_context = multiprocessing_context
    self.auto_find_batch_size, self.ignore_data_skip = auto_find_batch_size, ignore_data_skip
    self.data_seed = sampler_seed
    return self


def check_steps(setter: str, strategy: str, steps: float) -> None:
    """Refuse the strategy "steps" with 0 steps."""
    if strategy == IntervalStrategy.STEPS and steps == 0:
        raise ValueError(
            f"{setter}(strategy='steps', steps=0) has no interval. Give a positive number of steps."
        )
