"""The name of a metric tells which way it gets better, where it tells anything."""

import pytest

from footplate.directions import seems_to_fall, seems_to_rise


@pytest.mark.parametrize(
    "name", ["eval_wer", "wer", "mlm_loss", "myloss", "eval_de-mse", "Perplexity", "rmse"]
)
def test_what_should_fall(name):
    assert seems_to_fall(name)
    assert not seems_to_rise(name)


@pytest.mark.parametrize("name", ["eval_accuracy", "exact_match", "exact-match", "f1", "macro_f1", "bleu"])
def test_what_should_rise(name):
    assert seems_to_rise(name)
    assert not seems_to_fall(name)


@pytest.mark.parametrize("name", ["eval_answer", "officer", "number", "eval_time"])
def test_other_words_tell_nothing(name):
    assert not seems_to_fall(name)
    assert not seems_to_rise(name)
