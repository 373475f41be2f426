"""Answer questions with a span of a text, by a model that searches with beams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from footplate import EvalPrediction, postprocess_qa_predictions_with_beam_search
from footplate.tasks import Batch
from footplate.tasks.qa import QuestionAnswering


class BeamSearchAnswering(QuestionAnswering):
    """As `qa`, for XLNet: the end of an answer depends on its start."""

    summary = "Answer questions with a span of a text, by beam search (XLNet)."
    head = "XLNetForQuestionAnswering"

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Without positions for an evaluation: told them, the model gives its loss and no beams."""
        return [self.features if split == "train" else self.features_to_answer]

    def features_to_answer(self, rows: Batch) -> Batch:
        """The features of questions whose answers are not told."""
        return self.features({name: column for name, column in rows.items() if name != "answers"})

    def features(self, rows: Batch) -> Batch:
        """As for `qa`, and which tokens cannot be in an answer."""
        made = super().features(rows)
        first = self.processor.cls_token_id
        made["cls_index"] = [ids.index(first) for ids in made["input_ids"]]
        made["p_mask"] = [
            [float(offset is None and token != place) for token, offset in enumerate(offsets)]
            for offsets, place in zip(made["offset_mapping"], made["cls_index"], strict=True)
        ]
        if "start_positions" in made:
            starts = zip(made["start_positions"], made["cls_index"], strict=True)
            made["is_impossible"] = [float(start == place) for start, place in starts]
        return made

    def post_processing(self) -> Any:
        """From beams to answers."""
        return partial(
            choose_answers,
            settings={
                "version_2_with_negative": self.data.version_2_with_negative,
                "n_best_size": self.data.n_best_size,
                "max_answer_length": self.data.max_answer_length,
                "start_n_top": self.config.start_n_top,
                "end_n_top": self.config.end_n_top,
                "output_dir": self.args.output_dir if self.args.should_save else None,
            },
        )


def choose_answers(
    examples: Any, features: Any, predictions: Any, stage: str = "eval", *, settings: dict[str, Any]
) -> EvalPrediction:
    """The answers of some examples, and how likely it is that there is none."""
    answers, no_answer = postprocess_qa_predictions_with_beam_search(
        examples, features, predictions, prefix=stage, **settings
    )
    given: list[dict[str, Any]] = [
        {"id": identity, "prediction_text": text} for identity, text in answers.items()
    ]
    for row in given if no_answer is not None else ():
        row["no_answer_probability"] = (no_answer or {})[row["id"]]
    golds = [{"id": row["id"], "answers": row["answers"]} for row in examples if "answers" in row]
    return EvalPrediction(given, golds or None)
