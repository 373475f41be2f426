"""One update of a model with so many parameter tensors, by the expert and by footplate in turn."""

from __future__ import annotations

import json
import sys

import torch
from torch import Tensor, nn

from beside.training import train_in_turn
from workloads import Row, Rows, Settings

TENSOR_SIZE = 8


class Pieces(nn.Module):
    """A vector of weights in many small tensors: the cost of an update is the cost of their number."""

    def __init__(self, num_tensors: int) -> None:
        super().__init__()
        self.pieces = nn.ParameterList(torch.randn(TENSOR_SIZE) for _ in range(num_tensors))

    def forward(self, features: Tensor, labels: Tensor) -> Row:
        scale = torch.cat(list(self.pieces)).square().mean()
        predictions = features.mean(-1) * scale
        return {"loss": nn.functional.mse_loss(predictions, labels), "logits": predictions}


choices = json.loads(sys.argv[1])
block_steps, num_blocks = choices["block_steps"], choices["blocks"]
settings = Settings(steps=block_steps * num_blocks + 1, output_dir=choices["output_dir"])
torch.manual_seed(0)
rows = Rows(features=torch.randn(settings.num_rows, 4), labels=torch.randn(settings.num_rows))
print(json.dumps(train_in_turn("footplate", Pieces(choices["size"]), rows, settings, num_blocks)))
