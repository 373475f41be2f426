"""Read single values of `fsdp_config`: each function checks one setting, or a few that belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from footplate.arguments.notices import warn_once
from footplate.arguments.suggest import check_word
from footplate.arguments.texts import str_to_bool

# what the strategies of version 1 mean: (free gathered weights after forward, hybrid)
STRATEGIES = {
    "full_shard": (True, False),
    "shard_grad_op": (False, False),
    "hybrid_shard": (True, True),
    "hybrid_shard_zero2": (False, True),
}
_NUMBERED = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
_POLICIES = ("transformer_based_wrap", "size_based_wrap", "no_wrap")
_STATE_DICT_TYPES = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
_DTYPES = {"bf16": "bfloat16", "fp32": "float32", "bfloat16": "bfloat16", "float32": "float32"}
_PRECISION = ("param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs")


def read_sharding(values: Mapping[str, Any]) -> tuple[bool | int, bool]:
    """Whether gathered weights are freed after forward, and whether sharding is hybrid."""
    reshard, is_hybrid = True, False
    if "sharding_strategy" in values:
        reshard, is_hybrid = _read_strategy("sharding_strategy", values["sharding_strategy"])
    given = values.get("reshard_after_forward")
    if given is None:
        return reshard, is_hybrid
    if isinstance(given, int) and not isinstance(given, bool) and given > 1:
        return given, is_hybrid  # weights stay in parts of this many
    try:
        return str_to_bool(str(given)) == 1, is_hybrid
    except ValueError:  # a strategy of version 1
        reshard, names_hybrid = _read_strategy("reshard_after_forward", given)
        return reshard, is_hybrid or names_hybrid


def _read_strategy(setting: str, value: Any) -> tuple[bool, bool]:
    """What a strategy of version 1 means; it may be a name or a number from 1."""
    word = str(getattr(value, "name", value)).lower()
    if word.isdigit() and 1 <= int(word) <= len(_NUMBERED):
        word = _NUMBERED[int(word) - 1]
    if word == "no_shard":
        raise ValueError(
            f"fsdp_config has {setting}={value!r}, which keeps whole weights on every process, as DDP does. "
            "Leave fsdp unset."
        )
    check_word(f"fsdp_config: {setting}", word, STRATEGIES)
    return STRATEGIES[word]


def read_wrapping(values: Mapping[str, Any]) -> tuple[str, tuple[str, ...], int]:
    """Which parts are sharded one by one: how they are chosen, their classes, their least size."""
    names = values.get("transformer_layer_cls_to_wrap") or ()
    parts = re.split(r"[\s,]+", names) if isinstance(names, str) else names
    classes = tuple(str(part) for part in parts if part)
    least = values.get("min_num_params") or 0
    min_num_params = read_number("min_num_params", least) if float(least) else 0
    policy = str(values.get("auto_wrap_policy") or "").lower()
    if not policy:
        if classes and min_num_params:
            raise ValueError(
                "fsdp_config has transformer_layer_cls_to_wrap and min_num_params. Keep one of them, or "
                "choose by auto_wrap_policy."
            )
        policy = "size_based_wrap" if min_num_params else "transformer_based_wrap"
    check_word("fsdp_config: auto_wrap_policy", policy, _POLICIES)
    if policy == "no_wrap":
        return "none", (), 0
    if policy == "transformer_based_wrap":
        return ("classes" if classes else "auto"), classes, 0
    if not min_num_params:
        raise ValueError(
            "fsdp_config has auto_wrap_policy='SIZE_BASED_WRAP'. Set min_num_params to a number too."
        )
    return "size", (), min_num_params


def read_precision(policy: Any) -> dict[str, Any] | None:
    """The arguments of torch's policy, with dtypes by their torch names."""
    if policy is None:
        return None
    if isinstance(policy, str):
        policy = {"param_dtype": policy, "reduce_dtype": policy}
    elif not isinstance(policy, Mapping):
        policy = {name: getattr(policy, name, None) for name in _PRECISION}
    planned: dict[str, Any] = {}
    for name, value in policy.items():
        if name == "buffer_dtype":
            warn_once("fsdp_config: buffer_dtype has no effect in version 2 of FSDP.")
            continue
        check_word("fsdp_config: a key of mixed_precision_policy", name, _PRECISION)
        if value is not None:
            is_switch = name == "cast_forward_inputs"
            planned[name] = str_to_bool(str(value)) == 1 if is_switch else _read_dtype(name, value)
    return planned


def _read_dtype(name: str, value: Any) -> str:
    word = str(value).removeprefix("torch.")
    check_word(f"fsdp_config: {name}", word, _DTYPES)
    return _DTYPES[word]


def read_state_dict_type(value: Any) -> str | None:
    """How checkpoints hold the weights; None if the settings do not say."""
    if value is None:
        return None
    word = str(getattr(value, "name", value)).upper()
    check_word("fsdp_config: state_dict_type", word, _STATE_DICT_TYPES)
    return word


def read_switch(values: Mapping[str, Any], name: str) -> bool:
    """A truth value, also as text."""
    value = values.get(name, False)
    try:
        return str_to_bool(str(value)) == 1
    except ValueError as error:
        raise ValueError(f"fsdp_config has {name}={value!r}. Set it to true or false.") from error


def read_number(name: str, value: Any) -> int:
    """A whole number from 1, also as text such as "1e8"."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if number < 1 or number != int(number):
        raise ValueError(f"fsdp_config has {name}={value!r}. Set it to a whole number from 1.")
    return int(number)
