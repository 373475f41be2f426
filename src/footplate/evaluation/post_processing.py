"""What goes into a post-processing function for answers, and whether what comes out makes sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from footplate.evaluation.tables import has_column, is_arrow_dataset, read_columns
from footplate.outputs import EvalPrediction


def choose_rows(features: Any, rows: npt.NDArray[Any] | None) -> Any:
    """The features that were evaluated, in that order, with all their columns."""
    if rows is None or np.array_equal(rows, np.arange(len(features))):
        return features
    return features.select(rows) if is_arrow_dataset(features) else [features[int(row)] for row in rows]


def keep_asked(examples: Any, features: Any) -> Any:
    """The examples that some feature belongs to, where only a part of the features was evaluated."""
    if not has_column(features, "example_id") or not has_column(examples, "id"):
        return examples
    (owners,) = read_columns(features, ["example_id"], "features")
    (ids,) = read_columns(examples, ["id"], "eval_examples")
    asked = set(owners)
    places = [place for place, identity in enumerate(ids) if identity in asked]
    return examples.select(places) if is_arrow_dataset(examples) else [examples[place] for place in places]


def check_rows(num_predicted: int | None, features: Any, is_joined: bool) -> None:
    """Refuse to match predictions with other features than theirs."""
    if not hasattr(features, "__len__"):
        raise TypeError(
            f"post_process_function looks at features again, but {type(features).__name__} can be read only "
            "once. Pass an eval_dataset with a length."
        )
    if not is_joined:
        raise ValueError(
            "eval_do_concat_batches=False leaves predictions in batches, but post_process_function needs one "
            "row per feature. Set eval_do_concat_batches=True."
        )
    if num_predicted != len(features):
        raise ValueError(
            f"There are {num_predicted} predictions for {len(features)} features, so post_process_function "
            "cannot match them. Set dataloader_drop_last=False; a data collator, prediction_step or "
            "preprocess_logits_for_metrics must keep one row per feature."
        )


def check_answers(answers: Any, examples: Any, is_prediction: bool = False) -> Any:
    """What a post-processing function returned, which must be answers to these examples.

    Args:
        answers: An `EvalPrediction`; for a prediction, answers alone will do.
        examples: What was asked.
        is_prediction: Whether there may be nothing to compare with.
    """
    if is_prediction and isinstance(answers, (list, dict)):
        answers = EvalPrediction(answers, None)
    if not (hasattr(answers, "predictions") and hasattr(answers, "label_ids")):
        raise TypeError(
            f"post_process_function returned {_shortened(answers)}. Let it return an EvalPrediction with "
            "predictions=[{'id': ..., 'prediction_text': ...}] and label_ids=[{'id': ..., 'answers': ...}]."
        )
    found = _ids_of(answers.predictions)
    if found is not None and has_column(examples, "id"):
        (asked,) = read_columns(examples, ["id"], "eval_examples")
        _check_ids("predictions", found, asked)
        references = _ids_of(answers.label_ids)
        if references is not None:
            _check_ids("label_ids", references, asked)
    elif answers.label_ids is not None and _differ_in_length(answers.predictions, answers.label_ids):
        raise ValueError(
            f"post_process_function returned {len(answers.predictions)} predictions and "
            f"{len(answers.label_ids)} label_ids. Let it return as many of one as of the other."
        )
    return answers


def _ids_of(rows: Any) -> list[Any] | None:
    """The ids of answers or references, where they have the form of SQuAD's."""
    is_list = isinstance(rows, (list, tuple)) and all(
        isinstance(row, Mapping) and "id" in row for row in rows
    )
    return [row["id"] for row in rows] if is_list else None


def _check_ids(what: str, found: list[Any], asked: list[Any]) -> None:
    """Refuse answers to other questions, or to too few or too many of them."""
    known, answered = set(asked), set(found)
    strangers = [identity for identity in found if identity not in known]
    missing = [identity for identity in asked if identity not in answered]
    if not strangers and not missing and len(found) == len(asked):
        return
    remarks = [
        f"{len(found)} for {len(asked)} examples",
        f"unknown ids such as {strangers[0]!r}" if strangers else "",
        f"none for {missing[0]!r}" if missing else "",
    ]
    raise ValueError(
        f"post_process_function returned {what} that do not fit eval_examples: "
        f"{'; '.join(filter(None, remarks))}. Let it return one for each example, with its id."
    )


def _differ_in_length(predictions: Any, references: Any) -> bool:
    are_rows = all(isinstance(rows, (list, tuple, np.ndarray)) for rows in (predictions, references))
    return are_rows and len(predictions) != len(references)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}... ({type(value).__name__})"
