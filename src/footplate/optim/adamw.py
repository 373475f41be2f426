"""`AdamW` as scripts of the 4.x years make it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class AdamW(torch.optim.AdamW):
    """torch's AdamW behind the old constructor.

    Args:
        params: Parameters or groups of them.
        lr: Learning rate.
        betas: Decay of the two running means.
        eps: Added to the denominator.
        weight_decay: Decoupled weight decay.
        correct_bias: Must be True; torch has no other form.
        no_deprecation_warning: Without effect.
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
            raise ValueError("correct_bias=False: torch's AdamW always corrects the bias. Leave it out.")
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
