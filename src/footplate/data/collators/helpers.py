"""Small helpers of the API around collators."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from footplate.data.collators.default import default_data_collator
from footplate.data.collators.padding import quiet_about_padding

InputDataClass = Any

torch_default_data_collator = partial(default_data_collator, return_tensors="pt")
numpy_default_data_collator = partial(default_data_collator, return_tensors="np")


def pad_without_fast_tokenizer_warning(tokenizer: Any, *pad_args: Any, **pad_kwargs: Any) -> Any:
    """What `tokenizer.pad` returns, without its advice to call the tokenizer instead.

    Args:
        tokenizer: Anything with a `pad` method.
        *pad_args: Passed to it.
        **pad_kwargs: Passed to it.
    """
    with quiet_about_padding(tokenizer):
        return tokenizer.pad(*pad_args, **pad_kwargs)


def to_numpy(x: Any) -> Any:
    """A tensor, an array or a nested list as an array on the host.

    Args:
        x: The values.
    """
    if isinstance(x, np.ndarray):
        return x
    return x.detach().cpu().numpy() if hasattr(x, "detach") else np.array(x)
