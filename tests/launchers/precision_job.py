"""Trains a small classifier in bfloat16 with the library that is named, and writes losses and weights.

torchrun ... precision_job.py FOLDER footplate|transformers
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tiny import bert_classifier, classification_data


def main(folder: Path, name: str) -> None:
    """One run; the names are the same in both libraries."""
    library = importlib.import_module(name)
    args = library.TrainingArguments(
        output_dir=str(folder / "run"),
        **{"bf16": True, "use_cpu": True, "num_train_epochs": 2, "per_device_train_batch_size": 4},
        **{"gradient_accumulation_steps": 2, "learning_rate": 1e-2, "logging_steps": 1, "warmup_steps": 2},
        **{"report_to": "none", "disable_tqdm": True, "save_strategy": "no"},
    )
    trainer = library.Trainer(model=bert_classifier(), args=args, train_dataset=classification_data(48))
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    seen = {
        "library": type(trainer).__module__.split(".")[0],
        "history": history,
        "weights": {key: tensor.tolist() for key, tensor in trainer.model.state_dict().items()},
        "precision": trainer.accelerator.mixed_precision,
    }
    file = folder / "results" / f"{args.process_index}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
