"""Build the `Accelerator` that the arguments describe."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from torch import nn

from footplate.distributed.ddp import plan_ddp

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)


def plan_loading(args: TrainingArguments) -> dict[str, Any]:
    """How the Accelerator loads and accumulates; footplate accumulates by itself, so it counts one step."""
    from accelerate.utils import DataLoaderConfiguration, GradientAccumulationPlugin

    config = args.accelerator_config
    if config.non_blocking and not args.dataloader_pin_memory:
        logger.warning(
            "accelerator_config has non_blocking=True, but dataloader_pin_memory is False: a copy to a GPU "
            "waits unless the batch is in pinned memory. Set both."
        )
    loading = DataLoaderConfiguration(
        split_batches=config.split_batches,
        dispatch_batches=config.dispatch_batches,
        even_batches=config.even_batches,
        use_seedable_sampler=config.use_seedable_sampler,
        non_blocking=config.non_blocking,
        data_seed=args.data_seed,
    )
    accumulation = {**(args.accelerator_config.gradient_accumulation_kwargs or {}), "num_steps": 1}
    return {
        "dataloader_config": loading,
        "fsdp_plugin": None,
        "gradient_accumulation_plugin": GradientAccumulationPlugin(**accumulation),
    }


def plan_accelerator(args: TrainingArguments, model: nn.Module | None, **options: Any) -> dict[str, Any]:
    """The arguments of the Accelerator: precision, device and DDP, and `options` as they are."""
    from accelerate.utils import DistributedDataParallelKwargs

    return {
        "cpu": args.device.type == "cpu",
        "mixed_precision": args.mixed_precision,
        "deepspeed_plugin": args.deepspeed_plugin,
        **options,
        "kwargs_handlers": [DistributedDataParallelKwargs(**plan_ddp(args, model))],
    }


def build_accelerator(args: TrainingArguments, options: dict[str, Any] | None = None) -> Any:
    """An `accelerate.Accelerator`; `options` replace the arguments that the settings describe."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    if options is None:
        options = plan_accelerator(args, None, **plan_loading(args))
    if args.world_size > 1:
        _ = args.distributed_state  # tells Accelerate its place where no launcher did
    # one state for the whole process: Accelerate refuses another precision until it is reset
    shared = AcceleratorState._shared_state
    is_other = shared and shared.get("_mixed_precision") != options.get("mixed_precision")
    if is_other and not args.accelerator_config.use_configured_state:
        AcceleratorState._reset_state()
    return Accelerator(**options)
