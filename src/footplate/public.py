"""Every public name of footplate; `import footplate` loads this file when the first of them is asked for."""

from footplate.arguments import (
    AcceleratorConfig,
    HfArg,
    HfArgumentParser,
    Seq2SeqTrainingArguments,
    TrainingArguments,
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
)
from footplate.checkpoint import find_last_checkpoint, get_last_checkpoint
from footplate.checkpoint.arguments import TRAINING_ARGS_NAME
from footplate.checkpoint.optimizer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.checkpoint.weights import SAFE_WEIGHTS_NAME, WEIGHTS_NAME
from footplate.comm import (
    find_batch_size,
    is_main_process,
    nested_concat,
    nested_detach,
    nested_numpify,
    nested_truncate,
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
    DataCollatorWithFlattening,
    DataCollatorWithPadding,
    DefaultDataCollator,
    default_data_collator,
)
from footplate.evaluation import (
    EvalLoopContainer,
    TrainerMemoryTracker,
    denumpify_detensorize,
    metrics_format,
    speed_metrics,
)
from footplate.optim.adafactor import Adafactor, AdafactorSchedule, get_adafactor_schedule
from footplate.optim.adamw import AdamW
from footplate.optim.greedy import GreedyLR
from footplate.optim.groups import get_parameter_names
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
from footplate.seq2seq import Seq2SeqTrainer
from footplate.state import TRAINER_STATE_NAME, ExportableState, TrainerControl, TrainerState
from footplate.trainer import Trainer
from footplate.training.loss import LabelSmoother
from footplate.training.retry import find_executable_batch_size
from footplate.training.seed import enable_full_determinism, set_seed
from footplate.training.traits import get_model_param_count, number_of_arguments
from footplate.wrappers import unwrap_model

__all__ = [
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
    "BestRun",
    "CallbackHandler",
    "DataCollator",
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorForWholeWordMask",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "DebugOption",
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
    "GreedyLR",
    "HPSearchBackend",
    "HfArg",
    "HfArgumentParser",
    "HubStrategy",
    "IntervalStrategy",
    "IterableDatasetShard",
    "LabelSmoother",
    "LengthGroupedSampler",
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
    "TrainOutput",
    "Trainer",
    "TrainerCallback",
    "TrainerControl",
    "TrainerMemoryTracker",
    "TrainerState",
    "TrainingArguments",
    "build_post_processing",
    "build_qa_features",
    "build_squad_metrics",
    "compute_squad_metrics",
    "default_data_collator",
    "denumpify_detensorize",
    "enable_full_determinism",
    "find_batch_size",
    "find_executable_batch_size",
    "find_last_checkpoint",
    "get_adafactor_schedule",
    "get_constant_schedule",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
    "get_greedy_schedule",
    "get_inverse_sqrt_schedule",
    "get_last_checkpoint",
    "get_length_grouped_indices",
    "get_linear_schedule_with_warmup",
    "get_model_param_count",
    "get_parameter_names",
    "get_polynomial_decay_schedule_with_warmup",
    "get_reduce_on_plateau_schedule",
    "get_scheduler",
    "get_wsd_schedule",
    "has_length",
    "is_main_process",
    "metrics_format",
    "nested_concat",
    "nested_detach",
    "nested_numpify",
    "nested_truncate",
    "number_of_arguments",
    "postprocess_qa_predictions",
    "postprocess_qa_predictions_with_beam_search",
    "seed_worker",
    "set_seed",
    "speed_metrics",
    "total_processes_number",
    "unwrap_model",
]
