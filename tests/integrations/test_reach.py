"""Services of trackers are tried once, all at the same time, and never for longer than the limit."""

from __future__ import annotations

import socket
import time

import pytest

from footplate.integrations.reach import find_address, reach_trackers


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def nobody():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_one_answers_and_one_does_not(monkeypatch, server, nobody):
    monkeypatch.setenv("WANDB_BASE_URL", server)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("TRACKIO_SERVER_URL", nobody)
    reached = reach_trackers(["wandb", "trackio", "tensorboard", "none"])
    assert [(one.name, bool(one.problem)) for one in reached] == [
        ("wandb", False),
        ("trackio", True),
        ("tensorboard", False),
    ]
    assert f"{nobody} does not answer" in reached[1].problem


def test_a_service_that_hangs_takes_no_longer_than_the_limit(monkeypatch):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:  # the queue of the socket is full: further connections get no answer
            one.setblocking(False)
            one.connect_ex(address)
        monkeypatch.setenv("TRACKIO_SERVER_URL", f"http://127.0.0.1:{address[1]}")
        start = time.monotonic()
        (one,) = reach_trackers(["trackio"], seconds=0.3)
        assert time.monotonic() - start < 1.5
        assert one.problem
        for one in waiting:
            one.close()


def test_a_proxy_is_asked_in_the_place_of_the_service(monkeypatch, server):
    monkeypatch.setenv("http_proxy", server)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://tracker.invalid")
    (one,) = reach_trackers(["trackio"])
    assert not one.problem


@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_nothing_is_tried_where_nothing_is_sent(monkeypatch, mode):
    monkeypatch.setenv("WANDB_MODE", mode)
    assert find_address("wandb") == ""


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("wandb", "WANDB_DISABLED"),
        ("mlflow", "DISABLE_MLFLOW_INTEGRATION"),
        ("kubeflow", "DISABLE_KUBEFLOW_INTEGRATION"),
    ],
)
def test_a_tracker_that_is_turned_off_is_left_out(monkeypatch, name, variable):
    monkeypatch.setenv(variable, "true")
    assert [one.name for one in reach_trackers([name, "tensorboard"])] == ["tensorboard"]


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL", raising=False)
    (one,) = reach_trackers(["kubeflow"])
    assert one.problem == "KUBEFLOW_TRAINER_SERVER_URL is not set"


def test_an_address_that_is_none_is_a_problem_and_no_error(monkeypatch):
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://")
    (one,) = reach_trackers(["trackio"])
    assert "names no host" in one.problem
