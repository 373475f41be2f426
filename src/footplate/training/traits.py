"""What a model or a method accepts, read from its signature."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from torch import nn

from footplate.wrappers import bare_model

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def find_label_names(model: nn.Module) -> list[str]:
    """The parameters of forward that are labels: those with "label" in their name, and answer positions."""
    bare = bare_model(model)
    parameters = inspect.signature(type(bare).forward).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind not in _VARIADIC]
    labels = [name for name in names if "label" in name]
    positions = [name for name in names if name in ("start_positions", "end_positions")]
    if "QuestionAnswering" in type(bare).__name__:
        return [name for name in names if name in labels or name in positions]
    return labels or positions


def can_return_loss(model: nn.Module) -> bool:
    """Whether forward gives a loss without labels, as models with `return_loss=True` do."""
    parameter = inspect.signature(type(bare_model(model)).forward).parameters.get("return_loss")
    return parameter is not None and parameter.default is True


def main_input_name(model: nn.Module) -> str:
    """The entry of a batch that is the model's main input."""
    return str(getattr(model, "main_input_name", "input_ids"))


def accepts_loss_kwargs(model: nn.Module) -> bool:
    """Whether `num_items_in_batch` may be handed to forward."""
    bare = bare_model(model)
    declared = getattr(bare, "accepts_loss_kwargs", None)
    if declared is not None:
        return bool(declared)
    parameters = inspect.signature(bare.forward).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def leaves_num_items_unused(model: nn.Module) -> bool:
    """Whether forward takes the item count and seems to ignore it: a guess, used only for a notice."""
    code = getattr(inspect.unwrap(type(bare_model(model)).forward), "__code__", None)
    if code is None or not accepts_loss_kwargs(model):
        return False
    mentioned = {*code.co_names, *code.co_varnames, *map(str, code.co_consts)}
    return not mentioned & {"loss_function", "num_items_in_batch"}


def loss_shifts_labels(model: nn.Module) -> bool:
    """Whether the model's own loss drops the first label of each row, as decoder-only language models do."""
    bare = bare_model(model)
    declared = getattr(bare, "loss_shifts_labels", None)
    if declared is not None:
        return bool(declared)
    losses = sys.modules.get("transformers.loss.loss_utils")
    if losses is None or getattr(getattr(bare, "config", None), "is_encoder_decoder", False):
        return False
    return losses.LOSS_MAPPING.get(getattr(bare, "loss_type", None)) is losses.ForCausalLMLoss


def items_are_shifted(model: nn.Module, has_own_loss: bool) -> bool:
    """Whether the loss that is computed leaves out the first label of each row."""
    declared = getattr(bare_model(model), "loss_shifts_labels", None)
    if declared is not None or has_own_loss:
        return bool(declared)
    return loss_shifts_labels(model) or is_causal_lm(model)


def is_causal_lm(model: nn.Module) -> bool:
    """Whether label smoothing must shift the labels itself."""
    return _is_listed(bare_model(model), "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")


def has_no_head(model: nn.Module) -> bool:
    """Whether this is a transformers model without a head, which returns hidden states and no loss."""
    return _is_listed(model, "MODEL_MAPPING_NAMES")


def _is_listed(model: nn.Module, mapping: str) -> bool:
    """Whether transformers lists the model's class in a mapping of its automatic classes."""
    auto = sys.modules.get("transformers.models.auto.modeling_auto")  # never import it for this
    return auto is not None and type(model).__name__ in getattr(auto, mapping).values()


class Accepts(NamedTuple):
    """What a callable takes: the names of its parameters, None for any, and how many by position."""

    names: frozenset[str] | None
    num_positional: float


def read_signature(method: Callable[..., Any]) -> Accepts:
    """What a caller may pass to `method`: without `self` if it is bound to an object."""
    if not isinstance(method, (FunctionType, MethodType)) and isinstance(type(method).__call__, FunctionType):
        method = MethodType(type(method).__call__, method)  # the object may have no hash for the cache
    function = getattr(method, "__func__", method)
    if not isinstance(function, FunctionType):
        return _read_function(function)
    is_bound = getattr(method, "__self__", None) is not None
    return _read_function_cached(function, is_bound)


def _read_function(function: Callable[..., Any], is_bound: bool = False) -> Accepts:
    parameters = inspect.signature(function).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    takes_any_name = inspect.Parameter.VAR_KEYWORD in kinds
    takes_any_number = inspect.Parameter.VAR_POSITIONAL in kinds
    num_positional = sum(kind in _BY_POSITION for kind in kinds) - is_bound
    return Accepts(
        None if takes_any_name else frozenset(parameter.name for parameter in parameters),
        float("inf") if takes_any_number else num_positional,
    )


_read_function_cached = lru_cache(maxsize=256)(_read_function)


def call_with_declared(method: Callable[..., Any], **values: Any) -> Any:
    """Call `method` with only the values that its signature names, so that older overrides work."""
    names = read_signature(method).names
    if names is not None and not names >= values.keys():
        values = {name: value for name, value in values.items() if name in names}
    return method(**values)


def declares(method: Callable[..., Any], name: str) -> bool:
    """Whether a method takes a parameter of this name."""
    function = method.__func__ if type(method) is MethodType else None
    is_plain = type(function) is FunctionType  # a short way for the joints, which are asked in every batch
    names = (_read_function_cached(function, True) if is_plain else read_signature(method)).names
    return names is None or name in names


def is_ours(joint: Callable[..., Any]) -> bool:
    """Whether a method is footplate's own, and no override in a user's class.

    A wrapper around one of ours has its name by `functools.wraps`, and is told by where it was written.
    """
    home = getattr(getattr(joint, "__func__", joint), "__globals__", None)
    names = [getattr(joint, "__module__", "")]
    if hasattr(joint, "__wrapped__") and home is not None:
        names.append(home.get("__name__"))
    return all(str(name).startswith("footplate.") for name in names)


def number_of_arguments(function: Callable[..., Any]) -> int:
    """How many parameters a function takes, without those that a partial has set."""
    if isinstance(function, functools.partial):
        taken = len(function.args) + len(function.keywords)
        return len(inspect.signature(function.func).parameters) - taken
    return len(inspect.signature(function).parameters)


def get_model_param_count(model: nn.Module, trainable_only: bool = False) -> int:
    """How many parameters a model has, or how many of them are trainable."""
    return sum(value.numel() for value in model.parameters() if value.requires_grad or not trainable_only)


def takes_positional(method: Callable[..., Any], count: int) -> bool:
    """Whether a method can be called with `count` arguments by position."""
    return read_signature(method).num_positional >= count


def call_positional(method: Callable[..., Any], *values: Any) -> Any:
    """Call `method` with as many of the values as it takes."""
    count = int(min(read_signature(method).num_positional, len(values)))
    return method(*values[:count])


def count_flos_parameters(model: nn.Module) -> int:
    """Parameters that cost operations per token; 0 if the model cannot count them."""
    count = getattr(model, "num_parameters", None)
    return int(count(exclude_embeddings=True)) if callable(count) else 0
