"""What becomes of each setting that is changed when a run is resumed: harmless, applied, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# These decide what is shown, kept, measured or how fast it goes, and not what is learned.
HARMLESS = frozenset(
    [
        # where things go and what they are called
        *("output_dir", "logging_dir", "run_name", "project", "report_to"),
        *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
        *("push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy"),
        *("hub_always_push", "hub_revision"),
        # logging
        *("logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node"),
        *("logging_nan_inf_filter", "log_level", "log_level_replica", "disable_tqdm", "debug"),
        *("skip_memory_metrics", "train_metrics", "show_samples", "report"),
        # evaluation
        *("eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "per_device_eval_batch_size"),
        *("prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object"),
        *("eval_accumulation_steps", "include_for_metrics", "batch_eval_metrics"),
        *("max_eval_samples", "eval_memory_limit"),
        *("bf16_full_eval", "fp16_full_eval", "load_best_model_at_end"),
        *("predict_with_generate", "generation_max_length", "generation_num_beams", "generation_config"),
        # saving
        *("save_strategy", "save_steps", "save_every", "save_only_model", "save_on_each_node"),
        *("save_total_limit", "save_in_background", "enable_jit_checkpoint", "max_time"),
        # speed and memory
        *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
        *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "torch_empty_cache_steps"),
        *("gradient_checkpointing", "use_cache"),
        *(
            "ddp_find_unused_parameters",
            "ddp_bucket_cap_mb",
            "ddp_static_graph",
            "ddp_backend",
            "ddp_timeout",
        ),
        # for scripts
        *("do_train", "do_eval", "do_predict", "resume_from_checkpoint", "local_rank"),
        # only read where samples are grouped by length
        "length_column_name",
    ]
)

_ROUNDING = "from here on; results may differ in the last bits"
_NEW_END = "the run ends there, and the rest of the curve runs to that end"
_NEW_COUNT = "goes on at the same sample; the updates left, and the end of the curve, are counted anew"
_FROM_HERE = "from the next update on"
_OTHER_LOSS = "from the next update on; losses before and after cannot be compared"
_NEW_BEST = "the best so far is forgotten, for it was measured otherwise"

# What happens to the rest of the run.
APPLIED: dict[str, str] = {
    "num_train_epochs": _NEW_END,
    "max_steps": _NEW_END,
    "per_device_train_batch_size": _NEW_COUNT,
    "gradient_accumulation_steps": _NEW_COUNT,
    "dataloader_drop_last": _NEW_COUNT,
    "learning_rate": "the curve goes on from here with this as its highest rate",
    "lr_scheduler_type": "from the next update on, the rate that this curve has there",
    "lr_scheduler_kwargs": "from the next update on, the rate that this curve has there",
    "warmup_steps": "the curve is that of this warm-up, from the next update on",
    "weight_decay": _FROM_HERE,
    "adam_beta1": _FROM_HERE,
    "adam_beta2": _FROM_HERE,
    "adam_epsilon": _FROM_HERE,
    "param_groups": "rates and decay of the groups, from the next update on",
    "max_grad_norm": _FROM_HERE,
    "label_smoothing_factor": _OTHER_LOSS,
    "neftune_noise_alpha": _OTHER_LOSS,
    "label_names": _OTHER_LOSS,
    "on_nonfinite": _FROM_HERE,
    "bf16": _ROUNDING,
    "tf32": _ROUNDING,
    "gradient_checkpointing_kwargs": _ROUNDING,
    "torch_compile": _ROUNDING,
    "torch_compile_backend": _ROUNDING,
    "torch_compile_mode": _ROUNDING,
    "use_liger_kernel": _ROUNDING,
    "liger_kernel_config": _ROUNDING,
    "auto_find_batch_size": _ROUNDING,
    "full_determinism": _ROUNDING,
    "use_cpu": "goes on on the other device; " + _ROUNDING,
    "accelerator_config": _ROUNDING,
    "ddp_broadcast_buffers": _ROUNDING,
    "fsdp_config": _ROUNDING,
    "include_num_input_tokens_seen": "counted so from here on; the count so far stays",
    "metric_for_best_model": _NEW_BEST,
    "greater_is_better": _NEW_BEST,
    "ignore_data_skip": "decides whether this resume goes on at the same sample or starts the epoch anew",
    "restore_callback_states_from_checkpoint": "decides whether this resume replaces callbacks",
    "dataloader_in_order": "batches come in this manner from here on",
    "remove_unused_columns": "batches hold these columns from here on",
    "keep_columns": "batches hold these columns from here on",
}

_ORDER = "it decides which sample comes when: in this epoch some would come twice and others never"
_STATE = "the saved state of the optimizer does not fit"
_LAYOUT = "the saved state is laid out for another way of sharing the work"
_SCALE = "it changes the scale of loss and gradients, and the running sums would mix both"

# Why the run cannot go on so.
REFUSED: dict[str, str] = {
    "seed": _ORDER,
    "data_seed": _ORDER,
    "train_sampling_strategy": _ORDER,
    "sample_weights": _ORDER,
    "sortish_sampler": _ORDER,
    "optim": _STATE,
    "optim_args": _STATE,
    "optim_target_modules": _STATE,
    "fp16": "loss scaling has a state of its own, which the checkpoint has only if it ran in fp16",
    "loss_weighting": _SCALE,
    "average_tokens_across_devices": _SCALE,
    "fsdp": _LAYOUT,
    "deepspeed": _LAYOUT,
    "parallelism_config": _LAYOUT,
}

Outcome = tuple[str, str]  # "harmless", "applied" or "refused", and how or why
Settings = Mapping[str, Any]

GROUPED = ("group_by_length", "batch_rebalance")
FOLLOWS_METRIC = ("reduce_lr_on_plateau", "greedy")
SAME_STATE = ("adamw_torch", "adamw_torch_fused")


def judge(name: str, saved: Settings, current: Settings) -> Outcome:
    """What becomes of one changed setting, given all the others."""
    special = SPECIAL[name](saved, current) if name in SPECIAL else None
    if special is not None:
        return special
    if name in REFUSED:
        return "refused", REFUSED[name]
    if name in HARMLESS:
        return "harmless", ""
    return "applied", APPLIED.get(name, "a setting of your own: whatever reads it")


def _uses(settings: Settings, name: str, values: tuple[str, ...]) -> bool:
    return str(settings.get(name)) in values


def _either_uses(saved: Settings, current: Settings, name: str, values: tuple[str, ...]) -> bool:
    return _uses(saved, name, values) or _uses(current, name, values)


def _judge_grouping(saved: Settings, current: Settings) -> Outcome | None:
    if _either_uses(saved, current, "train_sampling_strategy", GROUPED):
        return "refused", f"samples are grouped by length, and so {_ORDER}"
    return None


def _judge_sample_weights(saved: Settings, current: Settings) -> Outcome | None:
    return (
        None if _either_uses(saved, current, "train_sampling_strategy", ("weighted",)) else ("harmless", "")
    )


def _judge_data_seed(saved: Settings, current: Settings) -> Outcome | None:
    seeds = [
        settings.get("data_seed") if settings.get("data_seed") is not None else settings.get("seed")
        for settings in (saved, current)
    ]
    return ("harmless", "") if seeds[0] == seeds[1] else None


def _judge_epochs(saved: Settings, current: Settings) -> Outcome | None:
    return ("harmless", "") if (current.get("max_steps") or 0) > 0 else None


def _judge_rate(saved: Settings, current: Settings) -> Outcome | None:
    if _uses(current, "lr_scheduler_type", FOLLOWS_METRIC):
        return "refused", "the rate is part of the state of a schedule that follows a metric"
    return None


def _judge_schedule(saved: Settings, current: Settings) -> Outcome | None:
    if _either_uses(saved, current, "lr_scheduler_type", FOLLOWS_METRIC):
        return "refused", "a schedule that follows a metric has another state than a curve"
    return None


def _judge_optimizer(saved: Settings, current: Settings) -> Outcome | None:
    if _uses(saved, "optim", SAME_STATE) and _uses(current, "optim", SAME_STATE):
        return "applied", _ROUNDING
    return None


def _judge_groups(saved: Settings, current: Settings) -> Outcome | None:
    shapes = [
        [(group.get("match"), "layer_decay" in group) for group in settings.get("param_groups") or ()]
        for settings in (saved, current)
    ]
    return None if shapes[0] == shapes[1] else ("refused", f"parameters change their group: {_STATE}")


def _judge_evaluations(saved: Settings, current: Settings) -> Outcome | None:
    if _uses(current, "lr_scheduler_type", FOLLOWS_METRIC):
        return "applied", "the schedule moves with these evaluations"
    return None


# Where it depends on other settings; None leaves it to the tables.
SPECIAL: dict[str, Callable[[Settings, Settings], Outcome | None]] = {
    "per_device_train_batch_size": _judge_grouping,
    "length_column_name": _judge_grouping,
    "sample_weights": _judge_sample_weights,
    "data_seed": _judge_data_seed,
    "num_train_epochs": _judge_epochs,
    "learning_rate": _judge_rate,
    "lr_scheduler_type": _judge_schedule,
    "lr_scheduler_kwargs": _judge_schedule,
    "optim": _judge_optimizer,
    "param_groups": _judge_groups,
    "eval_strategy": _judge_evaluations,
    "eval_steps": _judge_evaluations,
    "eval_delay": _judge_evaluations,
}
