"""Whether a setting may change when a run is resumed: harmless, applied from there on, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# These settings do not change what is learned: only what is shown, kept and measured, and the speed.
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
        *("skip_memory_metrics", "train_metrics_batches", "show_samples", "hardest_rows", "report"),
        "module_stats_steps",
        # evaluation
        *("eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "per_device_eval_batch_size"),
        *("prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object"),
        *("eval_accumulation_steps", "include_for_metrics", "batch_eval_metrics"),
        *("max_eval_samples", "eval_memory_limit", "metrics_on"),
        *("bf16_full_eval", "fp16_full_eval", "load_best_model_at_end"),
        *("predict_with_generate", "generation_max_length", "generation_num_beams", "generation_config"),
        # saving
        *("save_strategy", "save_steps", "save_every", "save_only_model", "save_on_each_node"),
        *("save_total_limit", "save_in_background", "save_on_error", "max_time"),
        *("save_makes_room", "max_shard_size", "save_full_model"),
        "enable_jit_checkpoint",
        "rehearsal",
        # speed and memory
        *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
        *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "torch_empty_cache_steps"),
        "dataloader_prefetch_to_device",
        *("activation_checkpointing", "gradient_checkpointing", "use_cache"),
        *("ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_static_graph"),
        *("ddp_backend", "ddp_timeout", "hang_timeout", "order_memory_limit"),
        # for scripts
        *("do_train", "do_eval", "do_predict", "resume_from_checkpoint", "local_rank"),
        "restore_callback_states_from_checkpoint",
        # used only if samples are grouped by length
        "length_column_name",
    ]
)

_ROUNDING = "from the next update on; results may differ in the last bits"
_DIVISION = "weights and states are divided anew; results may differ in the last bits"
_NEW_END = "the run ends there, and so does the learning-rate curve"
_NEW_COUNT = "continues at the same sample; the remaining updates and the end of the curve are computed again"
_FROM_HERE = "from the next update on"
_NEW_CURVE = "from the next update on, the rate that this curve has there"
_NEW_COLUMNS = "batches hold these columns from the next update on"
_OTHER_LOSS = "from the next update on; losses before and after cannot be compared"
_NEW_BEST = "the best result so far is forgotten: it was measured in another way"

# How the setting is applied to the rest of the run.
APPLIED: dict[str, str] = {
    "num_train_epochs": _NEW_END,
    "max_steps": _NEW_END,
    "per_device_train_batch_size": _NEW_COUNT,
    "gradient_accumulation_steps": _NEW_COUNT,
    "dataloader_drop_last": _NEW_COUNT,
    "learning_rate": "the curve continues with this as its highest rate",
    "lr_scheduler_type": _NEW_CURVE,
    "lr_scheduler_kwargs": _NEW_CURVE,
    "warmup_steps": "from the next update on, the curve with this warm-up",
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
    "activation_checkpointing_kwargs": _ROUNDING,
    "gradient_checkpointing_kwargs": _ROUNDING,
    "torch_compile": _ROUNDING,
    "torch_compile_backend": _ROUNDING,
    "torch_compile_mode": _ROUNDING,
    "use_liger_kernel": _ROUNDING,
    "liger_kernel_config": _ROUNDING,
    "auto_find_batch_size": _ROUNDING,
    "padding_multiple": _ROUNDING,
    "full_determinism": _ROUNDING,
    "use_cpu": "continues on the other device " + _ROUNDING,
    "accelerator_config": _ROUNDING,
    "ddp_broadcast_buffers": _FROM_HERE,
    "fsdp": _DIVISION,
    "fsdp_config": _DIVISION,
    "parallelism_config": _DIVISION,
    "include_num_input_tokens_seen": "counted this way from the next update on; the count so far stays",
    "metric_for_best_model": _NEW_BEST,
    "greater_is_better": _NEW_BEST,
    "ignore_data_skip": "decides whether this resume continues at the same sample or starts the epoch again",
    "dataloader_in_order": "batches come in this order from the next update on",
    "remove_unused_columns": _NEW_COLUMNS,
    "keep_columns": _NEW_COLUMNS,
}

_ORDER = "it decides the order of samples: in this epoch some would come twice and others never"
_STATE = "the saved state of the optimizer does not fit"
_LAYOUT = "the saved state was written for another division of the work"
_OTHER_PARTS = "a stream is shared out in another way: some samples may come twice and others never"
_SCALE = "it changes the scale of loss and gradients, and the running sums would mix both scales"

# Why the run cannot continue with the new value.
REFUSED: dict[str, str] = {
    "seed": _ORDER,
    "data_seed": _ORDER,
    "train_sampling_strategy": _ORDER,
    "per_device_train_tokens": _ORDER,
    "sample_weights": _ORDER,
    "sortish_sampler": _ORDER,
    "optim": _STATE,
    "optim_args": _STATE,
    "optim_target_modules": _STATE,
    "fp16": "loss scaling has a state, which the checkpoint holds only if it was written in fp16",
    "loss_weighting": _SCALE,
    "average_tokens_across_devices": _SCALE,
    "deepspeed": _LAYOUT,
}

Outcome = tuple[str, str]  # "harmless", "applied" or "refused", and how or why
Settings = Mapping[str, Any]

_NO_EFFECT: Outcome = ("harmless", "")

GROUPED = ("group_by_length", "batch_rebalance")
PROCESSES = "processes"  # how many train together: the launcher says it, and no setting does
FOLLOWS_METRIC = ("reduce_lr_on_plateau", "greedy")
SAME_STATE = ("adamw_torch", "adamw_torch_fused")


def judge(name: str, saved: Settings, current: Settings) -> Outcome:
    """What happens to one changed setting, given all others."""
    special = SPECIAL[name](saved, current) if name in SPECIAL else None
    if special is not None:
        return special
    if name in REFUSED:
        return "refused", REFUSED[name]
    if name in HARMLESS:
        return _NO_EFFECT
    return "applied", APPLIED.get(name, "a setting of your own: your code decides what it changes")


def _uses(settings: Settings, name: str, values: tuple[str, ...]) -> bool:
    return str(settings.get(name)) in values


def _either_uses(saved: Settings, current: Settings, name: str, values: tuple[str, ...]) -> bool:
    return _uses(saved, name, values) or _uses(current, name, values)


def _judge_grouping(saved: Settings, current: Settings) -> Outcome | None:
    has_budget = any(settings.get("per_device_train_tokens") is not None for settings in (saved, current))
    if has_budget or _either_uses(saved, current, "train_sampling_strategy", GROUPED):
        return "refused", f"samples are grouped by length, so {_ORDER}"
    return None


def _judge_batch(saved: Settings, current: Settings) -> Outcome | None:
    # samples are grouped over the batches of all processes
    sizes = [_num_grouped(settings) for settings in (saved, current)]
    return None if sizes[0] == sizes[1] else _judge_grouping(saved, current)


def _num_grouped(settings: Settings) -> int:
    """Rows or, with a budget, tokens of the batches of all processes together."""
    by_rows = settings.get("per_device_train_batch_size", 1)
    budget = settings.get("per_device_train_tokens")
    return int((by_rows if budget is None else budget) * settings.get(PROCESSES, 1))


def _judge_processes(saved: Settings, current: Settings) -> Outcome | None:
    reads_apart = _sharing(saved).get("dispatch_batches") is False
    text = f"{_NEW_COUNT}; {_OTHER_PARTS}" if reads_apart else _NEW_COUNT
    return _judge_batch(saved, current) or ("applied", text)


def _judge_sharing(saved: Settings, current: Settings) -> Outcome | None:
    was, now = _sharing(saved), _sharing(current)
    changed = {name for name in {*was, *now} if was.get(name) != now.get(name)}
    if "dispatch_batches" in changed:
        return "applied", f"from the next update on; {_OTHER_PARTS}"
    return ("applied", _NEW_COUNT) if changed & {"split_batches", "even_batches"} else None


def _sharing(settings: Settings) -> Settings:
    config = settings.get("accelerator_config")
    return config if isinstance(config, Mapping) else {}


def _judge_sample_weights(saved: Settings, current: Settings) -> Outcome | None:
    is_weighted = _either_uses(saved, current, "train_sampling_strategy", ("weighted",))
    return None if is_weighted else _NO_EFFECT


def _judge_data_seed(saved: Settings, current: Settings) -> Outcome | None:
    seeds = [
        settings.get("data_seed") if settings.get("data_seed") is not None else settings.get("seed")
        for settings in (saved, current)
    ]
    return _NO_EFFECT if seeds[0] == seeds[1] else None


def _judge_epochs(saved: Settings, current: Settings) -> Outcome | None:
    return _NO_EFFECT if (current.get("max_steps") or 0) > 0 else None


def _judge_rate(saved: Settings, current: Settings) -> Outcome | None:
    if _uses(current, "lr_scheduler_type", FOLLOWS_METRIC):
        return "refused", "the rate is part of the state of a schedule that follows a metric"
    return None


def _judge_schedule(saved: Settings, current: Settings) -> Outcome | None:
    if _either_uses(saved, current, "lr_scheduler_type", FOLLOWS_METRIC):
        return "refused", "the state of a schedule that follows a metric does not fit a curve"
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
    return None if shapes[0] == shapes[1] else ("refused", f"parameters move to another group: {_STATE}")


def _judge_evaluations(saved: Settings, current: Settings) -> Outcome | None:
    if _uses(current, "lr_scheduler_type", FOLLOWS_METRIC):
        return "applied", "the schedule moves with these evaluations"
    return None


def _judge_weighting(saved: Settings, current: Settings) -> Outcome | None:
    # checkpoints of earlier versions hold the former name of "batches"
    was_default = _uses(saved, "loss_weighting", ("default",))
    return _NO_EFFECT if was_default and _uses(current, "loss_weighting", ("batches",)) else None


# Settings whose outcome depends on others; a function that returns None leaves it to the tables above.
SPECIAL: dict[str, Callable[[Settings, Settings], Outcome | None]] = {
    PROCESSES: _judge_processes,
    "per_device_train_batch_size": _judge_batch,
    "accelerator_config": _judge_sharing,
    "length_column_name": _judge_grouping,
    "sample_weights": _judge_sample_weights,
    "data_seed": _judge_data_seed,
    "num_train_epochs": _judge_epochs,
    "learning_rate": _judge_rate,
    "lr_scheduler_type": _judge_schedule,
    "lr_scheduler_kwargs": _judge_schedule,
    "optim": _judge_optimizer,
    "loss_weighting": _judge_weighting,
    "param_groups": _judge_groups,
    "eval_strategy": _judge_evaluations,
    "eval_steps": _judge_evaluations,
    "eval_delay": _judge_evaluations,
}
