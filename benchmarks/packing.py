"""Tokens per second of training on conversations of uneven length: padded, grouped by length, or packed."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from footplate.tasks import build_job
from footplate.tasks.chat import Chat
from footplate.tasks.common.parsing import parse_flags

MODEL = (
    "hidden_size=128,num_hidden_layers=4,num_attention_heads=4,num_key_value_heads=4,intermediate_size=344,"
    "max_position_embeddings=512"
)
MAX_LENGTH, NUM_WINDOWS = 512, 5
SIZE = "--per_device_train_batch_size"
WAYS: dict[str, tuple[Any, ...]] = {
    "padded": (SIZE, 8),
    "grouped": (SIZE, 8, "--train_sampling_strategy", "group_by_length"),
    "packed": (SIZE, 2, "--packing"),  # two full rows hold as many tokens as eight conversations
}
WORDS = [first + second for first in "bcdfghjklmnprst" for second in ("an", "e", "it", "o", "ur")]


def write_conversations(path: Path, count: int) -> None:
    """Conversations of one to six turns, most of them short: as people have them."""
    chance = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            messages = []
            for _ in range(min(6, 1 + int(chance.expovariate(0.8)))):
                for role, middle in (("user", 2.2), ("assistant", 3.2)):
                    length = max(1, int(chance.lognormvariate(middle, 0.8)))
                    messages.append({"role": role, "content": " ".join(chance.choices(WORDS, k=length))})
            file.write(json.dumps({"messages": messages}) + "\n")


class TokenClock:
    """A collator that notes the time and the tokens so far whenever a batch is asked for."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator
        self.readings: list[tuple[float, float, int]] = []
        self.num_tokens = self.num_places = 0

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        self.readings.append((time.process_time(), time.perf_counter(), self.num_tokens))
        batch = self.collator(rows)
        self.num_tokens += sum(len(row["input_ids"]) for row in rows)
        self.num_places += batch["input_ids"].numel()
        return batch

    def report(self) -> dict[str, list[float]]:
        """Seconds per 1,000 tokens in windows of several updates, the first updates left out."""
        readings = self.readings[2:]
        size = max(1, (len(readings) - 1) // NUM_WINDOWS)
        result: dict[str, list[float]] = {"token_cpu": [], "token_wall": []}
        for start in range(0, len(readings) - size, size):
            (cpu, wall, before), (cpu_end, wall_end, after) = readings[start], readings[start + size]
            result["token_cpu"].append((cpu_end - cpu) / (after - before) * 1e3)
            result["token_wall"].append((wall_end - wall) / (after - before) * 1e3)
        return {
            **result,
            "padding": [1 - self.num_tokens / self.num_places],
            "num_updates": [len(self.readings)],
        }


def main() -> None:
    """Train one epoch in the way that the settings name."""
    choices = json.loads(sys.argv[1])
    folder = Path(choices["output_dir"])
    write_conversations(folder / "train.jsonl", choices["conversations"])
    words: list[Any] = ["--model_type", "llama", "--config_overrides", MODEL, "--train_tokenizer"]
    words += ["--vocab_size", 1000, "--chat_template", "chatml", "--max_length", MAX_LENGTH]
    words += ["--train_file", folder / "train.jsonl", "--cache_dir", folder / "cache", "--output_dir", folder]
    words += [
        "--do_train",
        "--num_train_epochs",
        1,
        "--use_cpu",
        "--disable_tqdm",
        "true",
        "--save_strategy",
        "no",
        "--report_to",
        "none",
    ]
    recipe = parse_flags(Chat, [str(word) for word in [*words, *WAYS[choices["way"]]]])
    trainer = build_job(recipe).trainer
    trainer.data_collator = clock = TokenClock(trainer.data_collator)
    metrics = trainer.train().metrics
    print(json.dumps({**clock.report(), "loss": [metrics["train_loss"]]}))


main()
