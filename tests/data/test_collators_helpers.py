"""Helpers around collators."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from footplate.data.collators import helpers


def test_padding_is_quiet_and_leaves_the_tokenizer_as_it_was():
    notice = "Asking-to-pad-a-fast-tokenizer"
    seen = []
    tokenizer = SimpleNamespace(deprecation_warnings={})
    tokenizer.pad = lambda *args, **kwargs: seen.append(
        (args, kwargs, tokenizer.deprecation_warnings[notice])
    )
    helpers.pad_without_fast_tokenizer_warning(tokenizer, [1], padding=True)
    assert seen == [(([1],), {"padding": True}, True)]
    assert tokenizer.deprecation_warnings == {notice: False}
    extractor = SimpleNamespace(pad=lambda rows: rows)
    assert helpers.pad_without_fast_tokenizer_warning(extractor, [2]) == [2]


def test_collators_by_the_kind_of_batch():
    rows = [{"x": 1, "label": 0}, {"x": 2, "label": 1}]
    assert isinstance(helpers.torch_default_data_collator(rows)["x"], torch.Tensor)
    assert isinstance(helpers.numpy_default_data_collator(rows)["labels"], np.ndarray)


def test_anything_becomes_an_array():
    made = [helpers.to_numpy(x) for x in (torch.ones(2, requires_grad=True), [1.0, 1.0], np.ones(2))]
    assert all(np.array_equal(array, np.ones(2)) for array in made)
