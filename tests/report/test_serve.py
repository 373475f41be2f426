"""A live report: on this machine, for its own name, and nothing besides."""

from __future__ import annotations

import http.client
import json
import threading

import pytest

from footplate.report.serve import ReportServer
from footplate.report.source import RunSource


@pytest.fixture
def server(finished):
    with ReportServer([RunSource(finished.folder)], {}, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(
        method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    body = answer.read().decode("utf-8")
    connection.close()
    return answer, body


def test_the_page_and_its_data_are_served(server):
    answer, page = ask(server)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert '"live":true' in page
    answer, text = ask(server, "/data.json")
    assert answer.status == 200
    assert json.loads(text)["runs"][0]["step"] == 100


def test_only_the_loopback_listens(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "", "[::1]:80"]
)
def test_a_foreign_name_that_leads_here_is_refused(server, host):
    answer, body = ask(server, "/data.json", Host=host)
    assert answer.status == 403
    assert "runs" not in body


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "LOCALHOST:1", "127.0.0.1"])
def test_its_own_names_are_answered_through_any_tunnel(server, host):
    assert ask(server, "/", Host=host)[0].status == 200


@pytest.mark.parametrize("path", ["/events.jsonl", "/../events.jsonl", "/run/", "/data.json/..", "/?x=1"])
def test_there_is_nothing_else_to_see(server, path):
    assert ask(server, path)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_nothing_but_looking_is_possible(server, method):
    assert ask(server, "/", method)[0].status == 501


def test_nothing_new_is_not_sent_again(server, finished):
    tag = ask(server, "/data.json")[0].headers["ETag"]
    answer, body = ask(server, "/data.json", If_None_Match=tag)
    assert (answer.status, body) == (304, "")
    finished.begin("second")
    finished.log(1, loss=3.0)
    answer, body = ask(server, "/data.json", If_None_Match=tag)
    assert answer.status == 200
    assert answer.headers["ETag"] != tag
    assert json.loads(body)["runs"][0]["run_id"] == "second"


def test_no_page_of_others_may_frame_or_read_it(server):
    headers = ask(server)[0].headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
