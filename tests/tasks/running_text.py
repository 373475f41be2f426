"""Texts, jobs and the same training by transformers, for the tests of tasks that learn a language."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from footplate.tasks.common.catalog import find_recipe
from footplate.tasks.common.parsing import parse_flags
from footplate.tasks.common.running import Job, build_job
from tasks import small

COMMON = ("--report_to", "none", "--use_cpu")
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


def rhymes(count: int, seed: int) -> list[str]:
    """Lines of twelve words in which each word decides the next."""
    starts = random.Random(seed).choices(range(8), k=count)
    return [" ".join(NUMBERS[(start + step) % 8] for step in range(12)) for start in starts]


def write_text(path: Path, lines: Sequence[str]) -> Path:
    """Lines as a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def flags_of(folder: Path, file: Path, *words: Any) -> list[Any]:
    """Flags of a training run on a file, which writes to `out` of a folder."""
    return ["--train_file", file, "--output_dir", folder / "out", "--do_train", *COMMON, *words]


def job_of(task: str, *words: Any) -> Job:
    """Rows, features and trainer of `footplate run TASK words`, which is not run."""
    return build_job(parse_flags(find_recipe(task), [str(word) for word in words]))


def echoes(count: int, seed: int) -> list[str]:
    """Lines that say one word twelve times."""
    return [" ".join([word] * 12) for word in random.Random(seed).choices(NUMBERS, k=count)]


def train(folder: Path, task: str, kind: str, *words: Any, lines: Sequence[str] = ()) -> dict[str, float]:
    """Train and evaluate from random weights, on rhymes if no lines are given; results are in `out`."""
    file = write_text(folder / "train.txt", lines or rhymes(200, 0))
    return small.run(
        task,
        *small.from_scratch(kind),
        *("--train_file", file, "--output_dir", folder / "out", "--do_train", "--do_eval"),
        *("--learning_rate", "5e-3", "--per_device_train_batch_size", 8, *COMMON, *words),
    )


def blocks_of(length: int, has_labels: bool) -> Callable[[dict[str, list[Any]]], dict[str, list[Any]]]:
    """A function that joins the tokens of rows and cuts them."""

    def cut(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        joined = {name: list(chain(*rows[name])) for name in rows}
        end = len(joined["input_ids"]) // length * length
        made = {name: [ids[at : at + length] for at in range(0, end, length)] for name, ids in joined.items()}
        return {**made, "labels": made["input_ids"]} if has_labels else made

    return cut


def train_by_transformers(
    folder: Path,
    head: str,
    kind: str,
    features: Callable[[Any, Any], Any],
    collator: Callable[[Any], Any],
    measure: Callable[[Any], dict[str, float]] | None,
    keep_linebreaks: bool,
    change: Callable[[Any, Any], None] = lambda model, tokenizer: None,
    num_new_tokens: int = 0,
) -> None:
    """What `train` did with seed 7, two epochs and a tenth of the rows to evaluate on, by transformers.

    Args:
        folder: That of `train`; results are in `theirs` of it.
        head: The class of the model.
        kind: The architecture.
        features: Makes features of the rows, given the tokenizer.
        collator: Makes the data collator, given the tokenizer.
        measure: The metrics.
        keep_linebreaks: How lines are read.
        change: What is done to the model before anything is prepared.
        num_new_tokens: Tokens that the tokenizer got after the model was made.
    """
    import transformers
    from datasets import load_dataset

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "out")
    transformers.set_seed(7)
    parts = {
        name: load_dataset(
            "text",
            data_files={"train": str(folder / "train.txt")},
            split=f"train[{share}]",
            **({"keep_linebreaks": True} if keep_linebreaks else {}),
        )
        for name, share in (("train", "10%:"), ("validation", ":10%"))
    }
    config = transformers.CONFIG_MAPPING[kind]()
    config.update_from_string(small.SIZES[kind])
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    given = {name: getattr(tokenizer, name) for name in names if getattr(tokenizer, name) is not None}
    config.update({"vocab_size": len(tokenizer) - num_new_tokens, **given})
    model = getattr(transformers, head).from_config(config)
    change(model, tokenizer)
    made = {name: features(rows, tokenizer) for name, rows in parts.items()}
    args = transformers.TrainingArguments(
        output_dir=str(folder / "theirs"),
        learning_rate=5e-3,
        per_device_train_batch_size=8,
        num_train_epochs=2,
        logging_steps=1,
        eval_strategy="epoch",
        seed=7,
        report_to="none",
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        model,
        args,
        train_dataset=made["train"],
        eval_dataset=made["validation"],
        data_collator=collator(tokenizer),
        compute_metrics=measure,
        preprocess_logits_for_metrics=(lambda logits, labels: logits.argmax(-1)) if measure else None,
    )
    metrics = trainer.train().metrics
    trainer.save_metrics("train", {**metrics, "train_samples": len(made["train"])})
    trainer.save_state()
    metrics = trainer.evaluate()
    metrics.update(eval_samples=len(made["validation"]), perplexity=math.exp(metrics["eval_loss"]))
    trainer.save_metrics("eval", metrics)


SAME_FLAGS = (
    *("--num_train_epochs", 2, "--logging_steps", 1, "--eval_strategy", "epoch"),
    *("--validation_split_percentage", 10, "--seed", 7),
)


def check_same_results(folder: Path) -> None:
    """All losses and figures are equal to the last bit, and so are the names of files and figures."""
    ours, theirs = small.losses_in(folder / "out"), small.losses_in(folder / "theirs")
    assert len(theirs) > 20
    assert ours == theirs
    ours, theirs = small.results_of(folder / "out"), small.results_of(folder / "theirs")
    assert set(theirs) <= set(ours)
    timed = ("runtime", "per_second")
    for name in (name for name in theirs if not name.endswith((*timed, "total_flos"))):
        assert ours[name] == theirs[name], name
    results = {path.name for path in (folder / "theirs").glob("*_results.json")}
    assert results <= {path.name for path in (folder / "out").glob("*_results.json")}
