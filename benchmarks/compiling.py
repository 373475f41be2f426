"""A small BERT with and without torch.compile: time to the first update, time per update, compiles."""

from __future__ import annotations

import importlib
import json
import random
import statistics
import sys
import time
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, TrainerCallback

BATCH_SIZE = 8


def build_rows(count: int) -> list[dict[str, Any]]:
    """Made-up texts of 5 to 250 tokens."""
    chance = random.Random(0)
    lengths = [min(250, 5 + int(chance.expovariate(0.015))) for _ in range(count)]
    return [{"input_ids": chance.choices(range(2, 500), k=size), "label": size % 2} for size in lengths]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Only pads: the rows are tokens already."""
    core = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=256, **special)


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """One epoch with a short last batch and two evaluations, by the library that is named."""
    torch.set_num_threads(1)
    library = importlib.import_module(settings["library"])
    moments: list[float] = []

    class Note(library.TrainerCallback if settings["library"] == "footplate" else TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *given: Any, **more: Any) -> None:
            moments.append(time.perf_counter())

        def on_step_begin(self, *given: Any, **more: Any) -> None:
            self.start = time.perf_counter()

        def on_step_end(self, *given: Any, **more: Any) -> None:
            moments.append(time.perf_counter() - (self.start if len(moments) > 1 else moments[0]))

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    config = BertConfig(vocab_size=500, max_position_embeddings=256, **sizes)
    num_updates = settings["steps"]
    args = library.TrainingArguments(
        output_dir=settings["output_dir"],
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        eval_strategy="steps",
        eval_steps=max(1, num_updates // 2),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        torch_compile=settings["compiled"],
    )
    trainer = library.Trainer(
        BertForSequenceClassification(config),
        args,
        data_collator=library.DataCollatorWithPadding(
            build_tokenizer(), pad_to_multiple_of=settings["multiple"]
        ),
        train_dataset=build_rows(num_updates * BATCH_SIZE - 3),
        eval_dataset=build_rows(5 * BATCH_SIZE),
        callbacks=[Note()],
    )
    trainer.train()
    from torch._dynamo.utils import counters

    return {
        "first_update": moments[1],
        "update": statistics.median(moments[2:]),
        "total": sum(moments[1:]),
        "compiles": counters["stats"]["unique_graphs"],
    }


def main() -> None:
    """One run in the way that the settings name."""
    result = measure(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
