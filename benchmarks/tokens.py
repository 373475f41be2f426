"""Real tokens per second of processor time: batches by rows, by rows of like length, and by tokens.

python benchmarks/tokens.py --data folder/of/texts   # each folder/*/train.csv; made-up lengths without it
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from padding import cut, log_normal_lengths, random_order, read_lengths

WAYS = ("random", "grouped", "by tokens")
BATCH_SIZE, NUM_LEFT_OUT, MAX_LENGTH = 32, 5, 512


def find_budget(lengths: list[int]) -> int:
    """The places of a batch of rows in random order, padding included: by tokens, batches are no larger."""
    batches = cut(random_order(lengths, BATCH_SIZE, 0), BATCH_SIZE)
    return round(statistics.fmean(len(batch) * max(lengths[index] for index in batch) for batch in batches))


def train(lengths: list[int], way: str, budget: int) -> dict[str, float]:
    """One epoch of a small encoder over rows of these lengths; its speed, and what batches looked like."""
    from footplate import Trainer, TrainingArguments
    from transformers import BertConfig, BertForSequenceClassification

    class Counting(Trainer):
        """Notes the tokens and the places of every batch, and the processor time when it starts."""

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            places = inputs["input_ids"].numel()
            readings.append((time.process_time(), int(inputs["attention_mask"].sum()), places))
            return super().training_step(model, inputs, num_items_in_batch)

    readings: list[tuple[float, int, int]] = []
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    model = BertForSequenceClassification(
        BertConfig(vocab_size=2000, max_position_embeddings=MAX_LENGTH, num_labels=4, **sizes)
    )
    rows = [
        {"input_ids": torch.randint(1, 2000, (length,)), "labels": index % 4}
        for index, length in enumerate(lengths)
    ]
    choices: dict[str, dict[str, Any]] = {
        "random": {},
        "grouped": {"train_sampling_strategy": "group_by_length"},
        "by tokens": {"per_device_train_tokens": budget},
    }
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH_SIZE,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **choices[way],
        )
        Counting(model, args, train_dataset=rows, data_collator=pad_rows).train()
    end, used = time.process_time(), readings[NUM_LEFT_OUT:]
    return {
        "speed": sum(tokens for _, tokens, _ in used) / (end - used[0][0]),
        "padding": 1 - sum(tokens for _, tokens, _ in readings) / sum(places for _, _, places in readings),
        "updates": len(readings),
        "largest": max(places for _, _, places in readings),
    }


def pad_rows(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch, padded to its longest row."""
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def run_apart(lengths: list[int], way: str, budget: int) -> dict[str, float]:
    """The same in a process of its own."""
    work = json.dumps({"lengths": lengths, "way": way, "budget": budget})
    done = subprocess.run(
        [sys.executable, __file__, "--work"],
        input=work,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def find_sources(folder: Path | None, num_rows: int) -> dict[str, list[int]]:
    """The lengths of each text set in a folder, or made-up ones with a long tail."""
    found = {
        path.parent.name: read_lengths(path, num_rows)
        for path in (sorted(folder.glob("*/train.csv")) if folder else [])
    }
    sources = found or {"log-normal": log_normal_lengths(num_rows)}
    return {name: [min(length, MAX_LENGTH) for length in lengths] for name, lengths in sources.items()}


def main() -> None:
    """Print a table: each way on each text set, the median of several processes that take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder whose */train.csv are read")
    parser.add_argument("--rows", type=int, default=5000, help="of each text set")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(train(**json.loads(sys.stdin.read()))))
        return
    print(
        "| text set | batches | tokens per CPU second | beside random | padding | updates | largest batch |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, lengths in find_sources(options.data, options.rows).items():
        budget = find_budget(lengths)
        rounds = [{way: run_apart(lengths, way, budget) for way in WAYS} for _ in range(options.rounds)]
        for way in WAYS:
            speed = statistics.median(round_[way]["speed"] for round_ in rounds)
            ratios = [round_[way]["speed"] / round_["random"]["speed"] for round_ in rounds]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            facts = rounds[0][way]
            print(
                f"| {name}, {len(lengths):,} rows | {way} | {speed:,.0f} | {spread} | "
                f"{facts['padding']:.1%} | {facts['updates']} | {facts['largest']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
