"""Serves a report while its runs continue, on this machine only."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from footplate.report.page import build_page, describe_runs
from footplate.report.source import RunSource

LOOPBACK = "127.0.0.1"
OWN_NAMES = {"127.0.0.1", "localhost"}
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ReportServer(ThreadingHTTPServer):
    """A server of one page and its data.

    Args:
        sources: Where the runs are read from.
        defaults: The defaults of their settings.
        port: The port to listen on; 0 for any free port.
    """

    daemon_threads = True

    def __init__(self, sources: Sequence[RunSource], defaults: Mapping[str, Any] | None, port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self._sources, self._defaults = list(sources), defaults
        self._lock = threading.Lock()  # a source is read by one request at a time
        self._version = 0

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def describe(self) -> tuple[str, dict[str, Any]]:
        """The current data of the runs, and a tag that changes with the data."""
        with self._lock:
            self._version += sum(source.update() for source in self._sources)
            runs = [source.data for source in self._sources]
            return f'"{self._version}"', describe_runs(runs, self._defaults, live=True)

    def build(self, described: dict[str, Any]) -> str:
        """The page of this data."""
        return build_page(described)

    def find_page(self, path: str) -> str | None:
        """A further page that is served under this path; None if there is none."""
        return None


class _Handler(BaseHTTPRequestHandler):
    """Answers GET requests for the page and for its data."""

    server: ReportServer
    protocol_version = "HTTP/1.1"
    server_version = "footplate"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page, its data, or an error."""
        # another site may let its name resolve to this machine; its requests still carry that name as host
        host = (self.headers.get("Host") or "").rpartition(":")
        if (host[0] or host[2]).lower() not in OWN_NAMES:
            self._answer(
                HTTPStatus.FORBIDDEN, "text/plain", "This server answers to 127.0.0.1 and localhost."
            )
        elif self.path == "/":
            _, described = self.server.describe()
            self._answer(HTTPStatus.OK, "text/html", self.server.build(described))
        elif self.path == "/data.json":
            tag, described = self.server.describe()
            if self.headers.get("If-None-Match") == tag:
                self._answer(HTTPStatus.NOT_MODIFIED, "application/json", "", tag)
            else:
                self._answer(HTTPStatus.OK, "application/json", json.dumps(described, allow_nan=False), tag)
        elif (page := self.server.find_page(self.path)) is not None:
            self._answer(HTTPStatus.OK, "text/html", page)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "The report is at /.")

    def _answer(self, status: HTTPStatus, kind: str, text: str, tag: str | None = None) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in {**HEADERS, **({"ETag": tag} if tag else {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the base class prints every request."""
