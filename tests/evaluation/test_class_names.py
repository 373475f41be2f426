"""What classes are called."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from footplate.evaluation.class_names import find_class_names

datasets = pytest.importorskip("datasets")


def with_features(**features):
    return datasets.Dataset.from_dict({name: [] for name in features}, features=datasets.Features(features))


@pytest.mark.parametrize("names", [{0: "no", 1: "yes"}, {"1": "yes", "0": "no"}])
def test_the_config_of_the_model_names_them(names):
    assert find_class_names(SimpleNamespace(id2label=names), None, ["labels"]) == ["no", "yes"]


@pytest.mark.parametrize("names", [{0: "LABEL_0", 1: "LABEL_1"}, {}, None, {0: "a", 7: "b"}])
def test_names_that_nobody_gave_are_none(names):
    assert find_class_names(SimpleNamespace(id2label=names), None, ["labels"]) is None
    assert find_class_names(None, [{"labels": 1}], ["labels"]) is None


def test_a_column_of_the_dataset_names_them():
    column = datasets.ClassLabel(names=["no", "yes"])
    assert find_class_names(None, with_features(labels=column), ["labels"]) == ["no", "yes"]
    assert find_class_names(None, with_features(label=column), ["labels"]) == ["no", "yes"]
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "PER"]))
    assert find_class_names(None, with_features(ner_tags=tags), ["labels"]) == ["O", "PER"]
    numbers = with_features(labels=datasets.Value("int64"))
    assert find_class_names(None, numbers, ["labels"]) is None
