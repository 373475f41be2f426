import numpy as np
import pytest

from footplate.demo.spans import exact_match, f1, find_best_spans, score_answers


def test_the_best_span_does_not_end_before_it_starts():
    start = np.array([[0.0, 1.0, 5.0, 0.0]])
    end = np.array([[9.0, 0.0, 2.0, 3.0]])
    # 2..0 would score highest, but only spans that go forward count
    assert find_best_spans(start, end).tolist() == [[0, 0]]
    assert find_best_spans(start, end - [[9, 0, 0, 0]]).tolist() == [[2, 3]]


def test_the_best_span_is_not_longer_than_allowed():
    start, end = np.zeros((1, 6)), np.zeros((1, 6))
    start[0, 0] = end[0, 5] = 5.0
    start[0, 4] = 1.0
    assert find_best_spans(start, end, max_tokens=6).tolist() == [[0, 5]]
    assert find_best_spans(start, end, max_tokens=5).tolist() == [[4, 5]]


def test_the_best_span_agrees_with_trying_all():
    start, end = np.random.default_rng(0).normal(size=(2, 20, 12))
    for row, (first, last) in enumerate(find_best_spans(start, end, max_tokens=4)):
        scores = {(i, j): start[row, i] + end[row, j] for i in range(12) for j in range(i, min(i + 4, 12))}
        assert max(scores, key=scores.__getitem__) == (first, last)


@pytest.mark.parametrize(
    ("prediction", "answer", "match", "overlap"),
    [
        ("Port Alder", "Port Alder", 1, 1),
        ("the Port Alder.", "port alder", 1, 1),
        ("Alder", "Port Alder", 0, 2 / 3),
        ("Alder Port", "Port Alder", 0, 1),
        ("in Port Alder", "Port Alder", 0, 0.8),
        ("Norwick", "Port Alder", 0, 0),
        ("cat cat", "cat", 0, 2 / 3),
        ("", "Norwick", 0, 0),
        ("the", "", 1, 1),
    ],
)
def test_an_answer_is_scored_by_its_words(prediction, answer, match, overlap):
    assert exact_match(prediction, answer) == match
    assert f1(prediction, answer) == pytest.approx(overlap)


def test_scores_are_means_over_all_answers():
    scores = score_answers(["Norwick", "Alder"], ["Norwick", "Port Alder"])
    assert scores == {"exact_match": 0.5, "f1": pytest.approx((1 + 2 / 3) / 2)}
