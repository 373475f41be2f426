"""One update of a tiny MLP: a process in which the expert's loop and a Trainer take turns."""

from __future__ import annotations

import json
import sys

import torch

from beside.training import train_in_turn
from workloads import WORKLOADS, Settings

choices = json.loads(sys.argv[1])
library, num_blocks = choices.pop("library"), choices.pop("blocks")
settings = Settings(**choices)
torch.manual_seed(0)
model, rows = WORKLOADS[settings.workload](settings.num_rows)
print(json.dumps(train_in_turn(library, model, rows, settings, num_blocks)))
