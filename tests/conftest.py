"""Settings that hold for the whole suite."""

import os
import sys
from pathlib import Path

# Two busy threads on a small shared machine wait on each other, and reductions change their order.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))  # so that tests can import `tiny`

import torch

torch.set_num_threads(1)
