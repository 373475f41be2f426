"""What `fsdp` and `fsdp_config` mean: names of both versions of FSDP, read once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from footplate.arguments.fsdp_values import (
    STRATEGIES,
    read_number,
    read_precision,
    read_sharding,
    read_state_dict_type,
    read_switch,
    read_wrapping,
)
from footplate.arguments.notices import warn_once
from footplate.arguments.suggest import check_word, did_you_mean
from footplate.arguments.texts import str_to_bool
from footplate.disk import parse_json, read_json

if TYPE_CHECKING:
    from footplate.arguments.fields import TrainingArguments

_PARALLEL_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
_WORDS = (*STRATEGIES, "offload", "auto_wrap")

_SYNONYMS = {
    "offload_params": "cpu_offload",
    "transformer_cls_names_to_wrap": "transformer_layer_cls_to_wrap",
    "transformer_cls_to_wrap": "transformer_layer_cls_to_wrap",
    "num_shards": "shard_size",
}
_KNOWN = (
    "version",
    "sharding_strategy",
    "reshard_after_forward",
    "auto_wrap_policy",
    "transformer_layer_cls_to_wrap",
    "min_num_params",
    "shard_size",
    "cpu_offload",
    "activation_checkpointing",
    "mixed_precision_policy",
    "state_dict_type",
    "cpu_ram_efficient_loading",
)
# names that version 2 has no use for, with the value that is what it does
_OBSOLETE: dict[str, Any] = {
    "use_orig_params": True,
    "sync_module_states": True,
    "limit_all_gathers": True,
    "backward_prefetch": "backward_pre",
    "forward_prefetch": False,
    "state_dict_config": None,
    "optim_state_dict_config": None,
    "xla_fsdp_v2": False,
    "xla_fsdp_settings": None,
    "xla_fsdp_grad_ckpt": False,
}
_REFUSED = {
    "xla": "footplate does not train on TPUs",
    "ignored_modules": "all parts of the model are sharded",
    "param_init_fn": "weights come from the first process",
    "activation_checkpointing_offload": "activations are computed again or kept, and not moved",
}
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class FsdpSettings:
    """How a model is sharded.

    Args:
        wrap: Which parts are sharded one by one: "auto", "classes", "size" or "none".
        layer_classes: Names of classes, with "classes".
        min_num_params: The fewest parameters of a part, with "size".
        reshard_after_forward: Free gathered weights after forward and gather them again in backward.
        is_hybrid: Shard within groups of processes, each of which holds a whole copy.
        shard_size: Processes in a group; None for those of one machine.
        cpu_offload: Keep weights, gradients and optimizer state in host memory.
        activation_checkpointing: Compute activations again in backward.
        mixed_precision_policy: Arguments of torch's `MixedPrecisionPolicy`; dtypes by their torch names.
        state_dict_type: "FULL_STATE_DICT" or "SHARDED_STATE_DICT"; None if the settings do not say.
        cpu_ram_efficient_loading: Load pretrained weights on the first process only.
    """

    wrap: str = "auto"
    layer_classes: tuple[str, ...] = ()
    min_num_params: int = 0
    reshard_after_forward: bool | int = True
    is_hybrid: bool = False
    shard_size: int | None = None
    cpu_offload: bool = False
    activation_checkpointing: bool = False
    mixed_precision_policy: dict[str, Any] | None = None
    state_dict_type: str | None = None
    cpu_ram_efficient_loading: bool = False


def plan_sharding(args: TrainingArguments) -> FsdpSettings | None:
    """How the settings, or the launcher, ask for the model to be sharded; None for whole copies."""
    settings = read_fsdp(args.fsdp, args.fsdp_config) or read_fsdp_environment()
    if settings is not None:
        _warn_of_no_effect(settings, args.save_full_model)
    config = args.parallelism_config
    if config is None:
        return settings
    sizes = {name: getattr(config, name, 1) or 1 for name in _PARALLEL_SIZES}
    for name in _PARALLEL_SIZES[2:]:
        if sizes[name] > 1:
            raise NotImplementedError(
                f"parallelism_config has {name}={sizes[name]}: footplate shares out data and shards weights, "
                f"and splits neither layers nor sequences. Set {name}=1, and use dp_shard_size or fsdp."
            )
    replicas, shards = sizes["dp_replicate_size"], sizes["dp_shard_size"]
    if replicas * shards != args.world_size:
        raise ValueError(
            f"parallelism_config asks for {replicas} x {shards} processes, and {args.world_size} run. Start "
            "as many as dp_replicate_size x dp_shard_size."
        )
    if shards == 1 and settings is not None:
        raise ValueError(
            "fsdp asks for shards, and parallelism_config for whole copies (dp_shard_size=1). Set "
            "dp_shard_size to the number of shards, or leave fsdp unset."
        )
    if shards == 1:
        return None
    return replace(settings or FsdpSettings(), is_hybrid=replicas > 1, shard_size=shards)


def _warn_of_no_effect(settings: FsdpSettings, saves_whole_model: bool) -> None:
    if settings.state_dict_type == "FULL_STATE_DICT" and not saves_whole_model:
        warn_once(
            "fsdp_config: state_dict_type='FULL_STATE_DICT' has no effect: checkpoints hold shards. Set "
            "save_full_model=True to have the whole model in them too."
        )
    if settings.cpu_ram_efficient_loading and "FSDP_CPU_RAM_EFFICIENT_LOADING" not in os.environ:
        warn_once(
            "fsdp_config: cpu_ram_efficient_loading has no effect: every process loads the model as your "
            "script does. Start by `accelerate launch` with the option of this name to load it on the first."
        )


def read_fsdp(fsdp: Any, fsdp_config: Any = None) -> FsdpSettings | None:
    """The meaning of the two settings; None if the model is not sharded.

    Args:
        fsdp: None, a truth value, or words of version 1 such as "full_shard auto_wrap offload".
        fsdp_config: A dictionary, JSON text, or the path of a JSON file.
    """
    words = _read_words(fsdp)
    if words is None:
        if fsdp_config:
            warn_once("fsdp_config has no effect without fsdp. Set fsdp=True to shard the model.")
        return None
    values = _collect(_read_config(fsdp_config))
    strategies = [word for word in words if word in STRATEGIES]
    if len(set(strategies)) > 1:
        raise ValueError(f"fsdp={fsdp!r} names {' and '.join(strategies)}. Keep one of them.")
    if strategies:
        values.setdefault("sharding_strategy", strategies[0])
    if "offload" in words:
        values.setdefault("cpu_offload", True)
    return _build(values)


def read_fsdp_environment(variables: Mapping[str, str] = os.environ) -> FsdpSettings | None:
    """What `accelerate launch` asks for by its variables; None if it does not ask for FSDP."""
    if not str_to_bool(variables.get("ACCELERATE_USE_FSDP") or "false"):
        return None
    given = {name[5:].lower(): value for name, value in variables.items() if name.startswith("FSDP_")}
    known = {*_KNOWN, *_SYNONYMS, *_OBSOLETE, *_REFUSED}
    unset = ("", "none")
    return _build(
        _collect(
            {name: value for name, value in given.items() if name in known and value.lower() not in unset}
        )
    )


def _read_words(fsdp: Any) -> list[str] | None:
    """The words in `fsdp`, in small letters; None if it is off."""
    if fsdp is None or isinstance(fsdp, bool):
        return [] if fsdp else None
    parts: Iterable[Any] = re.split(r"[\s,]+", fsdp) if isinstance(fsdp, str) else fsdp
    words = [str(getattr(part, "value", part)).lower() for part in parts if part]
    if len(words) == 1 and words[0] in ("true", "false", "none", "1", "0"):
        return [] if words[0] in ("true", "1") else None
    if "no_shard" in words:
        raise ValueError(
            "fsdp='no_shard' keeps whole weights on every process, as DDP does. Leave fsdp unset."
        )
    for word in words:
        check_word("fsdp", word, _WORDS)
    return words or None


def _read_config(config: Any) -> Mapping[str, Any]:
    """The settings as a dictionary, from whatever form they have."""
    if config is None or config == "":
        return {}
    if isinstance(config, Mapping):
        return config
    if isinstance(config, str) and config.lstrip().startswith("{"):
        try:
            values = parse_json(config.encode(), unique_keys=True)
        except ValueError as error:
            raise ValueError(f"fsdp_config={config!r} is not JSON: {error}") from error
        return dict(values)
    if not isinstance(config, (str, os.PathLike)):
        raise ValueError(f"fsdp_config={config!r} is neither a dictionary nor the path of a JSON file.")
    try:
        return read_json(config, _MAX_BYTES)
    except (OSError, ValueError) as error:
        raise ValueError(f"fsdp_config={config!r} cannot be read as a JSON file: {error}") from error


def _collect(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their names in version 2, without those that mean nothing."""
    values: dict[str, Any] = {}
    for given, value in config.items():
        short = str(given).removeprefix("fsdp_")
        name = _SYNONYMS.get(short, short)
        if name in _REFUSED:
            if value and str(value).lower() not in ("false", "none"):
                raise ValueError(f"fsdp_config has {given}={value!r}, and {_REFUSED[name]}. Remove it.")
        elif name in _OBSOLETE:
            if not _is_same(value, _OBSOLETE[name]):
                warn_once(f"fsdp_config: {given}={value!r} has no effect in version 2 of FSDP.")
        elif name not in _KNOWN:
            hint = did_you_mean(short, [*_KNOWN, *_SYNONYMS, *_OBSOLETE])
            raise ValueError(
                f"fsdp_config has {given!r}, which FSDP does not know.{hint} Known are {_KNOWN}."
            )
        elif name in values and values[name] != value:
            raise ValueError(f"fsdp_config has {name} twice: {values[name]!r} and {value!r} as {given!r}.")
        elif value is not None:
            values[name] = value
    return values


def _build(values: dict[str, Any]) -> FsdpSettings:
    """The settings, each checked."""
    _check_version(values.get("version", 2))
    reshard, is_hybrid = read_sharding(values)
    wrap, classes, min_num_params = read_wrapping(values)
    shard_size = read_number("shard_size", values["shard_size"]) if "shard_size" in values else None
    return FsdpSettings(
        wrap=wrap,
        layer_classes=classes,
        min_num_params=min_num_params,
        reshard_after_forward=reshard,
        is_hybrid=is_hybrid or shard_size is not None,
        shard_size=shard_size,
        cpu_offload=read_switch(values, "cpu_offload"),
        activation_checkpointing=read_switch(values, "activation_checkpointing"),
        mixed_precision_policy=read_precision(values.get("mixed_precision_policy")),
        state_dict_type=read_state_dict_type(values.get("state_dict_type")),
        cpu_ram_efficient_loading=read_switch(values, "cpu_ram_efficient_loading"),
    )


def _check_version(version: Any) -> None:
    if str(version) == "1":
        warn_once(
            "fsdp_config asks for version 1 of FSDP. Its settings are applied to version 2, which is used."
        )
    elif str(version) != "2":
        raise ValueError(f"fsdp_config has version={version!r}. Set it to 2, or leave it out.")


def _is_same(value: Any, other: Any) -> bool:
    """Whether two settings mean the same, one of them perhaps as text."""
    return value is None or str(value).lower() == str(other).lower() or (not value and not other)
