import numpy as np

from footplate.demo.spans import find_best_spans


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
