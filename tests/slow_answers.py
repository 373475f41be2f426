"""The semantics of answer post-processing written down plainly, one candidate at a time."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

WORDS = ["서울은", "대한민국의", "수도이다", "한강", "黑豹队", "the", "river", "é", "🙂🙂", "10", "(km)", "a"]


def make_examples(seed: int, num_examples: int = 12, num_tokens: int = 16) -> tuple[list[Any], list[Any]]:
    """Examples cut into one to three features that overlap, question tokens first."""
    rng = random.Random(seed)
    examples, features = [], []
    for number in range(num_examples):
        words = rng.choices(WORDS, k=rng.randrange(0, 14))
        context = " ".join(words)
        examples.append({"id": f"질문-{number}", "context": context})
        spans, position = [], 0
        for word in words:
            spans.append([position, position + len(word)])
            position += len(word) + 1
        for _ in range(rng.randrange(1, 4)):
            first = rng.randrange(0, len(spans) + 1)
            inside = spans[first : first + num_tokens - 5]
            offsets = [None] * 4 + inside + [None] * rng.randrange(0, 2)
            features.append({"example_id": f"질문-{number}", "offset_mapping": offsets})
    rng.shuffle(features)
    return examples, features


def as_columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def lowest(score: Any) -> Any:
    """Scores that are not a number are the worst there are."""
    return type(score)(-math.inf) if math.isnan(score) else score


def softmax(scores: list[Any]) -> list[float]:
    top = max(scores)
    if math.isinf(top):
        return [float(score == top) / scores.count(top) for score in scores]
    powers = np.exp(np.array(scores) - top)
    return [float(power) for power in powers / powers.sum()]


def is_answer(feature: dict[str, Any], first: int, last: int, max_answer_length: int) -> bool:
    offsets = feature["offset_mapping"] or []
    best = feature.get("token_is_max_context")
    return (
        0 <= first <= last < len(offsets)
        and offsets[first] is not None
        and offsets[last] is not None
        and last - first < max_answer_length
        and (best is None or bool(best.get(str(first))))
    )


def candidate(feature: dict[str, Any], first: int, last: int, start: Any, end: Any) -> dict[str, Any]:
    with np.errstate(invalid="ignore", over="ignore"):
        score = lowest(start + end)
    offsets = feature["offset_mapping"]
    return {"span": (offsets[first][0], offsets[last][1]), "start": start, "end": end, "score": score}


def answer_slowly(
    examples: list[dict[str, Any]],
    features: list[dict[str, Any]],
    predictions: Any,
    v2: bool = False,
    n_best: int = 20,
    max_length: int = 30,
    threshold: float = 0.0,
) -> tuple[dict[str, str], dict[str, list[dict[str, Any]]], dict[str, float]]:
    answers, best_of_all, odds_of_all = {}, {}, {}
    for example in examples:
        found, null = [], None
        for feature, start, end in zip(features, *predictions, strict=True):
            if feature["example_id"] != example["id"]:
                continue
            start, end = [[lowest(score) for score in scores] for scores in (start, end)]
            with np.errstate(invalid="ignore", over="ignore"):
                score = lowest(start[0] + end[0])
            nothing = {"span": (0, 0), "start": start[0], "end": end[0], "score": score}
            null = nothing if null is None or nothing["score"] < null["score"] else null
            # numpy decides who comes first among equals, as it always has here
            firsts = np.argsort(np.array(start))[::-1][:n_best].tolist()
            lasts = np.argsort(np.array(end))[::-1][:n_best].tolist()
            for first in firsts:
                for last in lasts:
                    if is_answer(feature, first, last, max_length):
                        found.append(candidate(feature, first, last, start[first], end[last]))
        if v2 and null is not None:
            found.append(null)
        found = sorted(found, key=lambda entry: -entry["score"])[:n_best]
        if v2 and null is not None and (0, 0) not in [entry["span"] for entry in found]:
            found.append(null)
        for entry in found:
            entry["text"] = example["context"][slice(*entry["span"])]
        has_text = any(entry["text"] for entry in found)
        if not has_text and (v2 or len(found) < 2):
            found.insert(0, {"text": "empty", "start": 0.0, "end": 0.0, "score": 0.0})
        answers[example["id"]] = found[0]["text"]
        if v2 and null is None:
            answers[example["id"]], odds_of_all[example["id"]] = "", 0.0
        elif v2:
            best = next(entry for entry in found if entry["text"])
            with np.errstate(invalid="ignore", over="ignore"):
                odds = float(null["score"] - best["start"] - best["end"])
            odds_of_all[example["id"]] = odds
            answers[example["id"]] = "" if odds > threshold else best["text"]
        shares = softmax([entry["score"] for entry in found])
        best_of_all[example["id"]] = [
            {
                "text": entry["text"],
                "start_logit": float(entry["start"]),
                "end_logit": float(entry["end"]),
                "probability": share,
            }
            for entry, share in zip(found, shares, strict=True)
        ]
    return answers, best_of_all, odds_of_all


def answer_beams_slowly(
    examples: list[dict[str, Any]],
    features: list[dict[str, Any]],
    beams: Any,
    n_best: int = 20,
    max_length: int = 30,
    start_n_top: int = 5,
    end_n_top: int = 5,
) -> tuple[dict[str, str], dict[str, float], dict[str, list[tuple[str, float]]]]:
    answers, odds, best_of_all = {}, {}, {}
    for example in examples:
        found, nulls = [], []
        for feature, starts, first_tokens, ends, last_tokens, null in zip(features, *beams, strict=True):
            if feature["example_id"] != example["id"]:
                continue
            nulls.append(float(null))
            for i in range(start_n_top):
                for j in range(i * end_n_top, (i + 1) * end_n_top):
                    first, last = int(first_tokens[i]), int(last_tokens[j])
                    if is_answer(feature, first, last, max_length):
                        found.append(candidate(feature, first, last, starts[i], ends[j]))
        found = sorted(found, key=lambda entry: -entry["score"])[:n_best]
        texts = [example["context"][slice(*entry["span"])] for entry in found] or [""]
        shares = softmax([entry["score"] for entry in found] or [0.0])
        answers[example["id"]] = texts[0]
        odds[example["id"]] = min(nulls, default=0.0)
        best_of_all[example["id"]] = list(zip(texts, shares, strict=True))
    return answers, odds, best_of_all
