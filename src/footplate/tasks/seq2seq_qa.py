"""Answer questions about a text in words of the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from footplate import (
    EvalLoopOutput,
    EvalPrediction,
    HfArg,
    QuestionAnsweringSeq2SeqTrainer,
    build_squad_metrics,
)
from footplate.tasks import Batch, Row, check_columns
from footplate.tasks.common.generating import TextToText, WritingFlags
from footplate.tasks.common.squad import EXAMPLE, QuestionRecipe, answer_texts


@dataclass
class Seq2SeqQaFlags(WritingFlags):
    """Which columns hold questions, texts and answers, and how long these are."""

    context_column: str = HfArg(default="context", help="Column of the texts that questions are about.")
    question_column: str = HfArg(default="question", help="Column of questions.")
    answer_column: str = HfArg(default="answers", help="Column of answers.")
    max_seq_length: int = HfArg(default=384, help="Tokens of question and text; what is longer is cut off.")
    max_answer_length: int = HfArg(default=30, help="Tokens of an answer, in training.")
    val_max_answer_length: int | None = HfArg(
        default=None, help="Tokens of an answer that the model writes (default: as in training)."
    )
    pad_to_max_length: bool = HfArg(default=True, help="Pad every row to max_seq_length.")
    num_beams: int | None = HfArg(default=None, help="Beams of the search for the best answer.")
    version_2_with_negative: bool = HfArg(default=False, help="Some questions have no answer.")
    null_score_diff_threshold: float = HfArg(default=0.0, help="Has no effect: answers have no score.")
    doc_stride: int = HfArg(default=128, help="Has no effect: answers come from the end of long texts.")
    n_best_size: int = HfArg(default=20, help="Has no effect: only the best answer is written.")


class Seq2SeqAnswering(QuestionRecipe, TextToText):
    """Questions, the texts they are about, and answers."""

    summary = "Write answers to questions about a text."
    example = f"{EXAMPLE} --do_train --do_eval --predict_with_generate --output_dir out"
    data_flags = Seq2SeqQaFlags
    trainer = QuestionAnsweringSeq2SeqTrainer
    first_flags = ("version_2_with_negative", "max_seq_length", "predict_with_generate")
    answer_name = "answer"

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Check the columns."""
        texts = [self.data.question_column, self.data.context_column]
        flags = "--question_column, --context_column and --answer_column"
        check_columns(self, rows, texts, [self.data.answer_column], flags)

    def find_problem(self, row: Row) -> str | None:
        """A question or a text that is missing; no answer, where every question must have one."""
        if not row[self.data.question_column] or not row[self.data.context_column]:
            return "the question or the context is missing"
        is_known = self.data.answer_column in row and not self.data.version_2_with_negative
        if is_known and not answer_texts(row[self.data.answer_column]):
            return "the question has no answer (--version_2_with_negative allows that)"
        return None

    def text_of(self, row: Row) -> list[str]:
        """Question, text and answers."""
        data = self.data
        return [
            row[data.question_column],
            row[data.context_column],
            *answer_texts(row.get(data.answer_column)),
        ]

    def pairs(self, rows: Batch) -> tuple[list[str], list[str] | None]:
        """Question and text in one, and the first answer."""
        questions, contexts = rows[self.data.question_column], rows[self.data.context_column]
        sources = [
            f"question: {question.lstrip()} context: {context.lstrip()}"
            for question, context in zip(questions, contexts, strict=True)
        ]
        if self.data.answer_column not in rows:
            return sources, None
        return sources, [next(iter(answer_texts(answers)), "") for answers in rows[self.data.answer_column]]

    def features(self, rows: Batch) -> Batch:
        """Tokens of question and text, and of the answer as labels."""
        return self.encode(*self.pairs(rows), self.data.max_seq_length, self.data.max_answer_length)

    def evaluation_features(self, rows: Batch) -> Batch:
        """The same, and which row each feature belongs to: a long text gives several."""
        sources, targets = self.pairs(rows)
        made = self.processor(
            sources,
            max_length=self.data.max_seq_length,
            padding="max_length" if self.data.pad_to_max_length else False,
            truncation=True,
            return_overflowing_tokens=True,
        )
        owners = made.pop("overflow_to_sample_mapping")
        made["example_id"] = [rows["id"][owner] for owner in owners]
        if targets is not None:
            labels = self.encode_targets(targets, self.data.max_answer_length)
            made["labels"] = [labels[owner] for owner in owners]
        return dict(made)

    def written_length(self) -> int:
        """Tokens of an answer."""
        return int(self.data.val_max_answer_length or self.data.max_answer_length)

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Written texts become the answers to questions, and those are measured."""
        options = super().trainer_options(rows, features)
        metrics = build_squad_metrics(version_2_with_negative=self.data.version_2_with_negative)
        return {
            "compute_metrics": metrics,
            "post_process_function": self.post_process,
            "eval_examples": rows.get("validation"),
            **options,
        }

    def post_process(
        self, examples: Any, features: Any, output: EvalLoopOutput, stage: str = "eval"
    ) -> EvalPrediction:
        """The answer to each question: of several features, that of the last."""
        found = dict(zip(features["example_id"], self.decode(output.predictions), strict=True))
        answers: list[Row] = [{"id": name, "prediction_text": found[name]} for name in examples["id"]]
        if self.data.version_2_with_negative:
            answers = [{**answer, "no_answer_probability": 0.0} for answer in answers]
        if self.data.answer_column not in examples.column_names:
            return EvalPrediction(answers, None)
        pairs = zip(examples["id"], examples[self.data.answer_column], strict=True)
        right = [{"id": name, "answers": {"text": answer_texts(value)}} for name, value in pairs]
        return EvalPrediction(answers, right)

    def decode(self, tokens: Any, **options: Any) -> list[str]:
        """The texts of tokens, or of answers that were made of them."""
        if isinstance(tokens, list):
            return [answer["prediction_text"] for answer in tokens]
        return super().decode(tokens, **options)
