from __future__ import annotations

import pytest
import torch

from footplate import AdamW


def test_the_old_constructor_makes_torch_adamw():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = AdamW([weight], lr=0.1, correct_bias=True, no_deprecation_warning=True)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["eps"] == 1e-6
    assert optimizer.defaults["weight_decay"] == 0.0
    weight.grad = torch.ones(3)
    optimizer.step()
    assert torch.allclose(weight, torch.full((3,), 0.9), atol=1e-4)


def test_uncorrected_bias_is_refused():
    with pytest.raises(ValueError, match="correct_bias"):
        AdamW([torch.nn.Parameter(torch.ones(1))], correct_bias=False)
