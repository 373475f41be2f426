"""Which way a metric gets better, as far as its name tells."""

from __future__ import annotations

import re

_FALLS = re.compile(r"(loss|perplexity|error|rmse|distance)$|(^|[^a-z0-9])(wer|cer|mse|mae)$", re.IGNORECASE)
_RISES = re.compile(r"(accuracy|f1|bleu|rouge|exact.match|precision|recall|auc|map)$", re.IGNORECASE)


def seems_to_fall(name: str) -> bool:
    """Whether a smaller value of the metric is better, as with `wer`."""
    return _FALLS.search(name) is not None


def seems_to_rise(name: str) -> bool:
    """Whether a larger value of the metric is better, as with `accuracy`."""
    return _RISES.search(name) is not None
