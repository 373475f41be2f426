from __future__ import annotations

import numpy as np

from footplate.qa.candidates import Candidates, chunks_of, probabilities, rank


def test_the_best_of_each_example_come_first_and_earlier_ones_at_a_tie():
    scores = np.array([1.0, 3.0, 3.0, 2.0, -np.inf, 5.0])
    found = np.arange(6)
    pools = Candidates(np.array([2, 0, 0, 0, 2, 2]), found, found, scores, scores, scores)
    best, bounds = rank([pools], num_examples=4, n_best_size=2)
    assert best.begin.tolist() == [1, 2, 5, 0]
    assert bounds.tolist() == [0, 2, 2, 4, 4]


def test_probabilities_add_up_whatever_the_scores():
    assert probabilities(np.array([0.0, 0.0])) == [0.5, 0.5]
    assert probabilities(np.array([1e4, 0.0])) == [1.0, 0.0]
    assert probabilities(np.array([np.inf, np.inf, 0.0])) == [0.5, 0.5, 0.0]
    assert probabilities(np.array([-np.inf] * 4)) == [0.25] * 4


def test_pieces_cover_every_row_once():
    for num_rows, cells in [(0, 5), (7, 1), (100, 1 << 20), (3, 1 << 30)]:
        covered = [row for piece in chunks_of(num_rows, cells) for row in range(piece.start, piece.stop)]
        assert covered == list(range(num_rows))
