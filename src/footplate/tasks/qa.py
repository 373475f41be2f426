"""Answer questions with a span of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from footplate import (
    HfArg,
    PredictionOutput,
    QuestionAnsweringTrainer,
    build_post_processing,
    build_qa_features,
    build_squad_metrics,
)
from footplate.tasks import Batch, DataFlags, Row, check_columns
from footplate.tasks.common.squad import EXAMPLE, QuestionRecipe, find_bad_answer
from footplate.tasks.common.texts import pad_texts


@dataclass
class QaFlags(DataFlags):
    """How contexts are cut, and which spans are answers."""

    max_seq_length: int = HfArg(default=384, help="Tokens of question and context; longer contexts are cut.")
    doc_stride: int = HfArg(default=128, help="Tokens that two parts of the same context share.")
    pad_to_max_length: bool = HfArg(default=True, help="Pad every row to max_seq_length.")
    version_2_with_negative: bool = HfArg(default=False, help="Some questions have no answer.")
    null_score_diff_threshold: float = HfArg(
        default=0.0, help="How much better no answer must score to be preferred."
    )
    n_best_size: int = HfArg(default=20, help="Answers to choose from.")
    max_answer_length: int = HfArg(default=30, help="The longest answer, in tokens.")


class QuestionAnswering(QuestionRecipe):
    """Questions, the texts they are about, and answers that stand in these."""

    summary = "Answer questions with a span of a text (SQuAD and its kin)."
    example = f"{EXAMPLE} --do_train --do_eval --output_dir out"
    data_flags = QaFlags
    first_flags = ("version_2_with_negative", "max_seq_length", "doc_stride")
    trainer = QuestionAnsweringTrainer
    head = "AutoModelForQuestionAnswering"
    data: QaFlags

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Check the columns."""
        check_columns(self, rows, ["question", "context"], ["answers"], "the columns of SQuAD")

    def find_problem(self, row: Row) -> str | None:
        """A text that is missing, or an answer that is not where it is said to be."""
        if not row["question"] or not row["context"]:
            return "the question or the context is missing"
        return find_bad_answer(row["context"], row["answers"]) if row.get("answers") else None

    def text_of(self, row: Row) -> list[str]:
        """The texts of a row."""
        return [row["question"], row["context"]]

    def features(self, rows: Batch) -> Batch:
        """Tokens, the position of the answer, and which characters tokens stand for."""
        return build_qa_features(
            rows,
            self.processor,
            max_length=min(self.data.max_seq_length, self.processor.model_max_length),
            doc_stride=self.data.doc_stride,
            pad_to_max_length=self.data.pad_to_max_length,
        )

    def collator(self) -> Any:
        """Pad to the longest row of a batch, where rows are not padded already."""
        return pad_texts(self.processor, self.data.pad_to_max_length, self.args)

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Predictions become answers, and those are measured."""
        return {
            "eval_examples": rows.get("validation"),
            "post_process_function": self.post_processing(),
            "compute_metrics": build_squad_metrics(version_2_with_negative=self.data.version_2_with_negative),
        }

    def post_processing(self) -> Any:
        """From the scores of tokens to answers, written to `output_dir`."""
        return build_post_processing(
            version_2_with_negative=self.data.version_2_with_negative,
            n_best_size=self.data.n_best_size,
            max_answer_length=self.data.max_answer_length,
            null_score_diff_threshold=self.data.null_score_diff_threshold,
            output_dir=self.args.output_dir if self.args.should_save else None,
        )

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The text of each answer; empty where the model finds none."""
        return [{"answer": found["prediction_text"]} for found in output.predictions]

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """Nothing: post-processing has written predict_predictions.json and its n best."""
