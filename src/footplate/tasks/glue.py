"""The nine tasks of GLUE, or files with one or two texts and a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from footplate import EvalPrediction, HfArg
from footplate.tasks import Batch, TaskError
from footplate.tasks.classification import Classification
from footplate.tasks.common.labels import VALUE
from footplate.tasks.common.scores import with_mean
from footplate.tasks.common.texts import TextFlags

TEXTS = {
    "cola": ["sentence"],
    "mnli": ["premise", "hypothesis"],
    "mrpc": ["sentence1", "sentence2"],
    "qnli": ["question", "sentence"],
    "qqp": ["question1", "question2"],
    "rte": ["sentence1", "sentence2"],
    "sst2": ["sentence"],
    "stsb": ["sentence1", "sentence2"],
    "wnli": ["sentence1", "sentence2"],
}
SCORES = {
    "cola": ("matthews_correlation",),
    "mrpc": ("accuracy", "f1"),
    "qqp": ("accuracy", "f1"),
    "stsb": ("pearson", "spearmanr"),
}
MISMATCHED = "validation_mismatched"


@dataclass
class GlueFlags(TextFlags):
    """Which of the nine."""

    task_name: str | None = HfArg(
        default=None, help=f"One of {', '.join(TEXTS)}; none for files of your own."
    )

    def __post_init__(self) -> None:
        """Read the Hub's rows of the task, unless files are given."""
        if self.task_name is None:
            return
        self.task_name = self.task_name.lower()
        if self.task_name not in TEXTS:
            raise TaskError(f"--task_name {self.task_name}: GLUE has the tasks {', '.join(TEXTS)}.")
        if not (self.train_file or self.validation_file or self.test_file or self.dataset_name):
            self.dataset_name, self.dataset_config_name = "nyu-mll/glue", self.task_name


class Glue(Classification):
    """Sentences and pairs of sentences."""

    summary = "The nine tasks of GLUE, or files with one or two texts and a label."
    example = (
        "--model_name_or_path MODEL --task_name mrpc --train_file train.csv --validation_file dev.csv "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = GlueFlags
    first_flags = ("task_name", "max_seq_length")
    data: GlueFlags

    def read_hub(self) -> dict[str, Any]:
        """MNLI has two sets to evaluate on, and two to predict."""
        ends = {"_matched": "", "_mismatched": "_mismatched"}
        names = {
            f"{split}{old}": f"{split}{new}" for split in ("validation", "test") for old, new in ends.items()
        }
        return {names.get(split, split): part for split, part in super().read_hub().items()}

    def more_splits(self) -> Sequence[str]:
        """The second set of MNLI."""
        return (MISMATCHED,) if self.data.task_name == "mnli" and self.args.do_eval else ()

    def find_columns(self, rows: Mapping[str, Any]) -> None:
        """The columns of the task; of other files, sentence1 and sentence2, else the first one or two."""
        self.label = "label"
        if self.data.task_name is not None:
            self.texts = TEXTS[self.data.task_name]
            return
        names = [name for name in next(iter(rows.values())).column_names if name not in ("label", "idx")]
        if not names:
            raise TaskError("There is no column of text beside 'label'.")
        has_pair = {"sentence1", "sentence2"} <= set(names)
        self.texts = ["sentence1", "sentence2"] if has_pair else names[:2]

    def columns_of(self, rows: Batch) -> list[list[str]]:
        """One text, or the two of a pair."""
        return [rows[name] for name in self.texts]

    def metric_names(self) -> tuple[str, ...]:
        """What the task is measured by."""
        usual = ("mse",) if self.labels.kind == VALUE else ("accuracy",)
        return SCORES.get(self.data.task_name or "", usual)

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The task's own scores, and the mean of several."""
        return with_mean(super().metrics(prediction))

    def evaluation_sets(self, rows: Mapping[str, Any]) -> dict[str, str]:
        """Both sets of MNLI; the metrics of the second end in _mm."""
        return {"validation": "", **({MISMATCHED: "_mm"} if MISMATCHED in rows else {})}

    def predictions_name(self) -> str:
        """The file of predictions is named after the task."""
        return f"predict_results_{self.data.task_name}.txt"
