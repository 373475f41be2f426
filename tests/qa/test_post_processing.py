from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset

from footplate import EvalPrediction
from footplate.qa.post_processing import (
    build_post_processing,
    check_answers,
    check_rows,
    choose_examples,
    choose_rows,
)

FEATURES = [{"example_id": name, "tokens": [place]} for place, name in enumerate("aabcc")]
EXAMPLES = [{"id": name, "context": name * 3} for name in "abc"]


@pytest.mark.parametrize("kind", [list, Dataset.from_list])
def test_rows_come_in_the_order_of_their_evaluation(kind):
    features = kind(FEATURES)
    assert choose_rows(features, None) is features
    assert choose_rows(features, np.arange(5)) is features
    assert list(choose_rows(features, np.array([4, 1]))) == [FEATURES[4], FEATURES[1]]


@pytest.mark.parametrize("kind", [list, Dataset.from_list])
def test_only_examples_with_a_feature_are_kept(kind):
    assert list(choose_examples(kind(EXAMPLES), kind(FEATURES[3:]))) == [EXAMPLES[2]]
    nameless = kind([{"context": "x"}])
    assert choose_examples(nameless, kind(FEATURES)) is nameless


def test_a_stream_of_features_is_refused():
    with pytest.raises(TypeError, match=r"post_process_function .*generator can be read only once"):
        check_rows(3, (row for row in FEATURES), True)


def test_answers_in_a_form_of_their_own_pass():
    answers = EvalPrediction(np.zeros(7), np.ones(7))
    assert check_answers(answers, EXAMPLES) is answers
    assert check_answers({"a": "x"}, EXAMPLES, is_prediction=True).predictions == {"a": "x"}
    in_another_order = EvalPrediction([{"id": name} for name in "cab"], None)
    assert check_answers(in_another_order, EXAMPLES) is in_another_order


def test_hidden_answers_leave_nothing_to_compare_with():
    hidden = {"id": "q", "context": "yes no", "answers": {"text": [], "answer_start": []}}
    features = [{"example_id": "q", "offset_mapping": [None, [0, 3], [4, 6]]}]
    logits = np.array([[0.0, 0.0, 1.0]])
    for example in (hidden, {name: hidden[name] for name in ("id", "context")}):
        answers = build_post_processing()([example], features, (logits, logits))
        assert answers.predictions == [{"id": "q", "prediction_text": "no"}]
        assert answers.label_ids is None
    second = build_post_processing(version_2_with_negative=True)([hidden], features, (logits, logits))
    assert second.label_ids == [{"id": "q", "answers": hidden["answers"]}]
