"""The same training by transformers as the original's scripts do it, to compare runs of tasks with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import transformers

from tasks import small

SEED = 7
FLAGS = ("--num_train_epochs", 2, "--logging_steps", 1, "--seed", SEED, "--report_to", "none")


def flags_of(folder: Path, tmp_path: Path, *words: Any) -> list[Any]:
    """Flags of a run that starts from a model in a folder and writes to `mine`."""
    return [
        "--model_name_or_path",
        folder,
        "--output_dir",
        tmp_path / "mine",
        "--do_train",
        "--do_eval",
        *words,
    ]


def load(folder: Path, head: str, **settings: Any) -> tuple[Any, Any]:
    """The tokenizer and the model of a folder, after setting the seed.

    Args:
        folder: The model.
        head: Its class.
        **settings: Of its configuration.
    """
    transformers.set_seed(SEED)
    config = transformers.AutoConfig.from_pretrained(folder, **settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer, getattr(transformers, head).from_pretrained(folder, config=config)


def train(
    tmp_path: Path,
    model: Any,
    tokenizer: Any,
    sets: Sequence[Any],
    collator: Any,
    measure: Callable[[Any], dict[str, float]] | None = None,
    **settings: Any,
) -> Any:
    """The trainer after two epochs; what it logged is in `theirs`.

    Args:
        tmp_path: Where that folder is.
        model: The model.
        tokenizer: Its tokenizer.
        sets: Features to learn from, and to evaluate on.
        collator: Makes batches.
        measure: The metrics.
        **settings: Of the training arguments, beside those of `FLAGS`.
    """
    writes = "Seq2Seq" if settings.get("predict_with_generate") else ""
    args = getattr(transformers, f"{writes}TrainingArguments")(
        output_dir=str(tmp_path / "theirs"),
        num_train_epochs=2,
        logging_steps=1,
        seed=SEED,
        report_to="none",
        **settings,
    )
    trainer = getattr(transformers, f"{writes}Trainer")(
        model=model,
        args=args,
        train_dataset=sets[0],
        eval_dataset=sets[1],
        processing_class=tokenizer,
        data_collator=collator,
        compute_metrics=measure,
    )
    trainer.train()
    trainer.save_state()
    return trainer


def check_same_figures(tmp_path: Path, *keys: str) -> None:
    """All figures of these names are equal to the last bit, in the order in which they were logged."""
    for key in keys:
        mine, theirs = (
            [entry[key] for entry in small.losses_in(tmp_path / name) if key in entry]
            for name in ("mine", "theirs")
        )
        assert mine == theirs, key
        assert mine, key


def check_same_losses(trainer: Any, folder: Path, count: int) -> None:
    """The losses of a run in a folder are those that a trainer has logged, to the last bit."""
    theirs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    ours = [entry["loss"] for entry in small.losses_in(folder) if "loss" in entry]
    assert len(ours) == count
    assert ours == theirs
