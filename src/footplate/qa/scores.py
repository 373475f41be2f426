"""Exact match and F1 of answers, as SQuAD, KorQuAD and MLQA define them."""

from __future__ import annotations

import logging
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from footplate.outputs import EvalPrediction
from footplate.qa.tables import Array, answer_texts, read_columns

logger = logging.getLogger(__name__)

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_KOREAN = str.maketrans(
    {**dict.fromkeys(string.punctuation, ""), **dict.fromkeys("'\"《》<>〈〉()\u2018\u2019", " ")}
)
_HAN = re.compile("([\u4e00-\u9fa5])")


def split_words(text: str) -> list[str]:
    """The words that SQuAD compares: in lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def split_korean(text: str) -> list[str]:
    """The words that KorQuAD compares: in lower case, without punctuation, quotes and brackets."""
    return text.translate(_KOREAN).lower().split()


def split_mixed(text: str) -> list[str]:
    """The words that MLQA compares in Chinese: each Han character is one; no punctuation of any script."""
    kept = "".join(character for character in text.lower() if not _is_punctuation(character))
    return _HAN.sub(r" \1 ", kept).split()


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P") or character in string.punctuation


class _Unit(NamedTuple):
    """How a text is split: into words, which an exact match compares, and into the units that F1 counts."""

    split: Callable[[str], list[str]]
    units_of: Callable[[Sequence[str]], Sequence[str]]


UNITS = {
    "words": _Unit(split_words, list),
    "characters": _Unit(split_korean, "".join),
    "mixed": _Unit(split_mixed, list),
}


def compute_squad_metrics(
    predictions: Any,
    references: Any,
    version_2_with_negative: bool = False,
    unit: str = "words",
    no_answer_threshold: float = 1.0,
) -> dict[str, float]:
    """Exact match and F1 in per cent, under the names and by the rules of SQuAD's own scripts.

    Args:
        predictions: `{"id", "prediction_text"}` for each question, or the texts by id. With version 2 there
            may be a "no_answer_probability" in each; then the best thresholds for it are found too.
        references: `{"id", "answers"}` for each question.
        version_2_with_negative: Score by version 2, where a question may have no answer.
        unit: What F1 counts: "words" as SQuAD, "characters" as KorQuAD, "mixed" as MLQA for Chinese (each
            Han character is a word).
        no_answer_threshold: Above this probability, the prediction counts as no answer.
    """
    if unit not in UNITS:
        raise ValueError(f"unit={unit!r} is unknown. Choose one of {sorted(UNITS)}.")
    texts, no_answer = _read_predictions(predictions)
    ids, answers = read_columns(references, ["id", "answers"], "references")
    golds = [answer_texts(answer) for answer in answers]
    if not ids:
        raise ValueError("references is empty: there is nothing to score.")
    num_missing = sum(identity not in texts for identity in ids)
    if num_missing:
        logger.warning("%d of %d questions have no prediction and score 0.", num_missing, len(ids))
    given = [texts.get(identity) for identity in ids]
    if version_2_with_negative:
        chances = np.array([no_answer.get(identity, 0.0) for identity in ids])
        return _score_version_2(given, golds, UNITS[unit], chances, bool(no_answer), no_answer_threshold)
    num_unanswerable = sum(not gold for gold in golds)
    if num_unanswerable:
        raise ValueError(
            f"{num_unanswerable} of {len(golds)} references have no answer. Set version_2_with_negative=True "
            "to score such questions, or leave them out."
        )
    exact, f1 = _score_all(given, golds, UNITS[unit], empty_score=0.0)
    return {"exact_match": 100.0 * float(exact.mean()), "f1": 100.0 * float(f1.mean())}


def build_squad_metrics(
    version_2_with_negative: bool = False, unit: str = "words"
) -> Callable[[EvalPrediction], dict[str, float]]:
    """A `compute_metrics` for the question-answering trainers.

    Args:
        version_2_with_negative: As in `compute_squad_metrics`.
        unit: As in `compute_squad_metrics`.
    """
    return partial(_measure, version_2_with_negative=version_2_with_negative, unit=unit)


def _measure(prediction: EvalPrediction, **settings: Any) -> dict[str, float]:
    return compute_squad_metrics(prediction.predictions, prediction.label_ids, **settings)


def unit_of(compute_metrics: Any) -> str:
    """What F1 counts in a function of `build_squad_metrics`; "words" for any other."""
    is_ours = isinstance(compute_metrics, partial) and compute_metrics.func is _measure
    return str(compute_metrics.keywords["unit"]) if is_ours else "words"


def score_each(
    predictions: Any, references: Any, unit: str = "words"
) -> tuple[list[Any], list[list[str]], Array, Array]:
    """The ids of all questions, their right answers, and the exact match and F1 of each, between 0 and 1.

    Args:
        predictions: As in `compute_squad_metrics`.
        references: As in `compute_squad_metrics`. If one has no answer, the rules of version 2 hold.
        unit: As in `compute_squad_metrics`.
    """
    texts, _ = _read_predictions(predictions)
    ids, answers = read_columns(references, ["id", "answers"], "references")
    golds = [answer_texts(answer) for answer in answers]
    if not ids:
        return [], [], np.zeros(0), np.zeros(0)
    has_all = all(golds)
    known = golds if has_all else _without_empty(golds, UNITS[unit])
    given = [texts.get(identity) for identity in ids]
    exact, f1 = _score_all(given, known, UNITS[unit], empty_score=0.0 if has_all else 1.0)
    return ids, golds, exact, f1


def _without_empty(golds: list[list[str]], unit: _Unit) -> list[list[str]]:
    """The right answers that have words, or one empty answer, as version 2 compares them."""
    return [[text for text in texts if unit.split(text)] or [""] for texts in golds]


def _read_predictions(predictions: Any) -> tuple[dict[Any, str], dict[Any, float]]:
    """The texts by id, and the probabilities of no answer if every prediction has one."""
    if isinstance(predictions, Mapping):
        return dict(predictions), {}
    texts = {row["id"]: row["prediction_text"] for row in predictions}
    has_chances = all("no_answer_probability" in row for row in predictions)
    return texts, {row["id"]: row["no_answer_probability"] for row in predictions} if has_chances else {}


def _score_all(
    given: list[str | None], golds: list[list[str]], unit: _Unit, empty_score: float
) -> tuple[Array, Array]:
    """Exact match and F1 of each question, each against the right answer that fits best."""
    scores = [
        (0.0, 0.0)
        if text is None
        else _score_best(unit.split(text), [unit.split(gold) for gold in gold_texts], unit, empty_score)
        for text, gold_texts in zip(given, golds, strict=True)
    ]
    exact, f1 = np.array(scores, dtype=np.float64).T
    return exact, f1


def _score_best(
    words: list[str], golds: list[list[str]], unit: _Unit, empty_score: float
) -> tuple[float, float]:
    exact = float(words in golds)
    f1 = max(_overlap(unit.units_of(words), unit.units_of(gold), empty_score) for gold in golds)
    return exact, f1


def _overlap(given: Sequence[str], gold: Sequence[str], empty_score: float) -> float:
    """F1 of two bags of words or characters; `empty_score` for two empty ones: 0 in version 1, 1 in 2."""
    if not given or not gold:
        return empty_score if not given and not gold else 0.0
    num_common = (Counter(given) & Counter(gold)).total()
    return 2 * num_common / (len(given) + len(gold))


def _score_version_2(
    given: list[str | None],
    answers: list[list[str]],
    unit: _Unit,
    chances: Array,
    has_chances: bool,
    threshold: float,
) -> dict[str, float]:
    """Scores of all questions, of those with an answer and of those without, and the best thresholds."""
    has_answer = np.array([bool(gold) for gold in answers])
    golds = _without_empty(answers, unit)
    raw = dict(zip(("exact", "f1"), _score_all(given, golds, unit, empty_score=1.0), strict=True))
    declined = chances > threshold
    scores = {name: np.where(declined, ~has_answer, values) for name, values in raw.items()}
    result: dict[str, float] = {}
    groups = {"": np.ones_like(has_answer), "HasAns_": has_answer, "NoAns_": ~has_answer}
    for group, members in groups.items():
        if members.any():
            result |= {
                f"{group}{name}": 100.0 * float(values[members].mean()) for name, values in scores.items()
            }
            result[f"{group}total"] = int(members.sum())
    if has_chances:
        gives_text = np.array([bool(text) for text in given])
        for name, values in raw.items():
            best, best_threshold = _find_best_threshold(values, chances, has_answer, gives_text)
            result |= {f"best_{name}": best, f"best_{name}_thresh": best_threshold}
    return result


def _find_best_threshold(
    scores: Array, chances: Array, has_answer: Array, gives_text: Array
) -> tuple[float, float]:
    """The best mean score over all thresholds for no answer, and that threshold."""
    order = np.argsort(chances, kind="stable")
    gains = np.where(has_answer, scores, np.where(gives_text, -1.0, 0.0))[order]
    # entry k is the sum of scores if the k questions with the lowest chance of no answer are answered
    totals = np.concatenate([[0.0], np.cumsum(gains)]) + (~has_answer).sum()
    best = int(totals.argmax())
    return 100.0 * float(totals[best]) / len(scores), float(chances[order][best - 1]) if best else 0.0
