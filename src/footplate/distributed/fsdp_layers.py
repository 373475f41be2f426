"""Choose the parts of a model that FSDP shards one by one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from footplate.arguments.fsdp_config import FsdpSettings

logger = logging.getLogger(__name__)

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)  # they have no forward


def choose_layers(model: nn.Module, settings: FsdpSettings) -> list[nn.Module]:
    """The parts to shard one by one, inner parts before outer ones, without the model itself."""
    if settings.wrap == "none":
        return []
    if settings.wrap == "size":
        chosen = _choose_by_size(model, settings.min_num_params)
    elif settings.layer_classes:
        chosen = _choose_by_class(model, settings.layer_classes)
    else:
        chosen = _choose_repeated(model)
    return _leave_out_tied(model, chosen)


def _choose_by_class(model: nn.Module, names: tuple[str, ...]) -> list[tuple[str, nn.Module]]:
    """Every part whose class has one of these names; a name that no part has raises."""
    counts = Counter(type(part).__name__ for part in model.modules())
    absent = [name for name in names if name not in counts]
    if absent:
        raise ValueError(
            f"fsdp_config has transformer_layer_cls_to_wrap={list(names)}, and {type(model).__name__} has no "
            f"part of class {' or '.join(absent)}. It has {', '.join(sorted(counts))}. Name one of these."
        )
    return [(name, part) for name, part in _inner_first(model) if type(part).__name__ in names]


def _choose_by_size(model: nn.Module, min_num_params: int) -> list[tuple[str, nn.Module]]:
    """Every part with at least this many parameters, not counting those of parts chosen inside it."""
    chosen: list[tuple[str, nn.Module]] = []
    taken: set[int] = set()  # parameters of the parts that are chosen already
    for name, part in _inner_first(model):
        own = [parameter for parameter in part.parameters() if id(parameter) not in taken]
        if not isinstance(part, _CONTAINERS) and sum(map(nn.Parameter.numel, own)) >= min_num_params:
            chosen.append((name, part))
            taken.update(map(id, own))
    return chosen


def _choose_repeated(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers that the model itself names as units, else the classes that its lists of layers repeat."""
    bare: Any = model
    named = {name for part in bare.modules() for name in getattr(part, "_no_split_modules", None) or ()}
    chosen = [(name, part) for name, part in _inner_first(model) if type(part).__name__ in named]
    if not chosen:
        repeated = _find_repeated_classes(model)
        chosen = [(name, part) for name, part in _inner_first(model) if type(part) in repeated]
    if not chosen:
        logger.warning(
            "fsdp found no repeated layers in %s, so every forward gathers all of its weights at once. Name "
            "the layers in fsdp_config: transformer_layer_cls_to_wrap, or min_num_params.",
            type(model).__name__,
        )
    return chosen


def _find_repeated_classes(model: nn.Module) -> set[type[nn.Module]]:
    """The classes that one list of layers holds more than once; a single operation is not a layer."""
    classes: set[type[nn.Module]] = set()
    for part in model.modules():
        if isinstance(part, (nn.ModuleList, nn.Sequential)):
            blocks = [block for block in part if any(True for _ in block.children())]
            counts = Counter(type(block) for block in blocks if not isinstance(block, _CONTAINERS))
            classes |= {kind for kind, count in counts.items() if count > 1}
    return classes


def _leave_out_tied(model: nn.Module, chosen: list[tuple[str, nn.Module]]) -> list[nn.Module]:
    """Leave parts to the model whose weights another part uses too: sharded apart, they would come untied."""
    kept = []
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for name, part in chosen:
        inside = Counter(id(parameter) for _, parameter in part.named_parameters(remove_duplicate=False))
        if not inside:
            continue
        if any(uses[key] > count for key, count in inside.items()):
            logger.warning("fsdp shards %s together with the whole model, since it shares weights.", name)
        else:
            kept.append(part)
    return kept


def _inner_first(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every part below the model with its name, inner parts before those that hold them."""
    return ((name, part) for name, part in reversed(list(model.named_modules())) if name)
