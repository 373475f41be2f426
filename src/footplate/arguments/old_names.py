"""Every argument name of the 4.x line that is gone since, and what it means today: one table."""

from __future__ import annotations

import inspect
import json
import logging
import math
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.arguments.export import mask
from footplate.arguments.suggest import did_you_mean

logger = logging.getLogger(__name__)
noticed: set[str] = set()


@dataclass(frozen=True)
class OldName:
    """One name of the past: where it went, its default then, its type, and how to write and read it today."""

    becomes: str | None  # today's argument; None where nothing is left of it
    default: Any
    hint: Any
    write: Callable[
        [Any, Mapping[str, Any]], dict[str, Any]
    ]  # its value, what else is given -> today's arguments
    read: Callable[[Any], Any]  # today's arguments -> its value
    is_whole: bool = False  # it says all there is to say of `becomes`: both may be given only if they agree
    reason: str = ""


def renamed(new: str, hint: Any = str, default: Any = None) -> OldName:
    """The same value under a new name."""
    return OldName(
        new,
        default,
        hint,
        write=lambda value, given: {} if value is None else {new: value},
        read=lambda args: getattr(args, new),
        is_whole=True,
    )


def switched(new: str, choice: str) -> OldName:
    """A switch of its own that is now one choice of another setting."""
    return OldName(
        new,
        False,
        bool,
        write=lambda value, given: {new: choice} if value else {},
        read=lambda args: getattr(args, new) == choice,
        is_whole=True,
    )


def listed(new: str, item: str) -> OldName:
    """A switch of its own that is now one item of a list."""

    def write(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        present = given.get(new) or []
        present = present.split() if isinstance(present, str) else list(present)
        return {new: [*present, item]} if value and item not in present else {}

    return OldName(new, False, bool, write, read=lambda args: item in getattr(args, new))


def nested(new: str, key: str, hint: Any, default: Any = None) -> OldName:
    """A setting of its own that is now an entry of a configuration."""

    def write(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {} if value in (None, default) else {new: {**as_dict(given.get(new)), key: value}}

    return OldName(new, default, hint, write, read=lambda args: as_dict(getattr(args, new)).get(key, default))


def retired(default: Any, reason: str, hint: Any = str) -> OldName:
    """A name that is accepted and remembered, and does nothing."""
    return OldName(None, default, hint, lambda value, given: {}, lambda args: default, reason=reason)


def as_dict(config: Any) -> dict[str, Any]:
    """A configuration given as nothing, a dictionary, an object, JSON text or a JSON file."""
    if isinstance(config, str):
        text = config if config.lstrip().startswith("{") else Path(config).read_text(encoding="utf-8")
        config = json.loads(text)
    return dict(config.to_dict() if hasattr(config, "to_dict") else config or {})


def as_share(ratio: float) -> float:
    """A warm-up ratio as `warmup_steps` takes it: 1.0 would mean one update there, so it stays just below."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"warmup_ratio={ratio!r} is no share of the run. Give a number from 0 to 1.")
    return min(ratio, math.nextafter(1.0, 0.0))


def write_warmup_ratio(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """A ratio counts only where no number of steps is given, as it always did."""
    return {} if not value or given.get("warmup_steps") else {"warmup_steps": as_share(value)}


def write_organization(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """An organization goes in front of the model's name, which is the folder's unless given."""
    model = given.get("hub_model_id") or Path(given.get("output_dir") or "trainer_output").name
    return {"hub_model_id": f"{value}/{str(model).split('/')[-1]}"} if value else {}


def read_organization(args: Any) -> str | None:
    """What stands before the slash of the model's name."""
    owner, slash, _ = (args.hub_model_id or "").partition("/")
    return owner if slash else None


PRECISION = "torch's own mixed precision is used; choose it with bf16 or fp16"
TPU = "training on a TPU is not supported"
OLD_NAMES: dict[str, OldName] = {
    "adafactor": switched("optim", "adafactor"),
    "dispatch_batches": nested("accelerator_config", "dispatch_batches", bool),
    "evaluate_during_training": switched("eval_strategy", "steps"),
    "evaluation_strategy": renamed("eval_strategy"),
    "fp16_backend": retired("auto", PRECISION),
    "fp16_opt_level": retired("O1", PRECISION),
    "fsdp_min_num_params": nested("fsdp_config", "min_num_params", int, default=0),
    "fsdp_transformer_layer_cls_to_wrap": nested("fsdp_config", "transformer_layer_cls_to_wrap", str),
    "group_by_length": switched("train_sampling_strategy", "group_by_length"),
    "half_precision_backend": retired("auto", PRECISION),
    "include_inputs_for_metrics": listed("include_for_metrics", "inputs"),
    "include_tokens_per_second": switched("include_num_input_tokens_seen", "all"),
    "jit_mode_eval": retired(False, "evaluation runs the model as it is; see torch_compile", bool),
    "label_smoothing": renamed("label_smoothing_factor", float),
    "lr_scheduler": renamed("lr_scheduler_type"),
    "model_parallel": retired(False, "place the layers with device_map when the model is loaded", bool),
    "mp_parameters": retired("", "SageMaker's model parallelism is not supported"),
    "no_cuda": renamed("use_cpu", bool, default=False),
    "overwrite_output_dir": retired(
        False, "nothing in output_dir is deleted; scripts may still read it", bool
    ),
    "past_index": retired(-1, "hidden states are not carried from batch to batch", int),
    "per_gpu_eval_batch_size": renamed("per_device_eval_batch_size", int),
    "per_gpu_train_batch_size": renamed("per_device_train_batch_size", int),
    "push_to_hub_model_id": renamed("hub_model_id"),
    "push_to_hub_organization": OldName("hub_model_id", None, str, write_organization, read_organization),
    "push_to_hub_token": renamed("hub_token"),
    "ray_scope": retired("last", "a search with Ray takes `scope` among its own arguments"),
    "save_safetensors": retired(True, "weights are always saved as safetensors", bool),
    "sharded_ddp": retired("", "FairScale's sharding is gone; see fsdp"),
    "split_batches": nested("accelerator_config", "split_batches", bool, default=False),
    "torchdynamo": renamed("torch_compile_backend"),
    "tpu_metrics_debug": listed("debug", "tpu_metrics_debug"),
    "tpu_num_cores": retired(None, TPU, int),
    "use_ipex": retired(False, "its optimizations have moved into torch", bool),
    "use_legacy_prediction_loop": retired(
        False, "there is one evaluation loop; prediction_loop forwards to it", bool
    ),
    "use_mps_device": retired(False, "an Apple GPU is used where there is one", bool),
    "warmup_ratio": OldName(
        "warmup_steps",
        0.0,
        float,
        write_warmup_ratio,
        read=lambda args: args.warmup_steps if args.warmup_steps < 1 else 0.0,
    ),
    "xpu_backend": renamed("ddp_backend"),
}


def notice(name: str) -> None:
    """Say once per process what becomes of an old name."""
    if name in noticed:
        return
    noticed.add(name)
    old = OLD_NAMES[name]
    if old.becomes is None:
        logger.warning("The argument %s has no effect any more: %s.", name, old.reason)
    else:
        logger.warning("The argument %s is an older name and taken as %s.", name, old.becomes)


def old_names_of(cls: type) -> set[str]:
    """The old names that `cls` understands: all but those it has as fields of its own."""
    return OLD_NAMES.keys() - find_parameters(cls) if isinstance(cls, TranslatesOldNames) else set()


@cache
def find_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """What the constructor of `cls` takes."""
    parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return dict(list(parameters.items())[1:])  # without self


def translate(given: Mapping[str, Any], understood: Iterable[str]) -> dict[str, Any]:
    """The arguments in today's names; contradictions raise."""
    names = sorted(set(given) & set(understood))
    arguments = {name: value for name, value in given.items() if name not in names}
    for name in names:
        notice(name)
        old = OLD_NAMES[name]
        if given[name] in (old.default, mask(name)):
            continue  # says nothing: a full dump of old settings holds all names, with tokens masked
        for new, value in old.write(given[name], arguments).items():
            if old.is_whole and new in arguments and arguments[new] != value:
                raise ValueError(
                    f"{name}={given[name]!r} and {new}={arguments[new]!r} contradict each other: "
                    f"{name} is an older name of {new}. Keep {new} alone."
                )
            arguments[new] = value
    return arguments


def check_known(cls: type, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that `cls` neither has nor had, and say which were probably meant."""
    unknown = [f"{name!r}.{did_you_mean(name, known)}" for name in given if name not in known]
    if unknown:
        raise TypeError(f"{cls.__name__} has no argument {' Nor '.join(unknown)}")


class TranslatesOldNames(ABCMeta):
    """Makes a class take old keyword names; of ABCMeta, so that users may mix in abstract classes."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        parameters = find_parameters(cls)
        if not kwargs.keys() - parameters:
            return super().__call__(*args, **kwargs)
        old = old_names_of(cls)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            check_known(cls, kwargs, parameters.keys() | old)
        named = dict(zip(parameters, args, strict=False)) if len(args) <= len(parameters) else {}
        if named.keys() & kwargs.keys():
            return super().__call__(*args, **kwargs)  # raises: given by position and by name
        instance = super().__call__(**translate(named | kwargs, old))
        for name in old & kwargs.keys():
            if OLD_NAMES[name].becomes is None:
                vars(instance)[name] = kwargs[name]
        return instance


class OldNamesAccepted(metaclass=TranslatesOldNames):
    """A base whose subclasses understand old names: as keywords, and as attributes to read or set."""

    if not TYPE_CHECKING:  # a type checker would take every attribute for a known one

        def __getattr__(self, name: str) -> Any:
            if name not in OLD_NAMES:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            return OLD_NAMES[name].read(self)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in OLD_NAMES and name not in find_parameters(type(self)):
                assign(self, name, value)
            else:
                object.__setattr__(self, name, value)


def assign(args: Any, name: str, value: Any) -> None:
    """Set an old name on settings that exist already."""
    notice(name)
    old = OLD_NAMES[name]
    if old.becomes is None:
        vars(args)[name] = value
    elif old.read(args) != value:
        changes = old.write(value, vars(args))
        if not changes:
            raise ValueError(
                f"{name}={value!r} cannot be set on existing settings. Set {old.becomes} instead."
            )
        for new, changed in changes.items():
            setattr(args, new, changed)
