"""The report of a run: a page, the log history by columns, and curves in a notebook."""

from typing import TYPE_CHECKING, Any

from footplate.report.files import save_text as save_page
from footplate.report.history import History
from footplate.report.page import Plot, build_page
from footplate.report.source import RunSource

if TYPE_CHECKING:
    from footplate.report.callback import ReportCallback

__all__ = ["History", "Plot", "ReportCallback", "RunSource", "build_page", "save_page"]


def __getattr__(name: str) -> Any:
    """`ReportCallback`, loaded when asked for: callbacks need torch, and `footplate report` does not."""
    if name == "ReportCallback":
        from footplate.report.callback import ReportCallback

        return ReportCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
