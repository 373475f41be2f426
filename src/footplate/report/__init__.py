"""The report of a run: a page, the log history by columns, and curves in a notebook."""

from typing import TYPE_CHECKING

from footplate.homes import load_on_use
from footplate.report.files import save_text as save_page
from footplate.report.history import History
from footplate.report.modules import read_modules
from footplate.report.page import Plot, build_page
from footplate.report.source import RunSource

if TYPE_CHECKING:
    from footplate.report.callback import ReportCallback
else:  # callbacks need torch, and `footplate report` does not
    __getattr__ = load_on_use(__name__, {"ReportCallback": "footplate.report.callback"})

__all__ = ["History", "Plot", "ReportCallback", "RunSource", "build_page", "read_modules", "save_page"]
