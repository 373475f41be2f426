"""A ready post-processing function for answers, its inputs, and checks of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from footplate.batch import is_table
from footplate.outputs import EvalPrediction
from footplate.qa.answers import postprocess_qa_predictions
from footplate.qa.tables import Array, answer_texts, has_column, read_columns


def build_post_processing(**settings: Any) -> Callable[..., EvalPrediction]:
    """A `post_process_function` for the question-answering trainers.

    Args:
        settings: Arguments of `postprocess_qa_predictions`: version_2_with_negative, output_dir, ...
    """
    return partial(_post_process, settings=settings)


def _post_process(
    examples: Any, features: Any, predictions: Any, stage: str = "eval", *, settings: Mapping[str, Any]
) -> EvalPrediction:
    answers = postprocess_qa_predictions(examples, features, predictions, **{"prefix": stage, **settings})
    given = [{"id": identity, "prediction_text": text} for identity, text in answers.items()]
    if not has_column(examples, "answers"):
        return EvalPrediction(given, None)
    ids, golds = read_columns(examples, ["id", "answers"], "examples")
    is_hidden = not settings.get("version_2_with_negative") and not any(map(answer_texts, golds))
    references = [{"id": identity, "answers": gold} for identity, gold in zip(ids, golds, strict=True)]
    return EvalPrediction(given, None if is_hidden else references)


def choose_rows(features: Any, rows: Array | None) -> Any:
    """The features that were evaluated, in that order, with all their columns."""
    if rows is None or np.array_equal(rows, np.arange(len(features))):
        return features
    return _select(features, rows.tolist())


def choose_examples(examples: Any, features: Any) -> Any:
    """The examples that have a feature, if only a part of the features was evaluated."""
    if not has_column(features, "example_id") or not has_column(examples, "id"):
        return examples
    (owners,) = read_columns(features, ["example_id"], "features")
    (ids,) = read_columns(examples, ["id"], "eval_examples")
    asked = set(owners)
    places = [place for place, identity in enumerate(ids) if identity in asked]
    return _select(examples, places)


def _select(dataset: Any, places: Sequence[int]) -> Any:
    return dataset.select(places) if is_table(dataset) else [dataset[place] for place in places]


def check_rows(num_predicted: int | None, features: Any, is_joined: bool) -> None:
    """Refuse predictions that cannot be matched with the features, one row each."""
    if not hasattr(features, "__len__"):
        raise TypeError(
            f"post_process_function reads the features again, but {type(features).__name__} can be read only "
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
    """The result of a post-processing function; refuse it if it does not answer these examples.

    Args:
        answers: An `EvalPrediction`; for a prediction, a list or dictionary of answers is enough.
        examples: The questions.
        is_prediction: Whether the right answers may be missing.
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
            f"{len(answers.label_ids)} label_ids. Let it return the same number of both."
        )
    return answers


def _ids_of(rows: Any) -> list[Any] | None:
    """The ids of answers or references if they have the form of SQuAD, else None."""
    is_list = isinstance(rows, (list, tuple)) and all(
        isinstance(row, Mapping) and "id" in row for row in rows
    )
    return [row["id"] for row in rows] if is_list else None


def _check_ids(what: str, found: list[Any], asked: list[Any]) -> None:
    """Refuse answers to unknown questions, and to more or fewer questions than were asked."""
    known, answered = set(asked), set(found)
    unknown = [identity for identity in found if identity not in known]
    missing = [identity for identity in asked if identity not in answered]
    if not unknown and not missing and len(found) == len(asked):
        return
    remarks = [
        f"{len(found)} for {len(asked)} examples",
        f"unknown ids such as {unknown[0]!r}" if unknown else "",
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
