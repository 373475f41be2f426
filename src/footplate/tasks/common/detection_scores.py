"""Mean average precision of boxes or masks, as COCO defines it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

OVERLAPS = np.linspace(0.5, 0.95, 10)  # from which overlap over union on an object counts as found
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # the best ones of a class in a picture count
LIMITS = (1, 10, MOST)
AREAS = {"all": (0, 1e10), "small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, 1e10)}
NONE = -1.0  # the figure where there is nothing to find


class Objects(NamedTuple):
    """Objects of a picture: classes; boxes (left, top, right, bottom) or masks; scores if predicted."""

    labels: Any
    shapes: Any
    scores: Any = None

    def of_class(self, label: int) -> Objects:
        """Those of one class; if they have scores, the best ones, best first."""
        chosen = np.flatnonzero(np.asarray(self.labels) == label)
        scores = None
        if self.scores is not None:
            order = np.argsort(-np.asarray(self.scores)[chosen], kind="stable")[:MOST]
            chosen = chosen[order]
            scores = np.asarray(self.scores)[chosen]
        return Objects(np.asarray(self.labels)[chosen], np.asarray(self.shapes)[chosen], scores)


class Matches(NamedTuple):
    """What was found of one class in one picture, within a range of areas."""

    scores: Any
    is_right: Any  # by overlap and object found
    is_ignored: Any  # likewise: it belongs to another range of areas
    num_wanted: int


class DetectionScores:
    """Collects what was found and what there is, picture by picture."""

    def __init__(self) -> None:
        self.matches: dict[int, dict[str, list[Matches]]] = {}

    def add(self, found: Objects, wanted: Objects) -> None:
        """One more picture."""
        classes = {*np.asarray(found.labels).tolist(), *np.asarray(wanted.labels).tolist()}
        for label in sorted(classes):
            pair = found.of_class(label), wanted.of_class(label)
            overlaps = measure_overlaps(pair[0].shapes, pair[1].shapes)
            areas = measure_areas(pair[0].shapes), measure_areas(pair[1].shapes)
            collected = self.matches.setdefault(label, {name: [] for name in AREAS})
            for name, limits in AREAS.items():
                collected[name].append(match(pair[0].scores, overlaps, areas, limits))

    def results(self, names: list[str]) -> dict[str, float]:
        """All figures under their usual names, also for each class."""
        curves = {
            label: {
                name: [precision_and_recall(parts, limit) for limit in LIMITS]
                for name, parts in collected.items()
            }
            for label, collected in sorted(self.matches.items())
        }
        whole = [curve["all"][-1] for curve in curves.values()]
        results = {
            "map": mean_of([curve.precision for curve in whole]),
            "map_50": mean_of([curve.precision[0] for curve in whole]),
            "map_75": mean_of([curve.precision[5] for curve in whole]),
        }
        sizes = [name for name in AREAS if name != "all"]
        for name in sizes:
            results[f"map_{name}"] = mean_of([curve[name][-1].precision for curve in curves.values()])
        for index, limit in enumerate(LIMITS):
            results[f"mar_{limit}"] = mean_of([curve["all"][index].recall for curve in curves.values()])
        for name in sizes:
            results[f"mar_{name}"] = mean_of([curve[name][-1].recall for curve in curves.values()])
        for label, curve in curves.items():
            results[f"map_{names[label]}"] = mean_of([curve["all"][-1].precision])
            results[f"mar_{MOST}_{names[label]}"] = mean_of([curve["all"][-1].recall])
        return {name: round(float(value), 4) for name, value in results.items()}


class Curve(NamedTuple):
    """Precision by overlap and recall, and recall by overlap; -1 where there is nothing to find."""

    precision: Any
    recall: Any


def measure_overlaps(found: Any, wanted: Any) -> Any:
    """Overlap over union of each pair of boxes or masks."""
    if not len(found) or not len(wanted):
        return np.zeros((len(found), len(wanted)))
    if found.ndim == 3:
        first, second = (part.reshape(len(part), -1).astype(np.float32) for part in (found, wanted))
        shared = (first @ second.T).astype(np.float64)
    else:
        corner = np.maximum(found[:, None, :2], wanted[None, :, :2])
        sides = np.minimum(found[:, None, 2:], wanted[None, :, 2:]) - corner
        shared = np.clip(sides, 0, None).prod(axis=2)
    union = measure_areas(found)[:, None] + measure_areas(wanted)[None] - shared
    return shared / np.maximum(union, 1e-12)


def measure_areas(shapes: Any) -> Any:
    """The areas of boxes or masks."""
    if not len(shapes):
        return np.zeros(0)
    if shapes.ndim == 3:
        return shapes.reshape(len(shapes), -1).sum(axis=1, dtype=np.float64)
    return np.clip(shapes[:, 2:] - shapes[:, :2], 0, None).astype(np.float64).prod(axis=1)


def match(scores: Any, overlaps: Any, areas: tuple[Any, Any], limits: tuple[float, float]) -> Matches:
    """Give each found object, best first, the object that it overlaps most and nobody has yet.

    Args:
        scores: Those of found objects, best first.
        overlaps: Of found objects with those that there are.
        areas: Of found objects, and of those that there are.
        limits: The areas that count; what is smaller or larger is ignored.
    """
    is_outside = [(part < limits[0]) | (part > limits[1]) for part in areas]
    shape = (len(OVERLAPS), len(scores))
    is_right, is_ignored = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    candidates = np.flatnonzero(overlaps.max(axis=1, initial=0) >= OVERLAPS[0])
    for level, least in enumerate(OVERLAPS):
        is_free = np.ones(overlaps.shape[1], dtype=bool)
        for place in candidates:
            fits = is_free & (overlaps[place] >= min(least, 1 - 1e-10))
            inside = fits & ~is_outside[1]
            fits = inside if inside.any() else fits  # an object that counts goes before one that does not
            if fits.any():
                best = int(np.where(fits, overlaps[place], -1).argmax())
                is_free[best] = False
                is_right[level, place] = True
                is_ignored[level, place] = is_outside[1][best]
    is_ignored |= ~is_right & is_outside[0][None]
    return Matches(scores, is_right, is_ignored, int((~is_outside[1]).sum()))


def precision_and_recall(parts: list[Matches], limit: int) -> Curve:
    """The curve of one class over all pictures, with so many found objects of each at most."""
    num_wanted = sum(part.num_wanted for part in parts)
    if not num_wanted:
        return Curve(np.full((len(OVERLAPS), len(RECALLS)), NONE), np.full(len(OVERLAPS), NONE))
    scores = np.concatenate([part.scores[:limit] for part in parts])
    order = np.argsort(-scores, kind="stable")
    is_right = np.concatenate([part.is_right[:, :limit] for part in parts], axis=1)[:, order]
    is_counted = ~np.concatenate([part.is_ignored[:, :limit] for part in parts], axis=1)[:, order]
    hits, misses = (np.cumsum(flags & is_counted, axis=1, dtype=float) for flags in (is_right, ~is_right))
    precision, recall = np.zeros((len(OVERLAPS), len(RECALLS))), np.zeros(len(OVERLAPS))
    for level in range(len(OVERLAPS) if len(order) else 0):
        reached = hits[level] / num_wanted
        shares = hits[level] / np.maximum(hits[level] + misses[level], 1e-12)
        best_from_here = np.maximum.accumulate(shares[::-1])[::-1]  # a curve that never rises
        places = np.searchsorted(reached, RECALLS, side="left")
        is_reached = places < len(reached)
        precision[level, is_reached] = best_from_here[places[is_reached]]
        recall[level] = reached[-1]
    return Curve(precision, recall)


def mean_of(parts: list[Any]) -> float:
    """The mean of all figures that there are."""
    values = np.concatenate([np.ravel(part) for part in parts]) if parts else np.zeros(0)
    known = values[values > NONE]
    return float(known.mean()) if len(known) else NONE
