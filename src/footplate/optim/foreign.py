"""Builders for optimizers of other packages, which are imported only when they are used."""

from __future__ import annotations

from typing import Any

import torch

from footplate.optim.low_rank import build_layerwise, low_rank_groups
from footplate.optim.options import ClassAndKwargs, Request, parse_switch


def build_adam_of(request: Request, path: str, package: str) -> ClassAndKwargs:
    """An AdamW of another package that takes the same settings as torch's."""
    return request.load(path, package), request.adam


def build_anyprecision(request: Request) -> ClassAndKwargs:
    """AdamW with a chosen precision for each of its buffers."""
    take = request.options.take
    dtypes = {
        "momentum_dtype": "float32",
        "variance_dtype": "float32",
        "compensation_buffer_dtype": "bfloat16",
    }
    return request.load(
        "torchdistx.optimizers.AnyPrecisionAdamW", "git+https://github.com/pytorch/torchdistx"
    ), {
        **request.adam,
        "use_kahan_summation": take("use_kahan_summation", parse_switch, False),
        **{key: getattr(torch, take(key, str, default)) for key, default in dtypes.items()},
    }


def build_bitsandbytes(
    request: Request, class_name: str, bits: int, is_paged: bool = False
) -> ClassAndKwargs:
    """An optimizer of bitsandbytes with its state in 8 or 32 bits, paged to the host if `is_paged`."""
    optimizer_class = request.load(f"bitsandbytes.optim.{class_name}", "bitsandbytes")
    if class_name == "RMSprop":
        return optimizer_class, {**request.options.take_all(), "optim_bits": bits}
    kwargs = _ademamix(request) if class_name == "AdEMAMix" else request.adam
    if class_name == "Lion":
        del kwargs["eps"]
    return optimizer_class, {**kwargs, "optim_bits": bits, "is_paged": is_paged}


def _ademamix(request: Request) -> dict[str, Any]:
    """The settings of AdEMAMix, which mixes a fast and a slow average of the gradient by alpha."""
    args, take = request.args, request.options.take
    return {
        "betas": (
            take("beta1", float, args.adam_beta1),
            take("beta2", float, args.adam_beta2),
            take("beta3", float, 0.9999),
        ),
        "alpha": take("alpha", float, 5.0),
        "eps": take("eps", float, args.adam_epsilon),
        **request.options.take_given(("t_alpha", "t_beta3"), int),
    }


def build_torchao(request: Request, class_name: str) -> ClassAndKwargs:
    """AdamW of torchao with its state in 4 or 8 bits."""
    return request.load(f"torchao.optim.{class_name}", "'torchao>=0.11'"), {
        **request.adam,
        "block_size": request.options.take("block_size", int, 256),
        "bf16_stochastic_round": request.options.take("bf16_stochastic_round", parse_switch, False),
    }


def build_galore(request: Request, class_name: str, is_layerwise: bool = False) -> ClassAndKwargs:
    """GaLore, which projects the gradients of the target layers to a low rank."""
    take = request.options.take
    projection = {
        "rank": take("rank", int, 128),
        "update_proj_gap": take("update_proj_gap", int, 200),
        "scale": take("scale", float, 0.25),
        "proj_type": take("proj_type", str, "std"),
    }
    # the schedule sets the rate, not Adafactor itself
    kwargs = {"scale_parameter": False, "relative_step": False} if class_name == "GaLoreAdafactor" else {}
    optimizer_class = request.load(f"galore_torch.{class_name}", "galore-torch")
    return _low_rank(request, optimizer_class, projection, kwargs, is_layerwise)


def build_apollo(request: Request, is_layerwise: bool = False) -> ClassAndKwargs:
    """APOLLO, which estimates the rate of each channel in a low rank."""
    take = request.options.take
    projection = {
        "rank": take("rank", int, 128),
        "proj": take("proj", str, "random"),
        "scale_type": take("scale_type", str, "channel"),
        "update_proj_gap": take("update_proj_gap", int, 200),
        "scale": take("scale", float, 1.0),
        "proj_type": take("proj_type", str, "std"),
        **request.adam,
    }
    optimizer_class = request.load("apollo_torch.APOLLOAdamW", "apollo-torch")
    return _low_rank(request, optimizer_class, projection, {}, is_layerwise)


def _low_rank(
    request: Request,
    optimizer_class: Any,
    projection: dict[str, Any],
    kwargs: dict[str, Any],
    is_layerwise: bool,
) -> ClassAndKwargs:
    """An optimizer that projects the layers in `optim_target_modules`, or one per parameter."""
    groups = low_rank_groups(request.args, request.model, projection)
    if is_layerwise:
        kwargs = {"lr": request.args.learning_rate, **kwargs}
        return build_layerwise(request.args, groups, optimizer_class, kwargs)
    return optimizer_class, {**kwargs, "params": groups}


def build_lomo(request: Request, class_name: str) -> ClassAndKwargs:
    """LOMO, which updates the weights during the backward pass."""
    optimizer_class = request.load(f"lomo_optim.{class_name}", "lomo-optim")
    if request.model is None:
        raise ValueError(
            f"optim={request.name.value!r} updates the model during the backward pass. Pass the model."
        )
    return optimizer_class, {"model": request.model}


def build_grokadamw(request: Request) -> ClassAndKwargs:
    """AdamW that amplifies slow gradients."""
    defaults = {
        "alpha_init": 0.98,
        "lamb": 2.0,
        "gamma": 0.1,
        "grokking_signal_decay_rate": 0.1,
        "gradient_clipping": 1.0,
    }
    kwargs = {key: request.options.take(key, float, default) for key, default in defaults.items()}
    return request.load("grokadamw.GrokAdamW", "grokadamw"), kwargs


def build_schedule_free(
    request: Request, class_name: str, takes_adam: bool = True, takes_warmup: bool = True
) -> ClassAndKwargs:
    """An optimizer that averages weights, so that it needs no schedule."""
    return request.load(f"schedulefree.{class_name}", "'schedulefree>=1.4'"), {
        **(request.adam if takes_adam else {}),
        "weight_decay": request.args.weight_decay,
        **({"warmup_steps": _count_warmup_steps(request)} if takes_warmup else {}),
        "weight_lr_power": request.options.take("weight_lr_power", float, 2.0),
        "r": request.options.take("r", float, 0.0),
    }


def _count_warmup_steps(request: Request) -> int:
    """The updates of warm-up; the optimizer needs them before the length of the run is known."""
    args = request.args
    if 0 < args.warmup_steps < 1 and args.max_steps <= 0:
        raise ValueError(
            f"optim={request.name.value!r} does its own warm-up and needs a number of updates, but "
            f"warmup_steps={args.warmup_steps} is a share of the run. Set a whole number, or set max_steps."
        )
    return int(args.get_warmup_steps(args.max_steps))


def build_stable_adamw(request: Request) -> ClassAndKwargs:
    """AdamW that clips the update of each tensor."""
    take = request.options.take
    return request.load("optimi.StableAdamW", "torch-optimi"), {
        **request.adam,
        "weight_decay": request.args.weight_decay,
        "decouple_lr": take("decouple_lr", parse_switch, False),
        "max_lr": take("max_lr", float, None),
        "kahan_sum": take("kahan_sum", parse_switch, None),
    }
