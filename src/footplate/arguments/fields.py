"""Every setting of a run: its name, default and help; the parser and the docs are made from them."""

# ruff: noqa: RUF009, RUF036 (`opt` returns a dataclass field, made anew at each call; types: see below)
# no `from __future__ import annotations`: a subclass in another module could not resolve the types as text

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch

from footplate.arguments import derived, export, setters
from footplate.arguments.checks import CHOICES, check_all
from footplate.arguments.durations import parse_duration
from footplate.arguments.fsdp_config import FsdpSettings, plan_sharding
from footplate.arguments.headings import ADDED_HEADING, Help
from footplate.arguments.old_names import OldNamesAccepted
from footplate.arguments.settle import JSON_FIELDS, settle
from footplate.arguments.unsupported import mark_unsupported
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

# A type checker sees what a setting is after construction. At run time the type is what may be given, in an
# order that transformers' parser reads as text: it takes the second type of a union for the whole.
if TYPE_CHECKING:
    JsonObject = dict[str, Any] | None
    JsonList = list[dict[str, Any]] | None
    AcceleratorSettings = Any
    Switch = bool | str | list[str] | None
else:
    JsonObject = dict[str, Any] | str | None
    JsonList = list[dict[str, Any]] | str | None
    AcceleratorSettings = dict[str, Any] | str | None
    Switch = str | None


def opt(
    default: Any, help: str, section: str | None = None, heading: str | None = None, **metadata: Any
) -> Any:
    """A dataclass field with its help.

    Args:
        default: Its default; a list is copied for each instance.
        help: What `--help` says of it.
        section: The heading for this field and those after it.
        heading: The heading for this field alone.
        **metadata: Passed to argparse, by our parser and by others.
    """
    metadata["help"] = Help(help, section, heading)
    if isinstance(default, (list, dict, set)):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def own(default: Any, help: str, **metadata: Any) -> Any:
    """A field that the original does not have; a script's dataclass may have a field of the same name."""
    return opt(default, help, heading=ADDED_HEADING, **metadata)


@dataclass(repr=False)  # it has its own
@mark_unsupported
class TrainingArguments(OldNamesAccepted):
    """All settings of a run, with the names of the Hugging Face API; older names work too."""

    _VALID_DICT_FIELDS = [*JSON_FIELDS]  # may be given as JSON text; a subclass adds its own
    default_optim = "adamw_torch_fused" if HAS_FAST_FUSED_ADAMW else "adamw_torch"
    deepspeed_plugin = fsdp_plugin_args = None  # engines of Accelerate that are not in use

    output_dir: str = opt(None, "Folder for results; unset means `trainer_output`.", section="Output")

    per_device_train_batch_size: int = opt(8, "Samples per micro-batch.", section="Duration and batches")
    num_train_epochs: float = opt(3.0, "Epochs to train; a fraction ends inside the last one.")
    max_steps: int = opt(-1, "Updates to train; a positive value overrides num_train_epochs.")

    learning_rate: float = opt(5e-5, "Learning rate after the warm-up.", section="Learning rate")
    lr_scheduler_type: SchedulerType | str = opt("linear", "Shape of the learning rate, such as cosine.")
    lr_scheduler_kwargs: JsonObject = opt(None, "Extra arguments of the schedule.")
    warmup_steps: float = opt(0, "Updates of linear warm-up; below 1, a share of all updates.")

    optim: OptimizerNames | str = opt(
        default_optim, "Name of the optimizer, such as adamw_torch, adafactor or sgd.", section="Optimizer"
    )
    optim_args: str | None = opt(None, "Extra arguments of the optimizer: `name=value, name=value`.")
    weight_decay: float = opt(0.0, "Weight decay; not for biases and norm layers.")
    adam_beta1: float = opt(0.9, "Decay of Adam's running mean of gradients.")
    adam_beta2: float = opt(0.999, "Decay of Adam's running mean of squared gradients.")
    adam_epsilon: float = opt(1e-8, "Number that Adam adds to its divisor.")
    optim_target_modules: None | str | list[str] = opt(None, "Modules that GaLore or APOLLO projects.")

    gradient_accumulation_steps: int = opt(1, "Micro-batches per update.", section="Duration and batches")
    average_tokens_across_devices: bool = opt(
        True, "Count items over all processes.", section="Loss and gradients"
    )
    max_grad_norm: float = opt(1.0, "Clip gradients to this norm; 0 or None does not clip.")
    label_smoothing_factor: float = opt(0.0, "Share of each label that is spread over all classes.")

    bf16: bool = opt(False, "Train in bfloat16 mixed precision.", section="Precision")
    fp16: bool = opt(False, "Train in float16 mixed precision, with loss scaling.")
    bf16_full_eval: bool = opt(False, "Evaluate with the whole model in bfloat16.")
    fp16_full_eval: bool = opt(False, "Evaluate with the whole model in float16.")
    tf32: bool | None = opt(None, "Allow TF32 on GPUs that have it; unset keeps torch's setting.")

    activation_checkpointing: bool | None = opt(
        None, "Recompute activations to save memory; off unless set.", section="Memory and speed"
    )
    activation_checkpointing_kwargs: JsonObject = opt(None, "Extra arguments of the recomputation.")
    gradient_checkpointing: bool | None = opt(None, "The older name of activation_checkpointing.")
    gradient_checkpointing_kwargs: JsonObject = opt(
        None, "The older name of activation_checkpointing_kwargs."
    )
    torch_compile: bool = opt(False, "Compile the model with torch.compile.")
    torch_compile_backend: str | None = opt(None, "Backend of torch.compile; turns torch_compile on.")
    torch_compile_mode: str | None = opt(None, "Mode of torch.compile; turns torch_compile on.")
    use_liger_kernel: bool = opt(False, "Replace layers by Liger kernels.")
    liger_kernel_config: JsonObject = opt(None, "Which Liger kernels to use, by name.")
    use_cache: bool = opt(False, "Let the model keep its key-value cache while training.")
    neftune_noise_alpha: float | None = opt(None, "Strength of NEFTune noise on embeddings, usually 5 to 15.")
    torch_empty_cache_steps: int | None = opt(None, "Empty the device's cache after this many updates.")
    auto_find_batch_size: bool = opt(False, "Halve the micro-batch, not the update, if memory runs out.")

    logging_strategy: IntervalStrategy | str = opt("steps", "When to log.", section="Logging")
    logging_steps: float = opt(500, "Updates between two logs; below 1, a share of all updates.")
    logging_first_step: bool = opt(False, "Log the first update too.")
    log_on_each_node: bool = opt(True, "Log on every machine, not only on the first.")
    logging_nan_inf_filter: bool = opt(True, "Log the mean of the finite losses; the others are counted.")
    include_num_input_tokens_seen: str | bool = opt(
        "no", "Input tokens to count: `all`, `non_padding` or `no`."
    )
    log_level: str = opt("passive", "Log level of the main process.", choices=CHOICES["log_level"])
    log_level_replica: str = opt("warning", "Log level of the other processes.", choices=CHOICES["log_level"])
    disable_tqdm: bool | None = opt(None, "Hide progress bars; unset means if warnings are hidden.")

    report_to: None | str | list[str] = opt(
        "none", "Trackers to report to, or `all` that are installed.", section="Tracking", metavar="NAME ..."
    )
    run_name: str | None = opt(None, "Name of the run for trackers.")
    project: str = opt("huggingface", "Project name for Trackio.")
    trackio_space_id: str | None = opt(None, "Hugging Face Space for a live Trackio page.")
    trackio_bucket_id: str | None = opt(None, "Hugging Face Bucket behind the Trackio Space.")
    trackio_static_space_id: str | None | Literal[False] = opt(None, "Space for a static Trackio page.")

    eval_strategy: IntervalStrategy | str = opt("no", "When to evaluate.", section="Evaluation")
    eval_steps: float | None = opt(
        None, "Updates between evaluations; below 1, a share of all updates; unset means logging_steps."
    )
    eval_delay: float = opt(0, "Epochs or updates to wait before the first evaluation.")
    per_device_eval_batch_size: int = opt(8, "Samples per device and batch of evaluation.")
    prediction_loss_only: bool = opt(False, "Keep only the loss of an evaluation.")
    eval_on_start: bool = opt(False, "Evaluate once before the first update.")
    eval_do_concat_batches: bool = opt(True, "Join the predictions of all batches; else a list.")
    eval_use_gather_object: bool = opt(False, "Gather predictions as Python objects.")
    eval_accumulation_steps: int | None = opt(None, "Batches of predictions to keep on the device.")
    include_for_metrics: list[str] = opt([], "What else compute_metrics gets: `inputs`, `loss`.")
    batch_eval_metrics: bool = opt(False, "Call compute_metrics batch by batch.")

    save_only_model: bool = opt(False, "Save only weights: training cannot resume.", section="Saving")
    save_strategy: SaveStrategy | str = opt("steps", "When to save a checkpoint.")
    save_steps: float = opt(500, "Updates between two checkpoints; below 1, a share of all updates.")
    save_on_each_node: bool = opt(False, "Save on every machine, not only on the first.")
    save_total_limit: int | None = opt(None, "Checkpoints to keep; the best and the latest always stay.")
    enable_jit_checkpoint: bool = opt(False, "Save a checkpoint on SIGTERM.")

    push_to_hub: bool = opt(False, "Push the model to the Hub when it is saved.", section="Hub")
    hub_token: str | None = opt(None, "Token for the Hub; unset means that of the logged-in user.")
    hub_private_repo: bool | None = opt(None, "Make what is new private; unset means the owner's default.")
    hub_model_id: str | None = opt(None, "Repository on the Hub; unset means the name of output_dir.")
    hub_strategy: HubStrategy | str = opt("every_save", "What to push to the Hub, and when.")
    hub_always_push: bool = opt(False, "Push even while an earlier push is under way.")
    hub_revision: str | None = opt(None, "Branch to push to; made if it does not exist.")

    load_best_model_at_end: bool = opt(False, "Load the best weights at the end.", section="Best model")
    metric_for_best_model: str | None = opt(None, "Metric to choose the best model by; unset means `loss`.")
    greater_is_better: bool | None = opt(
        None, "Whether a greater metric is better; unset means yes, unless its name ends in loss."
    )

    ignore_data_skip: bool = opt(
        False, "On resume, read the epoch from its start.", section="Resuming and seeds"
    )
    restore_callback_states_from_checkpoint: bool = opt(False, "On resume, replace callbacks by saved ones.")
    full_determinism: bool = opt(False, "Use only deterministic kernels; slower.")
    seed: int = opt(42, "Seed of the run.")
    data_seed: int | None = opt(None, "Seed of the sample order; unset means seed.")

    use_cpu: bool = opt(False, "Train on the CPU even if there is an accelerator.", section="Device")
    # given as an object, a dictionary, JSON text or a file; always read as an AcceleratorConfig
    accelerator_config: AcceleratorSettings = opt(
        None, "Settings of Accelerate, or a JSON file.", metavar="JSON"
    )
    parallelism_config: Any = opt(None, "Accelerate's ParallelismConfig.")

    dataloader_drop_last: bool = opt(False, "Drop the last batch if it is short.", section="Data")
    dataloader_num_workers: int = opt(0, "Processes that load data; 0 loads in the main process.")
    dataloader_pin_memory: bool = opt(True, "Put batches in pinned memory, for faster copies to the device.")
    dataloader_persistent_workers: bool = opt(False, "Keep the workers alive between epochs.")
    dataloader_prefetch_factor: int | None = opt(None, "Batches that each worker loads ahead.")
    dataloader_multiprocessing_context: str | None = opt(
        None, "How workers are started.", choices=CHOICES["dataloader_multiprocessing_context"]
    )
    dataloader_in_order: bool = opt(True, "Take the workers' batches in order, not as they become ready.")
    remove_unused_columns: bool = opt(True, "Drop the columns that the model's forward does not name.")
    label_names: list[str] | None = opt(None, "Keys of a batch that are labels.")
    train_sampling_strategy: str = opt(
        "random", "Order of the training samples.", choices=CHOICES["train_sampling_strategy"]
    )
    length_column_name: str = opt("length", "Column with the length of each sample, for group_by_length.")

    ddp_find_unused_parameters: bool | None = opt(None, "DDP: find unused parameters.", section="Distributed")
    ddp_bucket_cap_mb: int | None = opt(None, "DDP: size of a gradient bucket in MB.")
    ddp_broadcast_buffers: bool | None = opt(None, "DDP: broadcast buffers at each forward.")
    ddp_static_graph: bool | None = opt(None, "DDP: promise that the graph stays the same.")
    ddp_backend: str | None = opt(None, "Backend of torch.distributed.", choices=CHOICES["ddp_backend"])
    ddp_timeout: int = opt(1800, "Seconds to wait for other processes.")
    fsdp: Switch = opt(None, "Shard the model with FSDP.", nargs="?", const=True)
    fsdp_config: dict[str, Any] | str | None = opt(None, "Settings of FSDP, or a JSON file.")
    deepspeed: dict[str, Any] | str | None = opt(None, "Settings of DeepSpeed, or a JSON file.")

    debug: str | list[DebugOption] = opt("", "Debug features.", section="Debugging")
    skip_memory_metrics: bool = opt(True, "Leave memory out of the metrics.", heading="Logging")

    do_train: bool = opt(False, "Whether to train.", section="For scripts to read; the Trainer does not")
    do_eval: bool = opt(False, "Whether to evaluate; set by any eval_strategy but `no`.")
    do_predict: bool = opt(False, "Whether to predict.")
    resume_from_checkpoint: str | None = opt(None, "Checkpoint to resume from.")
    local_rank: int = opt(-1, "Rank that old launchers pass; read local_process_index instead.")

    logging_dir: str | None = opt(
        None, "Folder for files of trackers; unset means one in output_dir.", heading="Tracking"
    )
    loss_weighting: str = own(
        "batches",
        "`batches`: every micro-batch of an update weighs the same, unless the model divides by "
        "num_items_in_batch; `items`: every label or row does.",
        choices=(*CHOICES["loss_weighting"], "default"),  # the older word for "batches"
        metavar="{batches,items}",
    )
    on_nonfinite: str = own(
        "warn",
        "What to do with an update whose loss or gradient norm is not finite.",
        choices=CHOICES["on_nonfinite"],
    )
    train_metrics_batches: int = own(0, "Last training batches that compute_metrics gets at each log.")
    keep_columns: list[str] | None = own(None, "Columns to keep for collator, loss, metrics and callbacks.")
    param_groups: JsonList = own(
        None, "Learning rate and decay by parameter name, or decay of the rate by layer."
    )
    sample_weights: list[float] | str | None = own(
        None, "Column or list of weights for weighted sampling.", metavar="COLUMN|FLOAT ..."
    )
    save_every: float | str | None = own(None, "Also save after this time, such as `30min`.", metavar="TIME")
    max_time: float | str | None = own(None, "Time after which train() saves and ends.", metavar="TIME")
    max_eval_samples: int | None = own(None, "Rows of each set to evaluate: always the same, by the seed.")
    eval_memory_limit: int | str | float | None = own(
        None, "Memory for predictions, such as `2GB` or 0.5 of all; the rest goes to a file.", metavar="SIZE"
    )
    show_samples: int = own(0, "Rows to show at each evaluation: input, target and prediction.")
    hardest_rows: int = own(0, "Rows with the largest losses to show when training ends: takes one pass.")
    report: bool = own(True, "Write events.jsonl and report.html to output_dir.")
    module_stats_steps: int | None = own(
        None,
        "Updates between two measurements of each module's gradient norm, weight norm and update ratio, for "
        "the report; unset or 0 measures none.",
    )
    save_in_background: bool = own(True, "Write checkpoints in a thread while training continues.")
    save_on_error: bool = own(True, "Seal a checkpoint of the last whole update before an error is raised.")
    save_makes_room: bool = own(
        True,
        "On a full disk, remove this run's oldest checkpoints, never the best or newest, to save the next.",
    )
    max_shard_size: int | str | None = own(
        None, "Split saved weights into files of at most this size, such as `5GB`.", metavar="SIZE"
    )
    metrics_on: str = own(
        "every_rank",
        "Several processes: where compute_metrics runs; on the first rank alone, no other holds predictions.",
        choices=CHOICES["metrics_on"],
    )
    hang_timeout: float | str | None = own(
        "10min", "Several processes: name a rank that stands still for this long.", metavar="TIME"
    )
    per_device_train_tokens: int | None = own(
        None,
        "Tokens of a micro-batch, padding included, instead of per_device_train_batch_size rows: batches "
        "hold rows of near-equal length, as many as fit.",
    )
    padding_multiple: int | None = own(
        None,
        "Pad to a multiple of this where no data_collator is given; unset: 64 with torch_compile, else to "
        "the longest row.",
    )
    order_memory_limit: int | str | None = own(
        "4GB", "Memory for the order of an epoch; beyond it, a notice names the keyed order.", metavar="SIZE"
    )
    dataloader_prefetch_to_device: bool | None = own(
        None,
        "Copy the next batch to the device during the current update, which takes device memory for one "
        "batch more; unset means yes, except on the CPU.",
    )
    rehearsal: str = own(
        "quick",
        "What is tried before the first update: `quick` takes a micro-batch or two, `full` is "
        "`Trainer.check()` and ends the run if something fails, `off` tries nothing.",
        choices=CHOICES["rehearsal"],
    )
    save_full_model: bool = own(
        False, "FSDP: write the weights of each checkpoint as a whole model too, not only in shards."
    )

    def __post_init__(self) -> None:
        settle(self)
        check_all(self)
        derived.join_processes(self)
        _ = self.sharding  # refuses what cannot be read, before anything is built
        derived.apply_tf32(self)
        self._n_gpu = int(self.device.type != "cpu")
        derived.leave_state(self.use_cpu)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # else @dataclass makes one that shows tokens

    __str__ = __repr__ = export.describe

    @property
    def device(self) -> torch.device:
        """The device that this process trains on."""
        # a subclass may ask before its settings are converted
        uses_state = getattr(self.accelerator_config, "use_configured_state", False)
        return derived.find_device(self.use_cpu, uses_state)

    @property
    def distributed_state(self) -> Any:
        """Accelerate's `PartialState` of this process."""
        return derived.find_state(self.use_cpu)

    @property
    def _setup_devices(self) -> torch.device:
        """The device, as older scripts read it."""
        return self.device

    @property
    def n_gpu(self) -> int:
        """Accelerators that this process uses: 0 on the CPU, else 1."""
        return self._n_gpu

    @property
    def world_size(self) -> int:
        """How many processes train together."""
        return derived.find_world_size()

    @property
    def process_index(self) -> int:
        """The number of this process among all processes."""
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
    def weighs_items(self) -> bool:
        """Whether every item has the same weight in the loss, in batches of any size."""
        return self.loss_weighting == "items"

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
    def hang_seconds(self) -> float | None:
        """`hang_timeout` in seconds."""
        return None if self.hang_timeout is None else parse_duration(self.hang_timeout, "hang_timeout")

    @property
    def should_log(self) -> bool:
        """Whether this process logs."""
        return (self.local_process_index if self.log_on_each_node else self.process_index) == 0

    @property
    def should_save(self) -> bool:
        """Whether this process writes to disk."""
        return (self.local_process_index if self.save_on_each_node else self.process_index) == 0

    @property
    def sharding(self) -> FsdpSettings | None:
        """How the weights are sharded over the processes; None for a whole copy on each."""
        return plan_sharding(self)

    @property
    def place_model_on_device(self) -> bool | None:
        """Whether the Trainer moves the model to the device; None lets it decide. Override to choose."""
        return None

    @property
    def ddp_timeout_delta(self) -> timedelta:
        """`ddp_timeout` as torch.distributed takes it."""
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

    to_dict = export.to_dict
    to_json_string = export.to_json_string
    to_sanitized_dict = export.to_sanitized_dict
    set_training = setters.set_training
    set_evaluate = setters.set_evaluate
    set_testing = setters.set_testing
    set_save = setters.set_save
    set_logging = setters.set_logging
    set_push_to_hub = setters.set_push_to_hub
    set_optimizer = setters.set_optimizer
    set_lr_scheduler = setters.set_lr_scheduler
    set_dataloader = setters.set_dataloader
