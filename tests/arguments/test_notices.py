"""A notice is given once per process."""

from __future__ import annotations

import logging

from footplate.arguments.notices import warn_once


def test_each_message_is_logged_once(caplog):
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for message in ("first", "second", "first"):
            warn_once(message)
    assert [record.getMessage() for record in caplog.records] == ["first", "second"]
