"""All rows of a batch in readable form, whatever they are."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from footplate.samples.batch import SampleBatch
from footplate.samples.formatters import format_plain, pick_formatter
from footplate.samples.text import TextReader, plain_value

logger = logging.getLogger(__name__)


def show_all(sample: SampleBatch, num_rows: int) -> list[dict[str, Any]]:
    """The rows by the formatter for their task; as plain numbers where it fails, empty where both do.

    Args:
        sample: The batch, on the host.
        num_rows: How many rows it has.
    """
    plain = replace(sample, predictions=None, reader=TextReader())  # the tokenizer may be the cause
    for formatter, rows in ((pick_formatter, sample), (lambda _: format_plain, plain)):
        try:
            shown = formatter(rows)(rows)
        except Exception as error:  # rows in an unusual form must not end what they are shown for
            logger.debug("The rows cannot be shown as those of a task: %r", error)
            continue
        if len(shown) == num_rows:
            return [{str(name): plain_value(value) for name, value in row.items()} for row in shown]
    return [{} for _ in range(num_rows)]
