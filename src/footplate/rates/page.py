"""The page of a sweep of learning rates: one self-contained file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from footplate.rates.text import shown_range
from footplate.report.page import assemble_page

SCRIPTS = ("tools.js", "axes.js", "rates.js", "shell.js")
STYLES = ("page.css", "rates.css")


def build_rates_page(found: Mapping[str, Any]) -> str:
    """The page as text, from what `LearningRates.to_dict` gives."""
    shown = shown_range(found["losses"], found["smoothed"]) if found["losses"] else (0.0, 1.0)
    described = {"found": {**found, "shown": shown}, "live": False, "written": time.time()}
    return assemble_page(described, f"Learning rate · {found['name']}", SCRIPTS, STYLES)
