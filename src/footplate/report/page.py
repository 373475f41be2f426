"""The page: one self-contained file that makes no network requests."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from footplate.report.data import MAX_SAMPLE_CHARACTERS, RunData
from footplate.report.files import save_text
from footplate.report.source import events_of_state

REPORT_NAME = "report.html"
MAX_POINTS = 240_000  # of all curves of a page together: about 6 MB
MAX_CURVE_POINTS = 4000
ASSETS = Path(__file__).with_name("assets")
SCRIPTS = (
    *("uPlot.iife.min.js", "tools.js", "charts.js", "sections.js"),
    *("hardest.js", "sets.js", "classes.js", "answers.js", "modules.js", "model.js"),
    *("page.js", "shell.js"),
)
STYLES = ("uPlot.min.css", "page.css", "hardest.css", "sets.css", "modules.css", "model.css")

# settings that TrainingArguments fills in, so that they always differ from the default
FILLED_IN = frozenset(("accelerator_config", "output_dir", "logging_dir", "run_name"))


def describe_runs(
    runs: Sequence[RunData],
    defaults: Mapping[str, Any] | None = None,
    scope: str = "page",
    live: bool = False,
) -> dict[str, Any]:
    """The data for the page's script: every run, with fewer points per curve if there are many curves.

    Args:
        runs: One run, or several to compare.
        defaults: The defaults of the settings, for runs of before the journal had them.
        scope: `page` for everything, `charts` for the curves only.
        live: Whether the page is served and asks for new data.
    """
    num_curves = max(1, sum(len(run.curves) for run in runs))
    num_points = max(100, min(MAX_CURVE_POINTS, MAX_POINTS // num_curves))
    num_characters = MAX_SAMPLE_CHARACTERS // max(1, len(runs))
    return {
        "runs": [run.to_plain(num_points, num_characters) for run in runs],
        "defaults": {**(defaults or {}), **{k: v for run in runs for k, v in run.defaults.items()}},
        "filled_in": sorted(FILLED_IN),
        "scope": scope,
        "live": live,
        "written": time.time(),
    }


def build_page(described: Mapping[str, Any]) -> str:
    """The page as text, from the result of `describe_runs`."""
    title = " · ".join(run["name"] for run in described["runs"])
    return assemble_page(described, title, SCRIPTS, STYLES)


def assemble_page(
    described: Mapping[str, Any], title: str, scripts: tuple[str, ...], styles: tuple[str, ...]
) -> str:
    """A page of some data, with scripts and styles from the assets.

    Args:
        described: The data for the scripts, as strict JSON allows it; `live` says whether the page is served.
        title: What the window is called.
        scripts: The names of the scripts, in order.
        styles: The names of the styles, in order.
    """
    script, style = _join_assets(scripts), _join_assets(styles)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",  # by hash: the browser runs no text of a run as code
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "connect-src 'self'" if described["live"] else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    template = (ASSETS / "page.html").read_text(encoding="utf-8")
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"{title} · footplate".encode("utf-8", "replace").decode("utf-8")),
        "STYLE": style,
        "DATA": to_script_json(described),
        "SCRIPT": script,
    }
    # text, name, text, name, ..., text; split first, so that "@@" inside a part is not replaced
    pieces = template.split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def to_script_json(value: Any) -> str:
    """JSON that is safe inside a script tag: only ASCII, and no character that could end the tag."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def frame_page(page: str, height: int) -> str:
    """A page inside the output of a notebook, which it cannot reach.

    Args:
        page: Its text.
        height: Of the frame, in pixels.
    """
    return (
        f'<iframe sandbox="allow-scripts" width="100%" height="{height}" style="border:0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


class Plot:
    """The curves of a run: a notebook displays them, and `save` writes them as a page.

    Args:
        log_history: The entries, as `state.log_history` holds them.
        name: The name of the run.
        max_steps: Updates the run will make.
        height: Of the frame in the notebook, in pixels.
    """

    def __init__(
        self,
        log_history: Sequence[Mapping[str, Any]],
        name: str = "run",
        max_steps: int = 0,
        height: int = 640,
    ) -> None:
        self.height = height
        self._run = RunData(name)
        state = {"log_history": [dict(entry) for entry in log_history], "max_steps": max_steps, "name": name}
        for event in events_of_state(state):
            self._run.add(event)

    def to_html(self) -> str:
        """The page with the curves."""
        return build_page(describe_runs([self._run], scope="charts"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page."""
        save_text(self.to_html(), path)

    def _repr_html_(self) -> str:
        return frame_page(self.to_html(), self.height)

    def __repr__(self) -> str:
        keys = ", ".join(f"{split}/{metric}" for split, metric in self._run.curves)
        return f"Plot({keys})"


@lru_cache(maxsize=4)  # scripts and styles of the pages of runs and of searches
def _join_assets(names: tuple[str, ...]) -> str:
    return "\n".join((ASSETS / name).read_text(encoding="utf-8").strip() for name in names)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
