"""Builders for optimizers that live in other packages, imported when one is asked for."""

from __future__ import annotations

from typing import Any

import torch

from footplate.optim.low_rank import build_layerwise, low_rank_groups
from footplate.optim.options import ClassAndKwargs, Request, parse_switch


def build_adam_of(request: Request, path: str, package: str) -> ClassAndKwargs:
    """An AdamW of another package that takes what torch's takes."""
    return request.load(path, package), request.adam


def build_anyprecision(request: Request) -> ClassAndKwargs:
    """AdamW with the precision of each of its buffers to choose."""
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
    """One of the bitsandbytes optimizers, its state in 8 or 32 bits, paged to the host if asked."""
    optimizer_class = request.load(f"bitsandbytes.optim.{class_name}", "bitsandbytes")
    if class_name == "RMSprop":
        return optimizer_class, {**request.options.take_all(), "optim_bits": bits}
    kwargs = _ademamix(request) if class_name == "AdEMAMix" else request.adam
    if class_name == "Lion":
        del kwargs["eps"]
    return optimizer_class, {**kwargs, "optim_bits": bits, "is_paged": is_paged}


def _ademamix(request: Request) -> dict[str, Any]:
    """Two averages of the gradient, a fast and a slow one, mixed by alpha."""
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
    """AdamW of torchao, its state in 4 or 8 bits."""
    return request.load(f"torchao.optim.{class_name}", "'torchao>=0.11'"), {
        **request.adam,
        "block_size": request.options.take("block_size", int, 256),
        "bf16_stochastic_round": request.options.take("bf16_stochastic_round", parse_switch, False),
    }


def build_galore(request: Request, class_name: str, is_layerwise: bool = False) -> ClassAndKwargs:
    """GaLore: gradients of the target layers projected to a low rank."""
    take = request.options.take
    projection = {
        "rank": take("rank", int, 128),
        "update_proj_gap": take("update_proj_gap", int, 200),
        "scale": take("scale", float, 0.25),
        "proj_type": take("proj_type", str, "std"),
    }
    own_rate = {"scale_parameter": False, "relative_step": False} if class_name == "GaLoreAdafactor" else {}
    return _low_rank(
        request,
        request.load(f"galore_torch.{class_name}", "galore-torch"),
        projection,
        own_rate,
        is_layerwise,
    )


def build_apollo(request: Request, is_layerwise: bool = False) -> ClassAndKwargs:
    """APOLLO: the rate of each channel estimated in a low rank."""
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
    return _low_rank(
        request, request.load("apollo_torch.APOLLOAdamW", "apollo-torch"), projection, {}, is_layerwise
    )


def _low_rank(
    request: Request,
    optimizer_class: Any,
    projection: dict[str, Any],
    kwargs: dict[str, Any],
    is_layerwise: bool,
) -> ClassAndKwargs:
    """An optimizer that projects the layers in `optim_target_modules`, in one piece or per parameter."""
    groups = low_rank_groups(request.args, request.model, projection)
    if is_layerwise:
        return build_layerwise(
            request.args, groups, optimizer_class, {"lr": request.args.learning_rate, **kwargs}
        )
    return optimizer_class, {**kwargs, "params": groups}


def build_lomo(request: Request, class_name: str) -> ClassAndKwargs:
    """LOMO: the update fused into the backward pass."""
    optimizer_class = request.load(f"lomo_optim.{class_name}", "lomo-optim")
    if request.model is None:
        raise ValueError(
            f"optim={request.name.value!r} updates the model in its backward pass: pass the model as well."
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
    """An optimizer that averages its weights instead of following a schedule."""
    return request.load(f"schedulefree.{class_name}", "'schedulefree>=1.4'"), {
        **(request.adam if takes_adam else {}),
        "weight_decay": request.args.weight_decay,
        **({"warmup_steps": _count_warmup_steps(request)} if takes_warmup else {}),
        "weight_lr_power": request.options.take("weight_lr_power", float, 2.0),
        "r": request.options.take("r", float, 0.0),
    }


def _count_warmup_steps(request: Request) -> int:
    """The warm-up in updates, which the optimizer must know before the length of the run is known."""
    args = request.args
    if 0 < args.warmup_steps < 1 and args.max_steps <= 0:
        raise ValueError(
            f"optim={request.name.value!r} warms up by itself and needs a number of updates, but "
            f"warmup_steps={args.warmup_steps} is a share of the run: give a whole number, or set max_steps."
        )
    return int(args.get_warmup_steps(args.max_steps))


def build_stable_adamw(request: Request) -> ClassAndKwargs:
    """AdamW whose update is clipped per tensor."""
    take = request.options.take
    return request.load("optimi.StableAdamW", "torch-optimi"), {
        **request.adam,
        "weight_decay": request.args.weight_decay,
        "decouple_lr": take("decouple_lr", parse_switch, False),
        "max_lr": take("max_lr", float, None),
        "kahan_sum": take("kahan_sum", parse_switch, None),
    }
