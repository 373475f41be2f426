"""The results of training and evaluation, and the enums of the arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

Arrays = np.ndarray | tuple[Any, ...] | dict[str, Any] | list[Any]


class EvalPrediction:
    """What `compute_metrics` receives; unpacks as `predictions, label_ids[, inputs][, losses]`.

    Args:
        predictions: The model's outputs, one row per sample.
        label_ids: The labels.
        inputs: The model's main input, if `include_for_metrics` has "inputs".
        losses: The loss of each sample's batch.
        columns: Every column of the dataset by name, in the order of the predictions.
        indices: The indices of these rows in the dataset; None if they have none.
        dataset_name: The name of the set, if there are several.
        unpacks_losses: Whether unpacking includes the losses.
    """

    def __init__(
        self,
        predictions: Arrays,
        label_ids: Arrays | None,
        inputs: Arrays | None = None,
        losses: Arrays | None = None,
        *,
        columns: Mapping[str, Any] | None = None,
        indices: Any = None,
        dataset_name: str | None = None,
        unpacks_losses: bool = True,
    ) -> None:
        self.predictions = predictions
        self.label_ids = label_ids
        self.inputs = inputs
        self.losses = losses
        self.columns = columns if columns is not None else {}
        self.indices = indices
        self.dataset_name = dataset_name
        extras = tuple(extra for extra in (inputs, losses if unpacks_losses else None) if extra is not None)
        self.elements: tuple[Any, ...] = (predictions, label_ids, *extras)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self.elements):
            raise IndexError(
                f"EvalPrediction has {len(self.elements)} elements, so there is no element {index}."
            )
        return self.elements[index]


class EvalLoopOutput(NamedTuple):
    """Result of `Trainer.evaluation_loop`."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float]
    num_samples: int


class PredictionOutput(NamedTuple):
    """Result of `Trainer.predict`."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float]


class TrainOutput(NamedTuple):
    """Result of `Trainer.train`."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class BestRun(NamedTuple):
    """Result of a hyperparameter search."""

    run_id: str
    objective: float | list[float]
    hyperparameters: dict[str, Any]
    run_summary: Any | None = None


class ExplicitEnum(str, Enum):
    """A string enum whose error for an unknown value lists the allowed ones."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        allowed = ", ".join(repr(member.value) for member in cls)
        raise ValueError(f"{value!r} is not a {cls.__name__}. Choose one of {allowed}.")

    def __str__(self) -> str:
        return str(self.value)


class IntervalStrategy(ExplicitEnum):
    """When to log or evaluate."""

    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"


EvaluationStrategy = IntervalStrategy


class SaveStrategy(ExplicitEnum):
    """When to save a checkpoint."""

    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"
    BEST = "best"


class HubStrategy(ExplicitEnum):
    """When to push to the Hub."""

    END = "end"
    EVERY_SAVE = "every_save"
    CHECKPOINT = "checkpoint"
    ALL_CHECKPOINTS = "all_checkpoints"


class HPSearchBackend(ExplicitEnum):
    """Backends of hyperparameter search."""

    OPTUNA = "optuna"
    RAY = "ray"
    WANDB = "wandb"
    RANDOM = "random"  # these two are footplate's own
    GRID = "grid"


class SchedulerType(ExplicitEnum):
    """Names for `lr_scheduler_type`."""

    LINEAR = "linear"
    COSINE = "cosine"
    COSINE_WITH_RESTARTS = "cosine_with_restarts"
    POLYNOMIAL = "polynomial"
    CONSTANT = "constant"
    CONSTANT_WITH_WARMUP = "constant_with_warmup"
    INVERSE_SQRT = "inverse_sqrt"
    REDUCE_ON_PLATEAU = "reduce_lr_on_plateau"
    COSINE_WITH_MIN_LR = "cosine_with_min_lr"
    COSINE_WARMUP_WITH_MIN_LR = "cosine_warmup_with_min_lr"
    WARMUP_STABLE_DECAY = "warmup_stable_decay"
    GREEDY = "greedy"


class FSDPOption(ExplicitEnum):
    """Names for `fsdp`."""

    FULL_SHARD = "full_shard"
    SHARD_GRAD_OP = "shard_grad_op"
    NO_SHARD = "no_shard"
    HYBRID_SHARD = "hybrid_shard"
    HYBRID_SHARD_ZERO2 = "hybrid_shard_zero2"
    OFFLOAD = "offload"
    AUTO_WRAP = "auto_wrap"


class OptimizerNames(ExplicitEnum):
    """Names for `optim`."""

    ADAMW_TORCH = "adamw_torch"
    ADAMW_TORCH_FUSED = "adamw_torch_fused"
    ADAMW_TORCH_XLA = "adamw_torch_xla"
    ADAMW_TORCH_NPU_FUSED = "adamw_torch_npu_fused"
    ADAMW_HF = "adamw_hf"
    ADAMW_APEX_FUSED = "adamw_apex_fused"
    ADAFACTOR = "adafactor"
    ADAMW_ANYPRECISION = "adamw_anyprecision"
    ADAMW_TORCH_4BIT = "adamw_torch_4bit"
    ADAMW_TORCH_8BIT = "adamw_torch_8bit"
    ADEMAMIX = "ademamix"
    SGD = "sgd"
    ADAGRAD = "adagrad"
    NADAM = "nadam"
    RADAM = "radam"
    ADAMW_BNB = "adamw_bnb_8bit"
    ADAMW_8BIT = "adamw_8bit"
    ADEMAMIX_8BIT = "ademamix_8bit"
    LION_8BIT = "lion_8bit"
    LION = "lion_32bit"
    PAGED_ADAMW = "paged_adamw_32bit"
    PAGED_ADAMW_8BIT = "paged_adamw_8bit"
    PAGED_ADEMAMIX = "paged_ademamix_32bit"
    PAGED_ADEMAMIX_8BIT = "paged_ademamix_8bit"
    PAGED_LION = "paged_lion_32bit"
    PAGED_LION_8BIT = "paged_lion_8bit"
    RMSPROP = "rmsprop"
    RMSPROP_BNB = "rmsprop_bnb"
    RMSPROP_8BIT = "rmsprop_bnb_8bit"
    RMSPROP_32BIT = "rmsprop_bnb_32bit"
    GALORE_ADAMW = "galore_adamw"
    GALORE_ADAMW_8BIT = "galore_adamw_8bit"
    GALORE_ADAFACTOR = "galore_adafactor"
    GALORE_ADAMW_LAYERWISE = "galore_adamw_layerwise"
    GALORE_ADAMW_8BIT_LAYERWISE = "galore_adamw_8bit_layerwise"
    GALORE_ADAFACTOR_LAYERWISE = "galore_adafactor_layerwise"
    LOMO = "lomo"
    ADALOMO = "adalomo"
    GROKADAMW = "grokadamw"
    SCHEDULE_FREE_RADAM = "schedule_free_radam"
    SCHEDULE_FREE_ADAMW = "schedule_free_adamw"
    SCHEDULE_FREE_SGD = "schedule_free_sgd"
    APOLLO_ADAMW = "apollo_adamw"
    APOLLO_ADAMW_LAYERWISE = "apollo_adamw_layerwise"
    STABLE_ADAMW = "stable_adamw"


class ParallelMode(Enum):
    """How processes and devices share the work."""

    NOT_PARALLEL = "not_parallel"
    NOT_DISTRIBUTED = "not_distributed"
    DISTRIBUTED = "distributed"
    SAGEMAKER_MODEL_PARALLEL = "sagemaker_model_parallel"
    SAGEMAKER_DATA_PARALLEL = "sagemaker_data_parallel"
    TPU = "tpu"


class DebugOption(ExplicitEnum):
    """Names for `debug`."""

    UNDERFLOW_OVERFLOW = "underflow_overflow"
    TPU_METRICS_DEBUG = "tpu_metrics_debug"
