"""Does a sentence follow from another? In fifteen languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from footplate import HfArg
from footplate.tasks import Batch, ModelFlags, TaskError, read_hub
from footplate.tasks.classification import Classification
from footplate.tasks.common.texts import TextFlags


@dataclass
class XnliFlags(TextFlags):
    """Rows of the Hub, unless files are given."""

    def __post_init__(self) -> None:
        """Rows come from the Hub if no file is given."""
        if not (self.train_file or self.validation_file or self.test_file):
            self.dataset_name = self.dataset_name or "facebook/xnli"


@dataclass
class XnliModelFlags(ModelFlags):
    """Which languages."""

    language: str | None = HfArg(default=None, help="Language to evaluate, such as ko.")
    train_language: str | None = HfArg(default=None, help="Language to learn from; default: the same.")
    do_lower_case: bool = HfArg(default=False, help="Let the tokenizer make all letters small.")


class Xnli(Classification):
    """A premise, a hypothesis, and how they relate."""

    summary = "Natural language inference in fifteen languages: XNLI, or files of your own."
    example = (
        "--model_name_or_path MODEL --language ko --train_file train.jsonl --validation_file dev.jsonl "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = XnliFlags
    model_flags = XnliModelFlags
    first_flags = ("language", "train_language")
    start: XnliModelFlags

    def read_hub(self) -> dict[str, Any]:
        """On the Hub, each language is a configuration; a model may learn from another one."""
        language = self.start.language
        if language is None:
            raise TaskError("--language is missing: name the language to evaluate, such as --language ko.")
        found = read_hub(self.data, self.start, language)
        if self.start.train_language not in (None, language):
            found["train"] = read_hub(self.data, self.start, self.start.train_language)["train"]
        return found

    def find_columns(self, rows: Mapping[str, Any]) -> None:
        """The columns of XNLI."""
        self.texts, self.label = ["premise", "hypothesis"], "label"

    def columns_of(self, rows: Batch) -> list[list[str]]:
        """The two sentences."""
        return [rows[name] for name in self.texts]
