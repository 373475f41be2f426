"""Which parameters get weight decay, which learning rate each gets, and the optimizer for them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from footplate.optim.depth import Depth, find_depths

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

NO_DECAY_PATTERNS = (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")
RULE_KEYS = ("match", "lr", "weight_decay", "layer_decay", "name")
REST = "rest"


def build_optimizer(
    optimizer_class: type | Callable[..., Any],
    kwargs: Mapping[str, Any],
    model: nn.Module,
    args: TrainingArguments,
    decay_names: Collection[str],
) -> Optimizer:
    """The optimizer for the groups that `args` describe, or for those that its builder made."""
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
        # a factory, which makes the parameter groups itself
        optimizer: Optimizer = optimizer_class()(model, **kwargs)
        return optimizer
    kwargs = dict(kwargs)
    # the builders of some optimizers give these in place of parameter groups
    given = [kwargs.pop(name) for name in ("params", "model", "optimizer_dict") if name in kwargs]
    if not given:
        rate = kwargs.get("lr", args.learning_rate)
        given = [build_parameter_groups(model, decay_names, args.weight_decay, rate, args.param_groups)]
    elif args.param_groups:
        logger.warning(
            f"param_groups has no effect with optim={str(args.optim)!r}, which makes its own groups."
        )
    optimizer = optimizer_class(given[-1], **kwargs)
    if optimizer_class.__module__.startswith("bitsandbytes") and kwargs.get("optim_bits") == 8:
        _keep_embeddings_exact(model)
    return optimizer


def _keep_embeddings_exact(model: nn.Module) -> None:
    """Keep 32-bit state for embeddings: 8 bits are too few for their rare and large gradients."""
    manager = import_module("bitsandbytes").optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})


def get_parameter_names(
    model: nn.Module,
    forbidden_layer_types: Iterable[type],
    forbidden_layer_names: Iterable[str] | None = None,
) -> list[str]:
    """The names of the parameters that are not in a forbidden layer.

    Args:
        model: The model.
        forbidden_layer_types: Classes of modules to leave out, with everything in them.
        forbidden_layer_names: Patterns to leave out, searched in the lower-case name relative to each parent.
    """
    types = tuple(forbidden_layer_types)
    patterns = [re.compile(pattern) for pattern in forbidden_layer_names or ()]

    def is_allowed(name: str) -> bool:
        return not any(pattern.search(name.lower()) for pattern in patterns)

    def names_below(module: nn.Module) -> Iterator[str]:
        for child_name, child in module.named_children():
            if not isinstance(child, types):
                yield from filter(is_allowed, (f"{child_name}.{name}" for name in names_below(child)))
        yield from filter(is_allowed, module._parameters)

    return list(names_below(model))


def decay_parameter_names(model: nn.Module) -> list[str]:
    """The names of the parameters that get weight decay: all except those of biases and norms."""
    return get_parameter_names(model, [nn.LayerNorm], NO_DECAY_PATTERNS)


def build_parameter_groups(
    model: nn.Module,
    decay_names: Collection[str],
    weight_decay: float,
    learning_rate: float,
    param_groups: Sequence[Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Two groups, with and without decay, or the groups that the rules in `param_groups` describe."""
    decay_names = set(decay_names)
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not param_groups:
        decaying = [value for name, value in trainable.items() if name in decay_names]
        others = [value for name, value in trainable.items() if name not in decay_names]
        return [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]

    rules = [Rule.read(raw, weight_decay, learning_rate) for raw in param_groups]
    _check_names([rule.name for rule in rules])
    owned = _assign_parameters(list(trainable), rules)
    rest = Rule(REST, re.compile(""), learning_rate, weight_decay, None)
    # the rest comes first, because the rate of the first group is logged as `learning_rate`
    groups = []
    for rule, names in [(rest, owned.pop(None)), *((rule, owned[rule.name]) for rule in rules)]:
        groups.extend(_groups_of_rule(rule, names, model, decay_names))
    return [{**group, "params": [trainable[name] for name in group["params"]]} for group in groups]


@dataclass(frozen=True)
class Rule:
    """One entry of `param_groups`: which parameters it applies to, and their rate and decay."""

    name: str
    pattern: re.Pattern[str]
    learning_rate: float
    weight_decay: float
    layer_decay: float | None

    @classmethod
    def read(cls, raw: Mapping[str, Any], weight_decay: float, learning_rate: float) -> Rule:
        """Check an entry, and fill in the run's values for what it does not give."""
        unknown = sorted(set(raw) - set(RULE_KEYS))
        if unknown:
            raise ValueError(
                f"param_groups: {dict(raw)} has {unknown}; a rule may have {', '.join(RULE_KEYS)}."
            )
        if "match" not in raw and "layer_decay" not in raw:
            raise ValueError(
                f"param_groups: {dict(raw)} has neither 'match' nor 'layer_decay'. Give one of them."
            )
        try:
            pattern = re.compile(raw.get("match", ""))
        except re.error as error:
            raise ValueError(
                f"param_groups: {raw['match']!r} is not a regular expression: {error}."
            ) from error
        layer_decay = _read_number(raw, "layer_decay", None)
        if layer_decay is not None and not 0 < layer_decay <= 1:
            raise ValueError(f"param_groups: layer_decay={layer_decay} must be above 0 and at most 1.")
        return cls(
            name=raw.get("name") or raw.get("match") or "layer_decay",
            pattern=pattern,
            learning_rate=_read_number(raw, "lr", learning_rate),
            weight_decay=_read_number(raw, "weight_decay", weight_decay),
            layer_decay=layer_decay,
        )


def _read_number(raw: Mapping[str, Any], key: str, default: Any) -> Any:
    """A number of the entry, 0 or more; text is accepted, because YAML reads 1e-3 as text."""
    if key not in raw:
        return default
    try:
        number = float(raw[key])
    except (TypeError, ValueError) as error:
        raise ValueError(f"param_groups: {key}={raw[key]!r} in {dict(raw)} is not a number.") from error
    if not number >= 0:
        raise ValueError(f"param_groups: {key}={raw[key]!r} in {dict(raw)} must not be negative.")
    return number


def _check_names(names: list[str]) -> None:
    """Refuse two groups with the same name: their rates are logged by name."""
    for name in (REST, *names):
        if [REST, *names].count(name) > 1:
            raise ValueError(
                f"param_groups: two groups would be named {name!r}. Give each rule a different 'name'."
            )


def _assign_parameters(parameter_names: list[str], rules: list[Rule]) -> dict[str | None, list[str]]:
    """The parameters of each rule: each belongs to the first rule that matches, else to None."""
    owned: dict[str | None, list[str]] = {None: [], **{rule.name: [] for rule in rules}}
    for parameter_name in parameter_names:
        owner = next((rule.name for rule in rules if rule.pattern.search(parameter_name)), None)
        owned[owner].append(parameter_name)
    for rule in rules:
        if owned[rule.name]:
            continue
        if any(rule.pattern.search(name) for name in parameter_names):
            raise ValueError(
                f"param_groups: earlier rules match all parameters of rule {rule.name!r}. Move it up."
            )
        raise ValueError(
            f"param_groups: the pattern {rule.pattern.pattern!r} matches no trainable parameter. "
            f"Their names are like {parameter_names[:3]} ... {parameter_names[-2:]}."
        )
    return owned


def _groups_of_rule(
    rule: Rule, names: list[str], model: nn.Module, decay_names: Collection[str]
) -> list[dict[str, Any]]:
    """The groups of one rule: with and without weight decay, and by depth if it has a layer decay."""
    depths = dict.fromkeys(names, Depth("", 0)) if rule.layer_decay is None else find_depths(model)
    groups: dict[str, dict[str, Any]] = {}
    # sorting is stable: parameters of the same depth keep the model's order
    for name in sorted(names, key=lambda name: depths[name].layers_below_head):
        label, depth = depths[name]
        decays = name in decay_names
        parts = (rule.name, label, "" if decays else "no_decay")
        group_name = "/".join(part for part in parts if part)
        if group_name not in groups:
            groups[group_name] = {
                "params": [],
                "weight_decay": rule.weight_decay if decays else 0.0,
                "lr": rule.learning_rate * (rule.layer_decay or 1.0) ** depth,
                "name": group_name,
            }
        groups[group_name]["params"].append(name)
    return list(groups.values())


def named_rates(optimizer: Any) -> dict[str, float]:
    """The learning rates to log, by name, of the groups that have a name."""
    groups = getattr(optimizer, "param_groups", ())
    return {f"learning_rate/{group['name']}": float(group["lr"]) for group in groups if "name" in group}
