"""The parts of a model that FSDP gathers one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


class UnitSize(NamedTuple):
    """The numbers in one part of a model, and those of them that are trained."""

    num_values: int
    num_trained: int


def find_units(model: nn.Module, layer_names: Collection[str] = ()) -> list[nn.Module]:
    """The layers that are sharded one by one; what is outside of them is the root, gathered all the time.

    Args:
        model: The model.
        layer_names: Names of the classes of these layers. Default: those that a model of transformers may not
            split, else the classes that lists of layers repeat.
    """
    parts: list[Any] = list(model.modules())
    names = set(layer_names) or {
        name for part in parts for name in getattr(part, "_no_split_modules", None) or ()
    }
    named = [part for part in parts if type(part).__name__ in names]
    if not named:
        repeated = {kind for part in parts for kind in _repeated_classes(part)}
        named = [part for part in parts if type(part) in repeated]
    return sort_units(model, named)


def sort_units(model: nn.Module, units: Collection[nn.Module]) -> list[nn.Module]:
    """Units in the order of the model, without those that only hold others, and those inside another one."""
    chosen = {id(unit) for unit in units}
    holding = [unit for unit in units if _has_own_weights(unit, chosen)]
    inner = {id(part) for unit in holding for part in unit.modules() if part is not unit}
    kept = {id(unit) for unit in holding} - inner
    return [part for part in model.modules() if id(part) in kept]


def _has_own_weights(unit: nn.Module, chosen: Collection[int]) -> bool:
    """Whether a unit has weights that are not in another unit inside it."""
    nested = [part for part in unit.modules() if part is not unit and id(part) in chosen]
    inside = {id(value) for part in nested for value in part.parameters()}
    return any(id(value) not in inside for value in unit.parameters())


def _repeated_classes(part: nn.Module) -> set[type[nn.Module]]:
    """The classes of layers that a list holds more than once; a single operation is not a layer."""
    if not isinstance(part, (nn.ModuleList, nn.Sequential)):
        return set()
    counts = Counter(type(block) for block in part if any(True for _ in block.children()))
    return {kind for kind, count in counts.items() if count > 1 and not issubclass(kind, nn.ModuleList)}


def read_layer_names(args: TrainingArguments) -> list[str]:
    """The layer classes that `fsdp_config` names."""
    config = args.fsdp_config if isinstance(args.fsdp_config, dict) else {}
    names = config.get("transformer_layer_cls_to_wrap") or config.get("fsdp_transformer_layer_cls_to_wrap")
    return [names] if isinstance(names, str) else list(names or ())


def count_units(model: nn.Module, units: list[nn.Module]) -> tuple[UnitSize, list[UnitSize]]:
    """The size of the root, and of each unit; a parameter that two of them share counts once."""
    seen: set[int] = set()
    sizes = []
    for module in [*units, model]:
        new = {id(value): value for value in module.parameters() if id(value) not in seen}
        seen.update(new)
        trained = sum(value.numel() for value in new.values() if value.requires_grad)
        sizes.append(UnitSize(sum(value.numel() for value in new.values()), trained))
    return sizes[-1], sizes[:-1]
