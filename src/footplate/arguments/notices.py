"""Warnings that are shown only once."""

from __future__ import annotations

import logging
from functools import cache

logger = logging.getLogger(__name__)


@cache
def warn_once(message: str) -> None:
    """Log a warning; the same text is logged once per process."""
    logger.warning(message)
