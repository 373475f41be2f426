"""From scores to answers: the seconds that takes, beside a loop over one candidate at a time."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from footplate.qa.answers import postprocess_qa_predictions

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from slow_answers import answer_slowly

NUM_TOKENS, NUM_QUESTION_TOKENS = 384, 16
NUM_PLAIN = 100  # features of the plain loop: all of them would take it minutes


def make_features(count: int) -> tuple[list[Any], list[Any]]:
    """Examples of some 400 words, with one to three features each that overlap by 128 tokens."""
    rng = np.random.default_rng(0)
    examples: list[Any] = []
    features: list[Any] = []
    while len(features) < count:
        lengths = rng.integers(1, 9, rng.integers(100, 700))
        ends = np.cumsum(lengths + 1) - 1
        spans = np.stack([ends - lengths, ends], axis=1).tolist()
        identity = f"question {len(examples)}"
        examples.append({"id": identity, "context": " ".join("x" * length for length in lengths)})
        for first in range(0, max(1, len(spans) - 128), NUM_TOKENS - NUM_QUESTION_TOKENS - 128):
            inside = spans[first : first + NUM_TOKENS - NUM_QUESTION_TOKENS]
            offsets = [None] * NUM_QUESTION_TOKENS + inside
            offsets += [None] * (NUM_TOKENS - len(offsets))
            features.append({"example_id": identity, "offset_mapping": offsets})
    return examples, features


def make_scores(count: int, rng: np.random.Generator) -> np.ndarray:
    """Scores with a peak in mid-context, as of a trained model: about half of the combinations are spans."""
    near = np.exp(-np.abs(np.arange(NUM_TOKENS) - NUM_TOKENS / 4) / 10)
    return (rng.normal(size=(count, NUM_TOKENS)) + 10 * near).astype(np.float32)


def main() -> None:
    """Time both versions of SQuAD, and compare the first answers with those of the plain loop."""
    settings = json.loads(sys.argv[1])
    examples, features = make_features(settings["features"])
    rng = np.random.default_rng(1)
    scores = make_scores(len(features), rng), make_scores(len(features), rng)
    has_negatives = settings["version"] == "v2"
    tables = Dataset.from_list(examples), Dataset.from_list(features)
    wall, cpu = time.perf_counter(), time.process_time()
    answers = postprocess_qa_predictions(*tables, scores, version_2_with_negative=has_negatives)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu

    last = features[NUM_PLAIN]["example_id"]
    num_plain = next(place for place, row in enumerate(features) if row["example_id"] == last)
    known = {row["example_id"] for row in features[:num_plain]}
    some = [row for row in examples if row["id"] in known]
    plain_cpu = time.process_time()
    plain = answer_slowly(
        some, features[:num_plain], [part[:num_plain] for part in scores], v2=has_negatives
    )[0]
    plain_cpu = (time.process_time() - plain_cpu) / num_plain * len(features)
    agrees = all(answers[identity] == text for identity, text in plain.items())
    figures = {"answer_wall": wall, "answer_cpu": cpu, "plain_cpu": plain_cpu, "agrees": agrees}
    print(json.dumps({name: [value] for name, value in {**figures, "features": len(features)}.items()}))


if __name__ == "__main__":
    main()
