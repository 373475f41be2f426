from __future__ import annotations

import peft
import torch

from footplate.wrappers import forward_parameters
from wrapped import LORA, Anything, Plain, Wrapper, bert


def test_forward_is_found_inside_every_wrapper():
    named = forward_parameters(bert())
    assert named[:2] == ["input_ids", "attention_mask"]
    assert forward_parameters(peft.get_peft_model(bert(), LORA)) == named
    assert forward_parameters(peft.get_peft_model(bert(), LORA, mixed=True)) == named
    assert forward_parameters(torch.compile(bert())) == named
    assert forward_parameters(torch.nn.DataParallel(bert())) == named
    assert forward_parameters(Wrapper(torch.compile(peft.get_peft_model(bert(), LORA)))) == named
    assert forward_parameters(Plain()) == ["x", "labels"]
    assert forward_parameters(Anything()) == ["kwargs"]
