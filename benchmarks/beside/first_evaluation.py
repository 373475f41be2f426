"""The memory that the first evaluation of a fresh process takes, without a warm-up."""

from __future__ import annotations

import json
import sys

from beside.evaluation import build_expert, build_trainer
from evaluation.workload import Rows, Scale

choices = json.loads(sys.argv[1])
side = choices["side"]  # "expert", or the library
# the expert's process imports no library
is_expert = side == "expert"
evaluate = build_expert("fixed") if is_expert else build_trainer(side, "fixed", choices["output_dir"])
rows = Rows("fixed", choices["rows"])
scale = Scale(samples=False)
found = evaluate(rows)
print(json.dumps({"growth": [scale.read()["peak_bytes"] / found["array_bytes"]]}))
