"""A real MLflow server on the loopback, and a door before it as hosted services have one."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil


@contextlib.contextmanager
def running_server(folder: Path, *options: str) -> Iterator[str]:
    """Its address, as long as the block lasts; its helper processes end with it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/server.db", *options]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    variables.update(MLFLOW_DISABLE_TELEMETRY="true", OMP_NUM_THREADS="1")
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server, folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        helpers = psutil.Process(server.pid).children(recursive=True)
        for process in (psutil.Process(server.pid), *helpers):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        server.wait()
        psutil.wait_procs(helpers, timeout=10)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2):
            return
        assert server.poll() is None, log.read_text()[-3000:]
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


class Door(ThreadingHTTPServer):
    """Lets in who has a login, and passes on what comes for MLflow below whatever path."""

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Doorkeeper)
        self.target = target.removeprefix("http://")
        self.logins: set[str | None] = set()
        self.paths: list[str] = []


class _Doorkeeper(BaseHTTPRequestHandler):
    server: Door

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.logins.add(self.headers["Authorization"])
        before, api, rest = self.path.partition("/api/2.0/")
        self.server.paths.append(before)
        connection = http.client.HTTPConnection(self.server.target, timeout=30)
        headers = {"Content-Type": self.headers["Content-Type"] or "application/json"}
        connection.request(self.command, api + rest, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_POST = do_PATCH = do_PUT = _pass_on

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def open_door(target: str, certificate: tuple[Path, Path] | None = None) -> Iterator[Door]:
    """A door before the server at `target`, behind TLS where there is a certificate with its key."""
    door = Door(target)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        door.socket = context.wrap_socket(door.socket, server_side=True)
    thread = threading.Thread(target=door.serve_forever)
    thread.start()
    try:
        yield door
    finally:
        door.shutdown()
        thread.join()
        door.server_close()
