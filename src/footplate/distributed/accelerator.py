"""Build the `Accelerator` that the arguments describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments


def build_accelerator(args: TrainingArguments) -> Any:
    """An `accelerate.Accelerator` for single steps: footplate accumulates gradients by itself."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import DataLoaderConfiguration, GradientAccumulationPlugin

    config = args.accelerator_config
    loading = DataLoaderConfiguration(
        split_batches=config.split_batches,
        dispatch_batches=config.dispatch_batches,
        even_batches=config.even_batches,
        use_seedable_sampler=config.use_seedable_sampler,
        non_blocking=config.non_blocking,
        data_seed=args.data_seed,
    )
    # one state for the whole process: Accelerate refuses another precision until it is reset
    shared = AcceleratorState._shared_state
    if shared and shared.get("_mixed_precision") != args.mixed_precision:
        AcceleratorState._reset_state()
    return Accelerator(
        cpu=args.device.type == "cpu",
        mixed_precision=args.mixed_precision,
        dataloader_config=loading,
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
    )
