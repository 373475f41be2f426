"""Mean average precision: cases counted by hand."""

import numpy as np
import pytest

from footplate.tasks.common.detection_scores import DetectionScores, Objects

NAMES = ["cat", "dog"]


def boxes(*rows):
    return np.array(rows, dtype=float).reshape(-1, 4)


def score(*images):
    """The figures of pictures, each given as objects found (label, box, score) and wanted (label, box)."""
    scores = DetectionScores()
    for found, wanted in images:
        scores.add(
            Objects(
                np.array([label for label, _, _ in found], dtype=int),
                boxes(*(box for _, box, _ in found)),
                np.array([value for _, _, value in found], dtype=float),
            ),
            Objects(np.array([label for label, _ in wanted], dtype=int), boxes(*(box for _, box in wanted))),
        )
    return scores.results(NAMES)


BOX, OTHER = (0, 0, 40, 40), (100, 100, 140, 140)


def test_boxes_that_are_all_right_give_one():
    results = score(([(0, BOX, 0.9), (1, OTHER, 0.8)], [(0, BOX), (1, OTHER)]))
    for name in (
        "map",
        "map_50",
        "map_75",
        "mar_1",
        "mar_10",
        "mar_100",
        "map_cat",
        "mar_100_dog",
        "map_medium",
    ):
        assert results[name] == 1
    assert results["map_small"] == results["map_large"] == results["mar_small"] == -1  # there are none


def test_an_overlap_counts_at_the_thresholds_below_it():
    results = score(([(0, (0, 0, 40, 32), 0.9)], [(0, BOX)]))  # 0.8 of the box: found at 0.50, ..., 0.80
    assert results["map"] == pytest.approx(0.7)
    assert (results["map_50"], results["map_75"]) == (1, 1)
    assert results["mar_100"] == pytest.approx(0.7)
    results = score(([(0, (0, 0, 40, 28), 0.9)], [(0, BOX)]))  # 0.7
    assert results["map"] == pytest.approx(0.5)
    assert results["map_75"] == 0


def test_a_wrong_box_with_a_higher_score_halves_the_precision():
    results = score(([(0, OTHER, 0.9), (0, BOX, 0.8)], [(0, BOX)]))
    assert results["map"] == pytest.approx(0.5)
    assert results["mar_1"] == 0  # the best one alone is wrong
    assert results["mar_10"] == 1
    after = score(([(0, OTHER, 0.7), (0, BOX, 0.8)], [(0, BOX)]))
    assert after["map"] == 1  # a wrong one after the last right one costs nothing


def test_an_object_that_is_missed_ends_the_curve_at_its_recall():
    results = score(([(0, BOX, 0.9)], [(0, BOX), (0, OTHER)]))
    assert results["map"] == pytest.approx(51 / 101, abs=1e-4)  # recalls 0.00, ..., 0.50 of 101 points
    assert results["mar_100"] == 0.5


def test_an_object_is_found_only_once():
    results = score(([(0, BOX, 0.9), (0, BOX, 0.8), (0, OTHER, 0.7)], [(0, BOX), (0, OTHER)]))
    # right, wrong, right: precision 1 up to recall 0.5, then 2/3
    assert results["map"] == pytest.approx((51 + 50 * 2 / 3) / 101, abs=1e-4)


def test_scores_are_ordered_over_all_pictures():
    results = score(([(0, BOX, 0.5)], [(0, BOX)]), ([(0, OTHER, 0.9)], [(0, BOX)]))
    # wrong first, then right: precision 1/2 up to recall 0.5
    assert results["map"] == pytest.approx(51 * 0.5 / 101, abs=1e-4)


def test_classes_count_alike_and_one_that_is_never_there_does_not_count():
    results = score(([(0, BOX, 0.9), (0, BOX, 0.8)], [(0, BOX), (1, OTHER)]))
    assert results["map"] == pytest.approx(0.5)
    assert (results["map_cat"], results["map_dog"]) == (1, 0)
    results = score(([(0, BOX, 0.9), (1, OTHER, 0.8)], [(0, BOX)]))
    assert (results["map"], results["map_dog"]) == (1, -1)


def test_objects_of_another_size_are_ignored():
    small, large = (0, 0, 10, 10), (0, 0, 200, 200)
    results = score(([(0, small, 0.9), (0, large, 0.8)], [(0, small), (0, large)]))
    assert (results["map_small"], results["map_medium"], results["map_large"]) == (1, -1, 1)
    results = score(([(0, (300, 300, 310, 310), 0.9), (0, large, 0.8)], [(0, large)]))
    assert results["map_large"] == 1  # the wrong one is small
    assert results["map"] == pytest.approx(0.5)


def test_masks_are_measured_by_their_pixels():
    wanted = np.zeros((1, 10, 10), dtype=bool)
    wanted[0, :5] = True
    found = np.zeros((1, 10, 10), dtype=bool)
    found[0, :4] = True  # 40 of 50 pixels
    scores = DetectionScores()
    scores.add(Objects([0], found, [0.9]), Objects([0], wanted))
    assert scores.results(NAMES)["map"] == pytest.approx(0.7)


def test_nothing_at_all_gives_no_figure():
    assert score(([], []))["map"] == -1
    assert score(([], [(0, BOX)]))["map"] == 0


def test_figures_are_those_of_pycocotools_where_it_is_installed():
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    chance, scores, annotations, found = np.random.default_rng(0), DetectionScores(), [], []
    for image in range(1, 31):
        corners = chance.uniform(0, 150, (6, 2))
        wanted = np.hstack([corners, corners + chance.uniform(24, 120, (6, 2))])
        guessed = np.repeat(wanted, 3, axis=0) + chance.normal(0, 4, (18, 4))
        labels = chance.integers(0, 2, 6)
        guesses = np.where(chance.random(18) < 0.8, np.repeat(labels, 3), 1 - np.repeat(labels, 3))
        values = chance.random(18)
        scores.add(Objects(guesses, guessed, values), Objects(labels, wanted))
        for label, (left, top, right, bottom) in zip(labels, wanted, strict=True):
            sides = {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
            number = len(annotations) + 1
            annotations.append(
                {"id": number, "image_id": image, "category_id": int(label), "iscrowd": 0, **sides}
            )
        for label, (left, top, right, bottom), value in zip(guesses, guessed, values, strict=True):
            box = [left, top, right - left, bottom - top]
            found.append({"image_id": image, "category_id": int(label), "bbox": box, "score": float(value)})
    truth = coco.COCO()
    categories = [{"id": number, "name": name} for number, name in enumerate(NAMES)]
    images = [{"id": number} for number in range(1, 31)]
    truth.dataset = {"images": images, "annotations": annotations, "categories": categories}
    truth.createIndex()
    evaluation = cocoeval.COCOeval(truth, truth.loadRes(found), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    names = (
        "map map_50 map_75 map_small map_medium map_large mar_1 mar_10 mar_100 mar_small mar_medium mar_large"
    )
    results = scores.results(NAMES)
    assert [results[name] for name in names.split()] == pytest.approx(list(evaluation.stats), abs=6e-5)
