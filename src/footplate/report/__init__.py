"""The report of a run: one page to look at, its history as columns, its curves in a notebook."""

from footplate.report.callback import ReportCallback
from footplate.report.history import History
from footplate.report.page import Plot, build_page, save_page
from footplate.report.source import RunSource

__all__ = ["History", "Plot", "ReportCallback", "RunSource", "build_page", "save_page"]
