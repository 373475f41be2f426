"""Metric objects in the place of `compute_metrics`."""

from __future__ import annotations

import pytest
import torch
from torchmetrics import MeanAbsoluteError, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from footplate.evaluation.streaming import StreamingMetrics, check_is_object, is_streaming

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 2.0], [5.0, 0.0, 0.0]])
LABELS = torch.tensor([0, 1, 1, 0])


def test_objects_with_update_and_compute_are_recognised_and_functions_are_not():
    assert is_streaming(MeanAbsoluteError())
    assert is_streaming({"a": MeanAbsoluteError(), "b": MulticlassAccuracy(3)})
    assert is_streaming(MetricCollection([MulticlassAccuracy(3)]))
    assert not is_streaming(lambda prediction: {})
    assert not is_streaming(None)
    assert not is_streaming({})
    assert not is_streaming({"a": len})
    assert not is_streaming(MeanAbsoluteError)  # the class, where an object was meant


def test_batches_give_what_the_whole_set_gives():
    stream = StreamingMetrics({"acc": MulticlassAccuracy(3, average="micro"), "f1": MulticlassF1Score(3)})
    stream.update(LOGITS[:1], LABELS[:1])
    stream.update(LOGITS[1:], LABELS[1:])
    results = stream.compute()
    assert float(results["acc"]) == 0.75
    assert float(results["f1"]) == float(MulticlassF1Score(3)(LOGITS, LABELS))


def test_a_lone_metric_goes_by_the_name_of_its_class():
    stream = StreamingMetrics(MulticlassF1Score(3))
    stream.update(LOGITS, LABELS)
    assert list(stream.compute()) == ["multiclass_f1_score"]


def test_a_collection_keeps_its_own_names():
    stream = StreamingMetrics(MetricCollection({"acc": MulticlassAccuracy(3, average="micro")}))
    stream.update(LOGITS, LABELS)
    assert {name: float(value) for name, value in stream.compute().items()} == {"acc": 0.75}


def test_a_second_evaluation_starts_from_nothing():
    metric = MeanAbsoluteError()
    for expected in (1.0, 3.0):
        stream = StreamingMetrics(metric)
        stream.update(torch.zeros(4), torch.full((4,), expected))
        assert float(stream.compute()["mean_absolute_error"]) == expected


@pytest.mark.parametrize("given", [MeanAbsoluteError, {"error": MeanAbsoluteError}], ids=["one", "by name"])
def test_the_class_of_a_metric_is_refused(given):
    with pytest.raises(TypeError, match=r"the class MeanAbsoluteError.*MeanAbsoluteError\(\.\.\.\)"):
        check_is_object(given)


def test_a_dictionary_of_functions_is_refused_with_what_to_do_instead():
    with pytest.raises(TypeError, match=r"a dictionary \(a, b\).*prediction\.dataset_name"):
        check_is_object({"a": len, "b": len})
