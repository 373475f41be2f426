"""Small models, files and runs for the tests of tasks."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from footplate.tasks.common.answering import answer_lines, load_answerer
from footplate.tasks.common.catalog import find_recipe
from footplate.tasks.common.parsing import parse_flags
from footplate.tasks.common.running import run_task

# a random model that learns in seconds, for flags that begin with --model_type
SIZES = {
    "bert": "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,"
    "hidden_dropout_prob=0.0,attention_probs_dropout_prob=0.0",
    "xlnet": "d_model=32,n_layer=2,n_head=2,d_head=16,d_inner=64,start_n_top=3,end_n_top=3,dropout=0.0",
    "gpt2": "n_embd=32,n_layer=2,n_head=2,n_positions=128,resid_pdrop=0.0,embd_pdrop=0.0,attn_pdrop=0.0",
    "t5": "d_model=32,d_ff=64,d_kv=16,num_layers=2,num_decoder_layers=2,num_heads=2,dropout_rate=0.0",
}


def run(task: str, *words: Any) -> dict[str, float]:
    """The metrics of `footplate run TASK words`, in this process."""
    return run_task(parse_flags(find_recipe(task), [str(word) for word in words]), task)


def answers_of(folder: Path, *lines: str, flags: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What `footplate predict` says about lines that are typed."""
    return list(answer_lines(load_answerer(str(folder), flags=flags), lines))


def from_scratch(kind: str, vocab_size: int = 400) -> list[str]:
    """Flags for a small random model, and a tokenizer trained on the spot."""
    sizes = ["--model_type", kind, "--config_overrides", SIZES[kind]]
    return [*sizes, "--train_tokenizer", "--vocab_size", str(vocab_size)]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Rows as a csv file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Rows as one JSON value per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_squad(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Rows of questions as SQuAD publishes them."""
    paragraphs = []
    for row in rows:
        pairs = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
        question = {"id": row["id"], "question": row["question"], "answers": answers}
        paragraphs.append({"context": row["context"], "qas": [question]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def results_of(folder: Path) -> dict[str, float]:
    """What `all_results.json` says."""
    found: dict[str, float] = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    return found


def losses_in(folder: Path) -> list[dict[str, float]]:
    """The entries of `trainer_state.json` that hold losses, without times and speeds."""
    history = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    timed = ("runtime", "per_second")
    return [{key: value for key, value in entry.items() if not key.endswith(timed)} for entry in history]
