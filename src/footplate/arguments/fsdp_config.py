"""What `fsdp` and `fsdp_config` mean: names of both versions of FSDP, read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FsdpSettings:
    """How a model is sharded.

    Args:
        wrap: Which parts are sharded one by one: "auto", "classes", "size" or "none".
        layer_classes: Names of classes, with "classes".
        min_num_params: The fewest parameters of a part, with "size".
        reshard_after_forward: Free gathered weights after forward and gather them again in backward.
        is_hybrid: Shard within groups of processes, each of which holds a whole copy.
        shard_size: Processes in a group; None for those of one machine.
        cpu_offload: Keep weights, gradients and optimizer state in host memory.
        activation_checkpointing: Compute activations again in backward.
        mixed_precision_policy: Arguments of torch's `MixedPrecisionPolicy`; dtypes by their torch names.
        state_dict_type: "FULL_STATE_DICT" or "SHARDED_STATE_DICT"; None if the settings do not say.
        cpu_ram_efficient_loading: Load pretrained weights on the first process only.
    """

    wrap: str = "auto"
    layer_classes: tuple[str, ...] = ()
    min_num_params: int = 0
    reshard_after_forward: bool | int = True
    is_hybrid: bool = False
    shard_size: int | None = None
    cpu_offload: bool = False
    activation_checkpointing: bool = False
    mixed_precision_policy: dict[str, Any] | None = None
    state_dict_type: str | None = None
    cpu_ram_efficient_loading: bool = False
