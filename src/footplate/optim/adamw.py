"""`AdamW` with the constructor that transformers had until 4.x."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class AdamW(torch.optim.AdamW):
    """torch's AdamW with the older constructor.

    Args:
        params: Parameters or groups of them.
        lr: Learning rate.
        betas: Decay of the two running means.
        eps: Added to the denominator.
        weight_decay: Decoupled weight decay.
        correct_bias: Must be True: torch always corrects the bias.
        no_deprecation_warning: No effect.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        no_deprecation_warning: bool = False,
    ) -> None:
        if not correct_bias:
            raise ValueError("correct_bias=False: torch's AdamW always corrects the bias. Do not set it.")
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
