"""Rows per second with 0, 1 and 2 workers: a tokenized table of texts, padded batches, a tiny model."""

from __future__ import annotations

import csv
import importlib
import json
import os
import random
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from padding import TEXT_COLUMNS, log_normal_lengths

VOCABULARY, MAX_LENGTH, NUM_LABELS = 2000, 128, 4
NUM_WINDOWS, NUM_LEFT_OUT = 5, 100


class TinyClassifier(torch.nn.Module):
    """Sums word vectors: the less a model computes, the more of an update is loading."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(VOCABULARY, 16)
        self.classes = torch.nn.Linear(16, NUM_LABELS)

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> dict[str, Any]:
        """The loss of a batch of token rows."""
        means = (self.words(input_ids) * attention_mask.unsqueeze(-1)).mean(1)
        return {"loss": torch.nn.functional.cross_entropy(self.classes(means), labels)}


def read_texts(folder: str | None, num_rows: int) -> list[str]:
    """Texts of each `*/train.csv` in the folder, in turn; made-up ones without a folder."""
    paths = sorted(Path(folder).glob("*/train.csv")) if folder else []
    texts: list[str] = []
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            column = next((name for name in TEXT_COLUMNS if name in (rows.fieldnames or [])), None)
            if column is not None:
                texts += [row[column] or "" for row in islice(rows, -(-num_rows // len(paths)))]
    chance = random.Random(0)
    if not texts:
        words = [f"{first}{second}" for first in "bcdfgklmnprst" for second in ("an", "e", "it", "o", "ur")]
        lengths = log_normal_lengths(num_rows)
        texts = [" ".join(chance.choices(words, k=min(length, MAX_LENGTH))) for length in lengths]
    chance.shuffle(texts)
    return texts[:num_rows]


def build_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A vocabulary of the words of these texts."""
    core = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    words = trainers.WordLevelTrainer(vocab_size=VOCABULARY, special_tokens=["[PAD]", "[UNK]"])
    core.train_from_iterator(texts, words)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=MAX_LENGTH, **special)


def build_table(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> datasets.Dataset:
    """The texts with their tokens and made-up labels, as a script would have them after `map`."""
    table = datasets.Dataset.from_dict({"text": texts, "label": [i % NUM_LABELS for i in range(len(texts))]})
    return table.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True)


def read_clocks() -> tuple[float, float]:
    """Processor time of this process so far, and the time of day."""
    return time.process_time(), time.perf_counter()


def measure(settings: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds per row in windows of several updates, the first updates left out."""
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    transformers_logging.set_verbosity_error()
    library = importlib.import_module(settings["library"])
    texts = read_texts(settings["data"], settings["rows"])
    tokenizer = build_tokenizer(texts)
    readings: list[tuple[float, float]] = []

    class Clock(library.TrainerCallback):  # type: ignore[misc]
        """Reads the clocks after every update."""

        def on_step_end(self, *given: Any, **more: Any) -> None:
            readings.append(read_clocks())

    torch.manual_seed(0)
    args = library.TrainingArguments(
        output_dir=settings["output_dir"],
        per_device_train_batch_size=settings["batch_size"],
        num_train_epochs=1,
        dataloader_num_workers=settings["workers"],
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = library.Trainer(
        TinyClassifier(),
        args,
        data_collator=library.DataCollatorWithPadding(tokenizer),
        train_dataset=build_table(texts, tokenizer),
        callbacks=[Clock()],
    )
    loss = trainer.train().training_loss
    return {**sum_up(readings, settings["batch_size"], len(texts)), "loss": [loss]}


def sum_up(readings: list[tuple[float, float]], batch_size: int, num_rows: int) -> dict[str, list[float]]:
    """Seconds per row: of this process in windows, and with the workers, which ended with the epoch."""
    used = readings[min(NUM_LEFT_OUT, len(readings) // 5) :]
    size = max(1, (len(used) - 1) // NUM_WINDOWS)
    windows = list(zip(used[::size], used[size::size], strict=False))
    own = [(end[0] - start[0]) / size / batch_size for start, end in windows]
    walls = [(end[1] - start[1]) / size / batch_size for start, end in windows]
    times = os.times()
    workers = (times.children_user + times.children_system) / num_rows
    return {"row_cpu": own, "row_wall": walls, "row_all_cpu": [seconds + workers for seconds in own]}


def main() -> None:
    """One run in the way that the settings name."""
    result = measure(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
