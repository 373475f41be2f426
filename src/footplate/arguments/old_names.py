"""One table of all older argument names, of transformers 4.x and of footplate, with their current meaning."""

from __future__ import annotations

import inspect
import json
import math
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.arguments.export import mask
from footplate.arguments.notices import warn_once
from footplate.arguments.suggest import did_you_mean


@dataclass(frozen=True)
class OldName:
    """One older name: the argument that replaces it, its default and type, and how to set and read it."""

    becomes: str | None  # the current argument; None if there is none
    default: Any
    hint: Any
    write: Callable[[Any, Mapping[str, Any]], dict[str, Any]]  # value, other arguments -> current arguments
    read: Callable[[Any], Any]  # current arguments -> its value
    is_whole: bool = False  # means the same as `becomes`: if both are given, they must be equal
    reason: str = ""  # why it has no effect, if `becomes` is None; empty if it has


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
    """A former switch that is now one choice of another setting."""
    return OldName(
        new,
        False,
        bool,
        write=lambda value, given: {new: choice} if value else {},
        read=lambda args: getattr(args, new) == choice,
        is_whole=True,
    )


def listed(new: str, item: str) -> OldName:
    """A former switch that is now one item of a list."""

    def write(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        present = given.get(new) or []
        present = present.split() if isinstance(present, str) else list(present)
        return {new: [*present, item]} if value and item not in present else {}

    return OldName(new, False, bool, write, read=lambda args: item in getattr(args, new))


def nested(new: str, key: str, hint: Any, default: Any = None) -> OldName:
    """A former setting that is now an entry of a configuration."""

    def write(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        if value in (None, default):
            return {}
        config: Any = given.get(new)
        if is_dataclass(config):
            return {new: replace(config, **{key: value})}  # type: ignore[type-var]
        return {new: as_dict(config) | {key: value}}

    return OldName(new, default, hint, write, read=lambda args: as_dict(getattr(args, new)).get(key, default))


def retired(default: Any, reason: str, hint: Any = str) -> OldName:
    """A name that is accepted and stored without effect."""
    return OldName(None, default, hint, lambda value, given: {}, lambda args: default, reason=reason)


def kept(default: Any, hint: Any) -> OldName:
    """A name of 4.x that still has its effect, and no field of its own, as in 5.x."""
    return OldName(None, default, hint, lambda value, given: {}, lambda args: default)


def as_dict(config: Any) -> dict[str, Any]:
    """A configuration given as nothing, a dictionary, an object, JSON text or a JSON file."""
    if isinstance(config, str):
        text = config if config.lstrip().startswith("{") else Path(config).read_text(encoding="utf-8")
        config = json.loads(text)
    return dict(config.to_dict() if hasattr(config, "to_dict") else config or {})


def as_share(ratio: float) -> float:
    """A warm-up ratio as a value of `warmup_steps`, where 1 means one update: 1.0 becomes a little less."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"warmup_ratio={ratio!r} is not a share of the run. Give a number from 0 to 1.")
    return min(ratio, math.nextafter(1.0, 0.0))


def write_warmup_ratio(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Use a ratio only if no number of steps is given, as in 4.x."""
    return {} if not value or given.get("warmup_steps") else {"warmup_steps": as_share(value)}


def read_warmup_ratio(args: Any) -> float:
    """`warmup_steps` if it is a share of the run, else 0."""
    return float(args.warmup_steps) if args.warmup_steps < 1 else 0.0


def write_organization(value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Put the organization before the model's name, which defaults to the name of the folder."""
    model = given.get("hub_model_id") or Path(given.get("output_dir") or "trainer_output").name
    return {"hub_model_id": f"{value}/{str(model).split('/')[-1]}"} if value else {}


def read_organization(args: Any) -> str | None:
    """The part of the model's name before the slash."""
    owner, slash, _ = (args.hub_model_id or "").partition("/")
    return owner if slash else None


PRECISION = "torch's own mixed precision is used; choose it with bf16 or fp16"
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
    "jit_mode_eval": kept(False, bool),
    "label_smoothing": renamed("label_smoothing_factor", float),
    "lr_scheduler": renamed("lr_scheduler_type"),
    "model_parallel": retired(False, "place the layers with device_map when the model is loaded", bool),
    "mp_parameters": retired("", "SageMaker's model parallelism is not supported"),
    "no_cuda": renamed("use_cpu", bool, default=False),
    "overwrite_output_dir": kept(False, bool),
    "past_index": retired(-1, "hidden states are not carried from batch to batch", int),
    "per_gpu_eval_batch_size": renamed("per_device_eval_batch_size", int),
    "per_gpu_train_batch_size": renamed("per_device_train_batch_size", int),
    "push_to_hub_model_id": renamed("hub_model_id"),
    "push_to_hub_organization": OldName("hub_model_id", None, str, write_organization, read_organization),
    "push_to_hub_token": renamed("hub_token"),
    "ray_scope": retired("last", "a search with Ray takes `scope` among its own arguments"),
    "save_safetensors": retired(True, "weights are always saved as safetensors", bool),
    "sharded_ddp": retired("", "FairScale's sharding is not supported"),
    "split_batches": nested("accelerator_config", "split_batches", bool, default=False),
    "torchdynamo": renamed("torch_compile_backend"),
    "tpu_metrics_debug": listed("debug", "tpu_metrics_debug"),
    "tpu_num_cores": retired(None, "training on a TPU is not supported", int),
    "train_metrics": renamed("train_metrics_batches", int, default=0),
    "use_ipex": retired(False, "its optimizations have moved into torch", bool),
    "use_legacy_prediction_loop": retired(False, "there is one evaluation loop", bool),
    "use_mps_device": retired(False, "an Apple GPU is used where there is one", bool),
    "warmup_ratio": OldName("warmup_steps", 0.0, float, write_warmup_ratio, read_warmup_ratio),
    "xpu_backend": renamed("ddp_backend"),
}


def notice(name: str) -> None:
    """Warn once per process what an old name means now."""
    old = OLD_NAMES[name]
    if old.becomes is None and old.reason:
        warn_once(f"The argument {name} has no effect: {old.reason}.")
    elif old.becomes is not None:
        warn_once(f"The argument {name} is an older name and taken as {old.becomes}.")


def old_names_of(cls: type) -> set[str]:
    """The old names that `cls` takes: all but those that it uses for fields of its own."""
    return OLD_NAMES.keys() - find_parameters(cls) if isinstance(cls, TranslatesOldNames) else set()


@cache
def find_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The parameters of the constructor of `cls`."""
    parameters = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    return dict(list(parameters.items())[1:])  # without self


def translate(given: Mapping[str, Any], understood: Iterable[str]) -> dict[str, Any]:
    """The arguments under their current names; an old and a new name that contradict each other raise."""
    names = sorted(set(given) & set(understood))
    arguments = {name: value for name, value in given.items() if name not in names}
    for name in names:
        notice(name)
        old = OLD_NAMES[name]
        if given[name] in (old.default, mask(name)):
            continue  # a full dump of old settings holds every name, with its default or a masked token
        for new, value in old.write(given[name], arguments).items():
            if old.is_whole and new in arguments and arguments[new] != value:
                raise ValueError(
                    f"{name}={given[name]!r} and {new}={arguments[new]!r} contradict each other: "
                    f"{name} is an older name of {new}. Keep only {new}."
                )
            arguments[new] = value
    return arguments


def check_known(cls: type, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that `cls` does not know, and suggest similar ones."""
    unknown = [f"{name!r}.{did_you_mean(name, known)}" for name in given if name not in known]
    if unknown:
        raise TypeError(f"{cls.__name__} has no argument {' It also has no argument '.join(unknown)}")


class TranslatesOldNames(ABCMeta):
    """Lets a class accept old keyword names; an ABCMeta, so that abstract classes can be mixed in."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The parameters of the constructor under their current names: tools filter settings by them."""
        return inspect.Signature(list(find_parameters(cls).values()))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        parameters = find_parameters(cls)
        if not kwargs.keys() - parameters:
            return super().__call__(*args, **kwargs)
        old = old_names_of(cls)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            check_known(cls, kwargs, parameters.keys() | old)
        named = dict(zip(parameters, args, strict=False)) if len(args) <= len(parameters) else {}
        if named.keys() & kwargs.keys():
            return super().__call__(*args, **kwargs)  # raises: an argument is given by position and by name
        instance = super().__call__(**translate(named | kwargs, old))
        for name in old & kwargs.keys():
            if OLD_NAMES[name].becomes is None:
                vars(instance)[name] = kwargs[name]
        return instance


class OldNamesAccepted(metaclass=TranslatesOldNames):
    """Lets subclasses accept old names as keywords and as attributes."""

    if not TYPE_CHECKING:  # else a type checker would accept any attribute

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
    """Set an old name on existing settings."""
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
