"""Every setting of a run: name, default and help, once; the parser and the docs are made from them."""

# ruff: noqa: RUF009 (`opt` returns a dataclass field, made anew at each call)

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import torch

from footplate.arguments import derived, export, setters
from footplate.arguments.checks import (
    DDP_BACKENDS,
    LOG_LEVELS,
    ON_NONFINITE,
    SAMPLING_STRATEGIES,
    START_METHODS,
    WEIGHTINGS,
    check_all,
)
from footplate.arguments.durations import parse_duration
from footplate.arguments.old_names import OldNamesAccepted
from footplate.arguments.settle import settle
from footplate.outputs import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    ParallelMode,
    SaveStrategy,
    SchedulerType,
)

HAS_FAST_FUSED_ADAMW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


def opt(default: Any, help: str, **metadata: Any) -> Any:
    """A dataclass field with its help; `section` opens a heading there, other metadata goes to argparse."""
    metadata["help"] = help
    if isinstance(default, (list, dict, set)):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def own(default: Any, help: str, **metadata: Any) -> Any:
    """A field that the original does not have; on a command line it makes way for a script's own."""
    return opt(default, help, is_own=True, **metadata)


@dataclass
class TrainingArguments(OldNamesAccepted):
    """All settings of a run, in the names of the Hugging Face API; those of 4.x are understood too."""

    output_dir: str = opt(
        None, "Folder for checkpoints and results; `trainer_output` if left out.", section="Output"
    )

    per_device_train_batch_size: int = opt(
        8, "Samples per device and micro-batch.", section="Duration and batches"
    )
    num_train_epochs: float = opt(3.0, "Epochs to train; a fraction ends inside the last one.")
    max_steps: int = opt(-1, "Updates to train; a positive value overrides num_train_epochs.")

    learning_rate: float = opt(
        5e-5, "Learning rate that the schedule starts from or warms up to.", section="Learning rate"
    )
    lr_scheduler_type: SchedulerType | str = opt("linear", "Shape of the learning rate over the run.")
    lr_scheduler_kwargs: dict[str, Any] | None = opt(
        None, "Extra arguments of the schedule, e.g. its minimum."
    )
    warmup_steps: float = opt(0, "Updates of linear warm-up; below 1, a share of all updates.")

    optim: OptimizerNames | str = opt(
        "adamw_torch_fused" if HAS_FAST_FUSED_ADAMW else "adamw_torch",
        "Name of the optimizer.",
        section="Optimizer",
    )
    optim_args: str | None = opt(None, "Extra arguments of the optimizer: `name=value, name=value`.")
    weight_decay: float = opt(0.0, "Weight decay; biases and norm layers are left out.")
    adam_beta1: float = opt(0.9, "Decay of Adam's running mean of gradients.")
    adam_beta2: float = opt(0.999, "Decay of Adam's running mean of squared gradients.")
    adam_epsilon: float = opt(1e-8, "What Adam adds to its divisor.")
    optim_target_modules: str | list[str] | None = opt(None, "Modules that GaLore or APOLLO work on.")

    gradient_accumulation_steps: int = opt(1, "Micro-batches per update.", section="Stability")
    average_tokens_across_devices: bool = opt(True, "Count items over all processes when a loss is averaged.")
    max_grad_norm: float = opt(1.0, "Gradients are clipped to this norm; 0 leaves them alone.")
    label_smoothing_factor: float = opt(0.0, "Share of each label that is spread over all classes.")

    bf16: bool = opt(False, "Train in bfloat16 mixed precision.", section="Precision")
    fp16: bool = opt(False, "Train in float16 mixed precision, with loss scaling.")
    bf16_full_eval: bool = opt(False, "Evaluate with the whole model in bfloat16.")
    fp16_full_eval: bool = opt(False, "Evaluate with the whole model in float16.")
    tf32: bool | None = opt(None, "Allow TF32 on GPUs that have it; unset keeps torch's own choice.")

    gradient_checkpointing: bool = opt(
        False, "Recompute activations: less memory, more time.", section="Memory and speed"
    )
    gradient_checkpointing_kwargs: dict[str, Any] | None = opt(None, "Extra arguments of the recomputation.")
    torch_compile: bool = opt(False, "Compile the model with torch.compile.")
    torch_compile_backend: str | None = opt(None, "Backend of torch.compile; naming one switches it on.")
    torch_compile_mode: str | None = opt(None, "Mode of torch.compile; naming one switches it on.")
    use_liger_kernel: bool = opt(False, "Replace layers by Liger kernels.")
    liger_kernel_config: dict[str, bool] | None = opt(
        None, "Which Liger kernels to use; unset means its defaults."
    )
    use_cache: bool = opt(False, "Let the model keep its key-value cache while training.")
    neftune_noise_alpha: float | None = opt(None, "Strength of NEFTune noise on embeddings, usually 5 to 15.")
    torch_empty_cache_steps: int | None = opt(None, "Empty the device's cache every so many updates.")
    auto_find_batch_size: bool = opt(
        False, "Halve the micro-batch when memory runs out; the update stays the same."
    )

    logging_strategy: IntervalStrategy | str = opt("steps", "When to log.", section="Logging")
    logging_steps: float = opt(500, "Updates between two logs; below 1, a share of all updates.")
    logging_first_step: bool = opt(False, "Log the first update too.")
    log_on_each_node: bool = opt(True, "Log once per machine, not once in all.")
    logging_nan_inf_filter: bool = opt(True, "No effect: a loss that is not finite is always shown.")
    include_num_input_tokens_seen: str | bool = opt("no", "Count input tokens: `all`, `non_padding` or `no`.")
    log_level: str = opt("passive", "Log level of the main process.", choices=LOG_LEVELS)
    log_level_replica: str = opt("warning", "Log level of the other processes.", choices=LOG_LEVELS)
    disable_tqdm: bool | None = opt(None, "Show no progress bars.")

    report_to: str | list[str] | None = opt(
        "none", "Trackers to report to; `all` for every installed one.", section="Tracking"
    )
    run_name: str | None = opt(None, "Name of the run for trackers.")
    project: str = opt("huggingface", "Project name for Trackio.")
    trackio_space_id: str | None = opt(None, "Hugging Face Space for a live Trackio page.")
    trackio_bucket_id: str | None = opt(None, "Hugging Face Bucket behind the Trackio Space.")
    trackio_static_space_id: str | Literal[False] | None = opt(
        None, "Space for a fixed Trackio page; false for none."
    )

    eval_strategy: IntervalStrategy | str = opt("no", "When to evaluate.", section="Evaluation")
    eval_steps: float | None = opt(
        None, "Updates between evaluations, logging_steps if unset; below 1, a share."
    )
    eval_delay: float = opt(0, "Epochs or updates to wait before the first evaluation.")
    per_device_eval_batch_size: int = opt(8, "Samples per device and batch of evaluation.")
    prediction_loss_only: bool = opt(False, "Keep only the loss of an evaluation.")
    eval_on_start: bool = opt(False, "Evaluate once before the first update.")
    eval_do_concat_batches: bool = opt(True, "Join the predictions of all batches; else keep a list.")
    eval_use_gather_object: bool = opt(False, "Gather predictions as Python objects.")
    eval_accumulation_steps: int | None = opt(None, "Batches of predictions to keep on the device.")
    include_for_metrics: list[str] = opt([], "What compute_metrics gets besides: `inputs`, `loss`.")
    batch_eval_metrics: bool = opt(False, "Call compute_metrics batch by batch.")

    save_only_model: bool = opt(False, "Save weights only: smaller, but no resume.", section="Saving")
    save_strategy: SaveStrategy | str = opt("steps", "When to save a checkpoint.")
    save_steps: float = opt(500, "Updates between two checkpoints; below 1, a share of all updates.")
    save_on_each_node: bool = opt(False, "Save on every machine, not only on the first.")
    save_total_limit: int | None = opt(None, "Checkpoints to keep; the best and the latest always stay.")
    enable_jit_checkpoint: bool = opt(False, "Save a checkpoint when the process is told to end.")

    push_to_hub: bool = opt(False, "Push the model to the Hub when it is saved.", section="Hub")
    hub_token: str | None = opt(None, "Token for the Hub; unset means the one that is logged in.")
    hub_private_repo: bool | None = opt(None, "Make the repository private; unset means the owner's default.")
    hub_model_id: str | None = opt(None, "Repository on the Hub; unset means the name of output_dir.")
    hub_strategy: HubStrategy | str = opt("every_save", "What is pushed to the Hub, and when.")
    hub_always_push: bool = opt(False, "Push even while an earlier push is under way.")
    hub_revision: str | None = opt(None, "Branch of the repository to push to.")

    load_best_model_at_end: bool = opt(
        False, "Load the best weights when training ends.", section="Best model"
    )
    metric_for_best_model: str | None = opt(None, "Metric that tells the best; `loss` where one is needed.")
    greater_is_better: bool | None = opt(
        None, "Whether more is better; unset: not for names that end in loss."
    )

    ignore_data_skip: bool = opt(False, "On resume, start the data anew.", section="Resuming and seeds")
    restore_callback_states_from_checkpoint: bool = opt(
        False, "On resume, replace callbacks by the saved ones."
    )
    full_determinism: bool = opt(False, "Use deterministic kernels only; slower.")
    seed: int = opt(42, "Seed of the run.")
    data_seed: int | None = opt(None, "Seed of the sample order; unset means seed.")

    use_cpu: bool = opt(False, "Train on the CPU even where there is an accelerator.", section="Engine")
    # Any form may be given; it reads as an AcceleratorConfig.
    accelerator_config: Any = opt(None, "Settings of Accelerate, or a JSON file.", metavar="JSON")
    parallelism_config: Any = opt(None, "Accelerate's ParallelismConfig.")

    dataloader_drop_last: bool = opt(False, "Drop the last batch if it is short.", section="Data")
    dataloader_num_workers: int = opt(0, "Processes that load data; 0 loads in the main one.")
    dataloader_pin_memory: bool = opt(True, "Pin batches in memory for faster copies to the device.")
    dataloader_persistent_workers: bool = opt(False, "Keep the workers alive between epochs.")
    dataloader_prefetch_factor: int | None = opt(None, "Batches that each worker loads ahead.")
    dataloader_multiprocessing_context: str | None = opt(
        None, "How workers are started.", choices=START_METHODS
    )
    dataloader_in_order: bool = opt(True, "Take batches in order, not as they become ready.")
    remove_unused_columns: bool = opt(True, "Drop the columns that the model's forward does not name.")
    label_names: list[str] | None = opt(None, "Keys of a batch that are labels.")
    train_sampling_strategy: str = opt(
        "random", "Order of the training samples.", choices=SAMPLING_STRATEGIES
    )
    length_column_name: str = opt("length", "Column that holds the length of each sample.")

    ddp_find_unused_parameters: bool | None = opt(
        None, "DDP: look for parameters without gradient.", section="Distributed"
    )
    ddp_bucket_cap_mb: int | None = opt(None, "DDP: size of a gradient bucket in MB.")
    ddp_broadcast_buffers: bool | None = opt(None, "DDP: broadcast buffers at each forward.")
    ddp_static_graph: bool | None = opt(None, "DDP: promise that the graph stays the same.")
    ddp_backend: str | None = opt(None, "Backend of torch.distributed.", choices=DDP_BACKENDS)
    ddp_timeout: int = opt(1800, "Seconds before a collective gives up.")
    fsdp: bool | str | list[str] | None = opt(None, "Shard the model with FSDP.", nargs="?", const=True)
    fsdp_config: dict[str, Any] | str | None = opt(None, "Settings of FSDP, or a JSON file.")
    deepspeed: dict[str, Any] | str | None = opt(None, "Settings of DeepSpeed, or a JSON file.")

    debug: str | list[DebugOption] = opt(
        "", "Debug features: underflow_overflow, tpu_metrics_debug.", section="Debugging"
    )
    skip_memory_metrics: bool = opt(True, "Leave memory out of the metrics.")

    do_train: bool = opt(False, "For scripts: whether to train.", section="For scripts")
    do_eval: bool = opt(False, "For scripts: whether to evaluate; on with any eval_strategy.")
    do_predict: bool = opt(False, "For scripts: whether to predict.")
    resume_from_checkpoint: str | None = opt(None, "For scripts: checkpoint to resume from.")
    local_rank: int = opt(-1, "Rank that old launchers pass; local_process_index is the one to read.")

    logging_dir: str | None = opt(
        None, "Folder for tracker files; unset means one in output_dir.", section="Beyond the original"
    )
    loss_weighting: str = own(
        "default", "`items`: every item of an update weighs the same.", choices=WEIGHTINGS
    )
    on_nonfinite: str = own("warn", "What a non-finite loss or gradient norm does.", choices=ON_NONFINITE)
    train_metrics: int = own(0, "At each log, compute_metrics over the last so many training batches.")
    keep_columns: list[str] | None = own(None, "Columns to keep for collator, loss, metrics and callbacks.")
    param_groups: list[dict[str, Any]] | None = own(
        None, "Parameter groups by pattern, and layer-wise decay."
    )
    sample_weights: str | list[float] | None = own(None, "Column or list of weights for weighted sampling.")
    save_every: str | float | None = own(
        None, "Time between two checkpoints, e.g. `30min`; besides save_strategy."
    )
    max_time: str | float | None = own(
        None, "Time that train() may take, e.g. `7h50m`; then it saves and returns."
    )
    max_eval_samples: int | None = own(
        None, "Evaluate on so many rows of each set: the same ones every time, drawn by the seed."
    )
    eval_memory_limit: int | float | str | None = own(
        None, "Memory for predictions, e.g. `2GB` or a share of all; the rest goes to a file."
    )
    show_samples: int = own(0, "Rows to show at each evaluation: input, target and prediction.")
    report: bool = own(True, "Keep events.jsonl and write report.html in output_dir.")
    save_in_background: bool = own(True, "Write checkpoints in a thread while training goes on.")

    def __post_init__(self) -> None:
        settle(self)
        check_all(self)
        derived.apply_tf32(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # else @dataclass writes one that shows tokens

    def __str__(self) -> str:
        return export.describe(self)

    __repr__ = __str__

    @property
    def device(self) -> torch.device:
        """The device that this process trains on."""
        return derived.find_device(self.use_cpu)

    @property
    def _setup_devices(self) -> torch.device:
        """What older scripts read to have the device chosen."""
        return self.device

    @property
    def n_gpu(self) -> int:
        """Accelerators that this process uses: 0 on the CPU, else 1."""
        return int(self.device.type != "cpu")

    @property
    def world_size(self) -> int:
        """How many processes train together."""
        return derived.find_world_size()

    @property
    def process_index(self) -> int:
        """The number of this process among all."""
        return derived.find_process_index()

    @property
    def local_process_index(self) -> int:
        """The number of this process on its machine."""
        return derived.find_local_process_index()

    @property
    def parallel_mode(self) -> ParallelMode:
        """Whether several processes share the work."""
        return ParallelMode.DISTRIBUTED if self.world_size > 1 else ParallelMode.NOT_PARALLEL

    @property
    def train_batch_size(self) -> int:
        """Samples of one micro-batch in this process."""
        return self.per_device_train_batch_size

    @property
    def eval_batch_size(self) -> int:
        """Samples of one evaluation batch in this process."""
        return self.per_device_eval_batch_size

    @property
    def mixed_precision(self) -> str:
        """The precision to compute in: "no", "bf16" or "fp16"."""
        return derived.find_mixed_precision(self.fp16, self.bf16)

    @property
    def save_every_seconds(self) -> float | None:
        """`save_every` in seconds."""
        return None if self.save_every is None else parse_duration(self.save_every, "save_every")

    @property
    def max_time_seconds(self) -> float | None:
        """`max_time` in seconds."""
        return None if self.max_time is None else parse_duration(self.max_time, "max_time")

    @property
    def should_log(self) -> bool:
        """Whether this process is one that logs."""
        return (self.local_process_index if self.log_on_each_node else self.process_index) == 0

    @property
    def should_save(self) -> bool:
        """Whether this process is one that writes to disk."""
        return (self.local_process_index if self.save_on_each_node else self.process_index) == 0

    @property
    def place_model_on_device(self) -> bool | None:
        """Whether the Trainer moves the model; None lets it decide. Override to settle it."""
        return None

    @property
    def ddp_timeout_delta(self) -> timedelta:
        """`ddp_timeout` as torch.distributed wants it."""
        return timedelta(seconds=self.ddp_timeout)

    def get_process_log_level(self) -> int:
        """The log level of this process, as a number of the `logging` module."""
        return derived.find_log_level(self.log_level if self.should_log else self.log_level_replica)

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """The updates of warm-up in a run of `num_training_steps`."""
        return derived.plan_warmup_steps(self.warmup_steps, num_training_steps)

    def main_process_first(self, local: bool = True, desc: str = "work") -> AbstractContextManager[None]:
        """Run the block in the main process (of each machine, if `local`) before the others."""
        return derived.main_process_first(self.local_process_index if local else self.process_index, desc)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values; tokens are masked."""
        return export.to_dict(self)

    def to_json_string(self) -> str:
        """The settings as JSON text; tokens are masked."""
        return export.to_json_string(self)

    def to_sanitized_dict(self) -> dict[str, Any]:
        """The settings as numbers, booleans and text only, for trackers."""
        return export.to_sanitized_dict(self)

    set_training = setters.set_training
    set_evaluate = setters.set_evaluate
    set_testing = setters.set_testing
    set_save = setters.set_save
    set_logging = setters.set_logging
    set_push_to_hub = setters.set_push_to_hub
    set_optimizer = setters.set_optimizer
    set_lr_scheduler = setters.set_lr_scheduler
    set_dataloader = setters.set_dataloader
