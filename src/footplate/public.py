"""Every public name of footplate; `import footplate` loads this file when the first of them is asked for.

Trackers are loaded when they are named: each has a file of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from footplate.arguments import (
    AcceleratorConfig,
    HfArg,
    HfArgumentParser,
    Seq2SeqTrainingArguments,
    TrainingArguments,
)
from footplate.arguments.texts import (
    DataClass,
    DataClassType,
    log_levels,
    make_choice_type_function,
    str_to_bool,
    string_to_bool,
    trainer_log_levels,
)
from footplate.batch import has_length
from footplate.callbacks import (
    CallbackHandler,
    DefaultFlowCallback,
    EarlyStoppingCallback,
    NotebookProgressCallback,
    PrinterCallback,
    ProgressCallback,
    SampleCallback,
    TrainerCallback,
    default_progress_callback,
)
from footplate.checkpoint import find_last_checkpoint, get_last_checkpoint
from footplate.checkpoint.arguments import TRAINING_ARGS_NAME
from footplate.checkpoint.by_hand import load_sharded_checkpoint, rotate_checkpoints, sort_checkpoints
from footplate.checkpoint.optimizer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.checkpoint.weights import SAFE_WEIGHTS_NAME, WEIGHTS_NAME
from footplate.comm import (
    distributed_broadcast_scalars,
    distributed_concat,
    find_batch_size,
    is_main_process,
    nested_concat,
    nested_detach,
    nested_gather,
    nested_numpify,
    nested_truncate,
    torch_distributed_zero_first,
    total_processes_number,
)
from footplate.data import (
    DistributedLengthGroupedSampler,
    DistributedSamplerWithLoop,
    IterableDatasetShard,
    LengthGroupedSampler,
    RemoveColumnsCollator,
    ShardSampler,
    get_length_grouped_indices,
    seed_worker,
)
from footplate.data.collators import (
    DataCollator,
    DataCollatorForLanguageModeling,
    DataCollatorForMultipleChoice,
    DataCollatorForPermutationLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorForTokenClassification,
    DataCollatorForWholeWordMask,
    DataCollatorMixin,
    DataCollatorWithFlattening,
    DataCollatorWithPadding,
    DefaultDataCollator,
    default_data_collator,
)
from footplate.data.collators.helpers import (
    InputDataClass,
    numpy_default_data_collator,
    pad_without_fast_tokenizer_warning,
    to_numpy,
    torch_default_data_collator,
)
from footplate.data.sampler_of import get_dataloader_sampler
from footplate.distributed.enabled import (
    deepspeed_config,
    is_deepspeed_available,
    is_deepspeed_zero3_enabled,
    is_fsdp_enabled,
    is_fsdp_managed_module,
)
from footplate.evaluation import (
    EvalLoopContainer,
    TrainerMemoryTracker,
    denumpify_detensorize,
    metrics_format,
    speed_metrics,
)
from footplate.evaluation.arrays import (
    atleast_1d,
    expand_like,
    nested_new_like,
    numpy_pad_and_concatenate,
    torch_pad_and_concatenate,
)
from footplate.evaluation.classes import ClassSummary, summarize_classes
from footplate.instruments.summary import ModelSummary, summarize
from footplate.integrations import (
    get_available_reporting_integrations,
    get_reporting_integration_callbacks,
    is_azureml_available,
    is_clearml_available,
    is_codecarbon_available,
    is_comet_available,
    is_dagshub_available,
    is_dvclive_available,
    is_flyte_deck_standard_available,
    is_flytekit_available,
    is_kubeflow_available,
    is_mlflow_available,
    is_neptune_available,
    is_optuna_available,
    is_ray_available,
    is_ray_tune_available,
    is_swanlab_available,
    is_tensorboard_available,
    is_trackio_available,
    is_wandb_available,
    rewrite_logs,
)
from footplate.optim.adafactor import Adafactor, AdafactorSchedule, get_adafactor_schedule
from footplate.optim.adamw import AdamW
from footplate.optim.greedy import GreedyLR, StreamingAverage
from footplate.optim.groups import get_parameter_names
from footplate.optim.low_rank import (
    LayerWiseDummyOptimizer,
    LayerWiseDummyScheduler,
    check_target_module_exists,
)
from footplate.optim.names import is_optimizer_factory
from footplate.optim.schedule_makers import (
    get_constant_schedule,
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_hard_restarts_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup_lr_rate,
    get_greedy_schedule,
    get_inverse_sqrt_schedule,
    get_linear_schedule_with_warmup,
    get_polynomial_decay_schedule_with_warmup,
    get_reduce_on_plateau_schedule,
    get_wsd_schedule,
)
from footplate.optim.schedules import TYPE_TO_SCHEDULER_FUNCTION, get_scheduler
from footplate.outputs import (
    BestRun,
    DebugOption,
    EvalLoopOutput,
    EvalPrediction,
    EvaluationStrategy,
    ExplicitEnum,
    FSDPOption,
    HPSearchBackend,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    ParallelMode,
    PredictionOutput,
    SaveStrategy,
    SchedulerType,
    TrainOutput,
)
from footplate.qa.answers import postprocess_qa_predictions
from footplate.qa.beams import postprocess_qa_predictions_with_beam_search
from footplate.qa.features import build_qa_features
from footplate.qa.post_processing import build_post_processing
from footplate.qa.scores import build_squad_metrics, compute_squad_metrics
from footplate.question_answering import QuestionAnsweringSeq2SeqTrainer, QuestionAnsweringTrainer
from footplate.rates.result import LearningRates
from footplate.replaying.api import replay
from footplate.search.spaces import (
    default_compute_objective,
    default_hp_space_optuna,
    default_hp_space_ray,
    default_hp_space_wandb,
    hp_params,
)
from footplate.seq2seq import Seq2SeqTrainer
from footplate.state import TRAINER_STATE_NAME, ExportableState, TrainerControl, TrainerState
from footplate.takeover import hand_back, take_over
from footplate.trainer import Trainer
from footplate.training.loss import LabelSmoother
from footplate.training.overflow import DebugUnderflowOverflow, detect_overflow, get_abs_min_max
from footplate.training.patches import (
    activate_neftune,
    align_special_tokens,
    deactivate_neftune,
    neftune_post_forward_hook,
)
from footplate.training.retry import find_executable_batch_size
from footplate.training.seed import enable_full_determinism, set_seed
from footplate.training.traits import get_model_param_count, number_of_arguments
from footplate.wrappers import get_module_class_from_name, unwrap_model, unwrap_peft_model

if TYPE_CHECKING:
    from footplate.integrations.azureml import AzureMLCallback
    from footplate.integrations.clearml import ClearMLCallback
    from footplate.integrations.codecarbon import CodeCarbonCallback
    from footplate.integrations.comet import CometCallback
    from footplate.integrations.dagshub import DagsHubCallback
    from footplate.integrations.dvclive import DVCLiveCallback
    from footplate.integrations.flyte import FlyteCallback
    from footplate.integrations.kubeflow import KubeflowCallback
    from footplate.integrations.mlflow import MLflowCallback
    from footplate.integrations.swanlab import SwanLabCallback
    from footplate.integrations.tensorboard import TensorBoardCallback
    from footplate.integrations.trackio import TrackioCallback
    from footplate.integrations.wandb import WandbCallback

    INTEGRATION_TO_CALLBACK: dict[str, type[Any]]
else:

    def __getattr__(name: str) -> Any:
        """The callback of a tracker, or the table of all of them."""
        if name not in __all__:  # such as a name that somebody misspelled
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module("footplate.integrations"), name)
        return globals()[name]


DEFAULT_CALLBACKS = [DefaultFlowCallback]
DEFAULT_PROGRESS_CALLBACK = default_progress_callback(disable_tqdm=False)

__all__ = [
    "DEFAULT_CALLBACKS",
    "DEFAULT_PROGRESS_CALLBACK",
    "INTEGRATION_TO_CALLBACK",
    "OPTIMIZER_NAME",
    "PREFIX_CHECKPOINT_DIR",
    "SAFE_WEIGHTS_NAME",
    "SCALER_NAME",
    "SCHEDULER_NAME",
    "TRAINER_STATE_NAME",
    "TRAINING_ARGS_NAME",
    "TYPE_TO_SCHEDULER_FUNCTION",
    "WEIGHTS_NAME",
    "AcceleratorConfig",
    "Adafactor",
    "AdafactorSchedule",
    "AdamW",
    "AzureMLCallback",
    "BestRun",
    "CallbackHandler",
    "ClassSummary",
    "ClearMLCallback",
    "CodeCarbonCallback",
    "CometCallback",
    "DVCLiveCallback",
    "DagsHubCallback",
    "DataClass",
    "DataClassType",
    "DataCollator",
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorForWholeWordMask",
    "DataCollatorMixin",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "DebugOption",
    "DebugUnderflowOverflow",
    "DefaultDataCollator",
    "DefaultFlowCallback",
    "DistributedLengthGroupedSampler",
    "DistributedSamplerWithLoop",
    "EarlyStoppingCallback",
    "EvalLoopContainer",
    "EvalLoopOutput",
    "EvalPrediction",
    "EvaluationStrategy",
    "ExplicitEnum",
    "ExportableState",
    "FSDPOption",
    "FlyteCallback",
    "GreedyLR",
    "HPSearchBackend",
    "HfArg",
    "HfArgumentParser",
    "HubStrategy",
    "InputDataClass",
    "IntervalStrategy",
    "IterableDatasetShard",
    "KubeflowCallback",
    "LabelSmoother",
    "LayerWiseDummyOptimizer",
    "LayerWiseDummyScheduler",
    "LearningRates",
    "LengthGroupedSampler",
    "MLflowCallback",
    "ModelSummary",
    "NotebookProgressCallback",
    "OptimizerNames",
    "ParallelMode",
    "PredictionOutput",
    "PrinterCallback",
    "ProgressCallback",
    "QuestionAnsweringSeq2SeqTrainer",
    "QuestionAnsweringTrainer",
    "RemoveColumnsCollator",
    "SampleCallback",
    "SaveStrategy",
    "SchedulerType",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "ShardSampler",
    "StreamingAverage",
    "SwanLabCallback",
    "TensorBoardCallback",
    "TrackioCallback",
    "TrainOutput",
    "Trainer",
    "TrainerCallback",
    "TrainerControl",
    "TrainerMemoryTracker",
    "TrainerState",
    "TrainingArguments",
    "WandbCallback",
    "activate_neftune",
    "align_special_tokens",
    "atleast_1d",
    "build_post_processing",
    "build_qa_features",
    "build_squad_metrics",
    "check_target_module_exists",
    "compute_squad_metrics",
    "deactivate_neftune",
    "deepspeed_config",
    "default_compute_objective",
    "default_data_collator",
    "default_hp_space_optuna",
    "default_hp_space_ray",
    "default_hp_space_wandb",
    "denumpify_detensorize",
    "detect_overflow",
    "distributed_broadcast_scalars",
    "distributed_concat",
    "enable_full_determinism",
    "expand_like",
    "find_batch_size",
    "find_executable_batch_size",
    "find_last_checkpoint",
    "get_abs_min_max",
    "get_adafactor_schedule",
    "get_available_reporting_integrations",
    "get_constant_schedule",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
    "get_dataloader_sampler",
    "get_greedy_schedule",
    "get_inverse_sqrt_schedule",
    "get_last_checkpoint",
    "get_length_grouped_indices",
    "get_linear_schedule_with_warmup",
    "get_model_param_count",
    "get_module_class_from_name",
    "get_parameter_names",
    "get_polynomial_decay_schedule_with_warmup",
    "get_reduce_on_plateau_schedule",
    "get_reporting_integration_callbacks",
    "get_scheduler",
    "get_wsd_schedule",
    "hand_back",
    "has_length",
    "hp_params",
    "is_azureml_available",
    "is_clearml_available",
    "is_codecarbon_available",
    "is_comet_available",
    "is_dagshub_available",
    "is_deepspeed_available",
    "is_deepspeed_zero3_enabled",
    "is_dvclive_available",
    "is_flyte_deck_standard_available",
    "is_flytekit_available",
    "is_fsdp_enabled",
    "is_fsdp_managed_module",
    "is_kubeflow_available",
    "is_main_process",
    "is_mlflow_available",
    "is_neptune_available",
    "is_optimizer_factory",
    "is_optuna_available",
    "is_ray_available",
    "is_ray_tune_available",
    "is_swanlab_available",
    "is_tensorboard_available",
    "is_trackio_available",
    "is_wandb_available",
    "load_sharded_checkpoint",
    "log_levels",
    "make_choice_type_function",
    "metrics_format",
    "neftune_post_forward_hook",
    "nested_concat",
    "nested_detach",
    "nested_gather",
    "nested_new_like",
    "nested_numpify",
    "nested_truncate",
    "number_of_arguments",
    "numpy_default_data_collator",
    "numpy_pad_and_concatenate",
    "pad_without_fast_tokenizer_warning",
    "postprocess_qa_predictions",
    "postprocess_qa_predictions_with_beam_search",
    "replay",
    "rewrite_logs",
    "rotate_checkpoints",
    "seed_worker",
    "set_seed",
    "sort_checkpoints",
    "speed_metrics",
    "str_to_bool",
    "string_to_bool",
    "summarize",
    "summarize_classes",
    "take_over",
    "to_numpy",
    "torch_default_data_collator",
    "torch_distributed_zero_first",
    "torch_pad_and_concatenate",
    "total_processes_number",
    "trainer_log_levels",
    "unwrap_model",
    "unwrap_peft_model",
]
