"""From the name in `optim` to an optimizer's class and keyword arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import SGD, Adagrad, NAdam, RAdam, RMSprop

from footplate.optim.foreign import (
    build_adam_of,
    build_anyprecision,
    build_apollo,
    build_bitsandbytes,
    build_galore,
    build_grokadamw,
    build_lomo,
    build_schedule_free,
    build_stable_adamw,
    build_torchao,
)
from footplate.optim.options import ClassAndKwargs, OptimizerOptions, Request, parse_switch
from footplate.outputs import OptimizerNames

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

Builder = Callable[[Request], ClassAndKwargs]


def find_optimizer(
    args: TrainingArguments, model: nn.Module | None
) -> tuple[type | Callable[..., Any], dict[str, Any]]:
    """The class and keyword arguments of the optimizer that `args.optim` names."""
    name = OptimizerNames(getattr(args.optim, "value", args.optim))
    options = OptimizerOptions(args.optim_args)
    optimizer_class, kwargs = BUILDERS[name](Request(name, args, model, options))
    if options.unused:
        logger.warning(f"optim_args has {options.unused}, which have no effect with optim={name.value!r}.")
    return optimizer_class, {"lr": args.learning_rate, **kwargs}


def is_optimizer_factory(optimizer_cls_or_factory: Any) -> bool:
    """Whether this makes an optimizer from the model itself, instead of being an optimizer's class.

    Args:
        optimizer_cls_or_factory: The first of what `get_optimizer_cls_and_kwargs` returned.
    """
    is_class = isinstance(optimizer_cls_or_factory, type)
    return not (is_class and issubclass(optimizer_cls_or_factory, torch.optim.Optimizer))


def _torch_adamw(request: Request, **extra: Any) -> ClassAndKwargs:
    """AdamW of torch."""
    return torch.optim.AdamW, {**request.adam, **extra}


def _torch_adam_variant(request: Request, optimizer_class: type) -> ClassAndKwargs:
    """A variant of Adam in torch; it gets all options as they are."""
    return optimizer_class, {**request.adam, **request.options.take_all()}


def _torch(optimizer_class: type, **readers: Callable[[str], Any]) -> Builder:
    """A row of the table for an optimizer of torch that takes only the named options."""

    def build(request: Request) -> ClassAndKwargs:
        taken = (request.options.take_given((name,), read) for name, read in readers.items())
        return optimizer_class, {name: value for option in taken for name, value in option.items()}

    return build


def _adafactor(request: Request) -> ClassAndKwargs:
    """Adafactor whose rate comes from the schedule."""
    from footplate.optim.adafactor import Adafactor

    return Adafactor, {"scale_parameter": False, "relative_step": False}


def _bnb(class_name: str, bits: int, is_paged: bool = False) -> Builder:
    """A row of the table for bitsandbytes."""
    return partial(build_bitsandbytes, class_name=class_name, bits=bits, is_paged=is_paged)


def _foreign_adamw(path: str, package: str) -> Builder:
    """A row of the table for an AdamW of another package."""
    return partial(build_adam_of, path=path, package=package)


Names = OptimizerNames
BUILDERS: dict[OptimizerNames, Builder] = {
    Names.ADAMW_TORCH: _torch_adamw,
    Names.ADAMW_HF: _torch_adamw,
    Names.ADAMW_TORCH_FUSED: partial(_torch_adamw, fused=True),
    Names.ADAMW_TORCH_XLA: _foreign_adamw("torch_xla.amp.syncfree.AdamW", "torch_xla"),
    Names.ADAMW_TORCH_NPU_FUSED: _foreign_adamw("torch_npu.optim.NpuFusedAdamW", "torch_npu"),
    Names.ADAMW_APEX_FUSED: _foreign_adamw("apex.optimizers.FusedAdam", "git+https://github.com/NVIDIA/apex"),
    Names.ADAMW_ANYPRECISION: build_anyprecision,
    Names.ADAMW_TORCH_4BIT: partial(build_torchao, class_name="AdamW4bit"),
    Names.ADAMW_TORCH_8BIT: partial(build_torchao, class_name="AdamW8bit"),
    Names.ADAFACTOR: _adafactor,
    Names.SGD: _torch(SGD, momentum=float, dampening=float, weight_decay=float, nesterov=parse_switch),
    Names.ADAGRAD: _torch(Adagrad, lr_decay=float, weight_decay=float, eps=float),
    Names.RMSPROP: _torch(
        RMSprop, momentum=float, alpha=float, eps=float, weight_decay=float, centered=parse_switch
    ),
    Names.NADAM: partial(_torch_adam_variant, optimizer_class=NAdam),
    Names.RADAM: partial(_torch_adam_variant, optimizer_class=RAdam),
    Names.ADAMW_BNB: _bnb("AdamW", 8),
    Names.ADAMW_8BIT: _bnb("AdamW", 8),
    Names.PAGED_ADAMW: _bnb("AdamW", 32, is_paged=True),
    Names.PAGED_ADAMW_8BIT: _bnb("AdamW", 8, is_paged=True),
    Names.ADEMAMIX: _bnb("AdEMAMix", 32),
    Names.ADEMAMIX_8BIT: _bnb("AdEMAMix", 8),
    Names.PAGED_ADEMAMIX: _bnb("AdEMAMix", 32, is_paged=True),
    Names.PAGED_ADEMAMIX_8BIT: _bnb("AdEMAMix", 8, is_paged=True),
    Names.LION: _bnb("Lion", 32),
    Names.LION_8BIT: _bnb("Lion", 8),
    Names.PAGED_LION: _bnb("Lion", 32, is_paged=True),
    Names.PAGED_LION_8BIT: _bnb("Lion", 8, is_paged=True),
    Names.RMSPROP_BNB: _bnb("RMSprop", 32),
    Names.RMSPROP_8BIT: _bnb("RMSprop", 8),
    Names.RMSPROP_32BIT: _bnb("RMSprop", 32),
    Names.GALORE_ADAMW: partial(build_galore, class_name="GaLoreAdamW"),
    Names.GALORE_ADAMW_8BIT: partial(build_galore, class_name="GaLoreAdamW8bit"),
    Names.GALORE_ADAFACTOR: partial(build_galore, class_name="GaLoreAdafactor"),
    Names.GALORE_ADAMW_LAYERWISE: partial(build_galore, class_name="GaLoreAdamW", is_layerwise=True),
    Names.GALORE_ADAMW_8BIT_LAYERWISE: partial(build_galore, class_name="GaLoreAdamW8bit", is_layerwise=True),
    Names.GALORE_ADAFACTOR_LAYERWISE: partial(build_galore, class_name="GaLoreAdafactor", is_layerwise=True),
    Names.APOLLO_ADAMW: build_apollo,
    Names.APOLLO_ADAMW_LAYERWISE: partial(build_apollo, is_layerwise=True),
    Names.LOMO: partial(build_lomo, class_name="Lomo"),
    Names.ADALOMO: partial(build_lomo, class_name="AdaLomo"),
    Names.GROKADAMW: build_grokadamw,
    Names.SCHEDULE_FREE_ADAMW: partial(build_schedule_free, class_name="AdamWScheduleFree"),
    Names.SCHEDULE_FREE_RADAM: partial(
        build_schedule_free, class_name="RAdamScheduleFree", takes_warmup=False
    ),
    Names.SCHEDULE_FREE_SGD: partial(build_schedule_free, class_name="SGDScheduleFree", takes_adam=False),
    Names.STABLE_ADAMW: build_stable_adamw,
}
