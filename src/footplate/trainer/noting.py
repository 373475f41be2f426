"""What the report keeps of an evaluation besides its metrics: how well each class is predicted."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from footplate.evaluation.choices import recognize_task
from footplate.evaluation.class_names import find_class_names
from footplate.evaluation.classes import summarize_task
from footplate.outputs import EvalLoopOutput
from footplate.wrappers import bare_model

if TYPE_CHECKING:
    from footplate.trainer.evaluating import Evaluating
    from footplate.trainer.evaluation import Evaluation

logger = logging.getLogger(__name__)

ALWAYS_SECONDS, MOST_SHARE = 0.01, 0.01  # what a look may cost: so much, or this share of the evaluation
# in many libraries the name of a model tells that it writes text
WRITES_TEXT = re.compile(r"(LM|LMHead\w*|ForConditionalGeneration|ForPreTraining)$")


def describe_answers(
    trainer: Evaluating, evaluation: Evaluation, output: EvalLoopOutput, seconds: float
) -> tuple[str, dict[str, Any] | None]:
    """A kind of note and what it holds; None if there is nothing to say, or no time for a look.

    Args:
        trainer: Whose model it was.
        evaluation: What was evaluated.
        output: What the model answered.
        seconds: How long the evaluation took.
    """
    try:
        if evaluation.describe_answers is not None:
            return evaluation.describe_answers()
        return "classes", _describe_classes(trainer, evaluation, output, seconds)
    except Exception:  # a page that lacks a table must never end an evaluation
        logger.debug("The answers to %s could not be described.", evaluation.prefix, exc_info=True)
        return "classes", None


def _describe_classes(
    trainer: Evaluating, evaluation: Evaluation, output: EvalLoopOutput, seconds: float
) -> dict[str, Any] | None:
    if output.predictions is None or output.label_ids is None or _writes_text(trainer):
        return None
    config = getattr(bare_model(trainer.model), "config", None)
    if getattr(config, "problem_type", None) == "regression":
        return None
    names = find_class_names(config, evaluation.dataset, trainer.label_names)
    most_seconds = max(ALWAYS_SECONDS, MOST_SHARE * seconds)
    task = recognize_task(output.predictions, output.label_ids, len(names or ()), most_seconds)
    if task is None or task.num_classes == getattr(config, "vocab_size", None):
        return None
    return summarize_task(task, names).to_event()


def _writes_text(trainer: Evaluating) -> bool:
    """Whether predictions are words of a text, which are no classes."""
    generates = bool(getattr(trainer.args, "predict_with_generate", False))
    name = type(bare_model(trainer.model)).__name__
    return generates or trainer._items_are_shifted or WRITES_TEXT.search(name) is not None
