"""The settings of the `Accelerator`."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from footplate.arguments.suggest import did_you_mean


@dataclass
class AcceleratorConfig:
    """How batches reach the processes; `unsupported.NO_EFFECT` lists the entries without effect.

    Args:
        split_batches: Share each batch among the processes instead of giving one to each.
        dispatch_batches: Load in the main process and send to the others; None lets Accelerate decide.
        even_batches: Repeat the first samples so that all processes get the same number.
        use_seedable_sampler: Draw the order from the seed alone.
        non_blocking: Copy batches to the device without waiting.
        gradient_accumulation_kwargs: Settings of Accelerate's accumulation plugin.
        use_configured_state: Keep an Accelerate state that exists already.
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = True
    non_blocking: bool = False
    gradient_accumulation_kwargs: dict[str, Any] | None = None
    use_configured_state: bool = False

    @classmethod
    def from_json_file(cls, json_file: str | PathLike[str]) -> AcceleratorConfig:
        """The settings in `json_file`."""
        return cls.from_dict(json.loads(Path(json_file).read_text(encoding="utf-8")), source=str(json_file))

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "accelerator_config") -> AcceleratorConfig:
        """The settings in `values`; an unknown key raises."""
        allowed = [field.name for field in fields(cls)]
        for key in values:
            if key not in allowed:
                raise ValueError(
                    f"{source} holds {key!r}, which AcceleratorConfig does not have."
                    f"{did_you_mean(key, allowed)} Allowed are {allowed}."
                )
        return cls(**values)

    @property
    def syncs_each_batch(self) -> bool:
        """Whether processes exchange gradients after every micro-batch, and not only after the last one."""
        return bool((self.gradient_accumulation_kwargs or {}).get("sync_each_batch", False))

    def to_dict(self) -> dict[str, Any]:
        """The settings as a new dictionary."""
        return copy.deepcopy(self.__dict__)

    def pop(self, key: str, default: Any = None) -> Any:
        """Remove one setting and return it, as with a dictionary."""
        return self.__dict__.pop(key, default)
