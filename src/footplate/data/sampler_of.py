"""Find the sampler inside a loader."""

from __future__ import annotations

from typing import Any


def get_dataloader_sampler(dataloader: Any) -> Any:
    """The sampler of a loader, also one inside its batch sampler; None if it has none.

    Args:
        dataloader: A loader or a batch sampler.
    """
    inner = getattr(dataloader, "batch_sampler", None)
    return get_dataloader_sampler(inner) if inner is not None else getattr(dataloader, "sampler", None)
