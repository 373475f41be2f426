"""How much memory the order of an epoch takes, and a notice where that is more than the settings allow."""

from __future__ import annotations

import logging
from functools import cache

from footplate.words import parse_bytes

logger = logging.getLogger(__name__)

# Measured. A tensor of 8 bytes per row becomes a list: 8 bytes for each entry, 32 for the number it names.
BYTES_PER_ROW = 48


def parse_order_limit(value: int | str | None) -> int | None:
    """The bytes that `order_memory_limit` means; None for no limit."""
    if value is None:
        return None
    num_bytes = parse_bytes(value) if isinstance(value, str) else value
    if isinstance(num_bytes, int) and not isinstance(num_bytes, bool) and num_bytes > 0:
        return num_bytes
    raise ValueError(
        f"order_memory_limit={value!r} is not an amount of memory. Give bytes as a whole number above 0, or "
        'a size such as "4GB" or "512MiB"; None turns the notice off.'
    )


def warn_of_memory(strategy: str, num_rows: int, limit: int | None) -> None:
    """Say how much memory the list of an epoch's indices takes, if that is more than `limit`."""
    if limit is not None and num_rows * BYTES_PER_ROW > limit:
        _warn(strategy, num_rows, limit)


@cache  # a loader is built more than once: once per process for the same size is enough
def _warn(strategy: str, num_rows: int, limit: int) -> None:
    logger.warning(
        "The order of %s samples takes %.3g GB of memory in each process, more than order_memory_limit=%.3g "
        'GB. train_sampling_strategy="keyed" shuffles without that memory%s. Raise order_memory_limit, or '
        "set it to None, to turn this notice off.",
        f"{num_rows:,}",
        num_rows * BYTES_PER_ROW / 1e9,
        limit / 1e9,
        "" if strategy == "random" else ", but neither weighs samples nor groups them by length",
    )
