"""Whether the services of trackers answer: one connection to each, all at once, in a bounded time."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from footplate.integrations.registry import (
    TRACKERS,
    get_available_reporting_integrations,
    is_available,
    turned_off_by,
)

SECONDS = 2.0  # for all trackers together


class _Service(NamedTuple):
    """Where a tracker sends to, and what keeps it from sending."""

    variables: tuple[str, ...]  # of the environment; the first that is set names the address
    address: str | None = None  # without any of them; None if it writes to the disk then
    switches: tuple[str, ...] = ()  # variables that may say that nothing is sent
    offline_words: tuple[str, ...] = ("offline", "disabled", "dryrun", "local", "1", "true", "yes")


SERVICES = {
    "wandb": _Service(("WANDB_BASE_URL",), "https://api.wandb.ai", ("WANDB_MODE",)),
    "comet_ml": _Service(
        ("COMET_URL_OVERRIDE",), "https://www.comet.com", ("COMET_START_MODE", "COMET_MODE", "COMET_OFFLINE")
    ),
    "clearml": _Service(("CLEARML_API_HOST",), "https://api.clear.ml", ("CLEARML_OFFLINE_MODE",)),
    "swanlab": _Service(("SWANLAB_API_HOST",), "https://api.swanlab.cn", ("SWANLAB_MODE",)),
    "mlflow": _Service(("MLFLOW_TRACKING_URI",)),
    "dagshub": _Service(("MLFLOW_TRACKING_URI",)),
    "kubeflow": _Service(("KUBEFLOW_TRAINER_SERVER_URL",)),
    "trackio": _Service(("TRACKIO_SERVER_URL",)),
}


class Reached(NamedTuple):
    """What was seen of one tracker."""

    name: str
    address: str  # empty for one that writes to the disk, or whose service is not known
    problem: str = ""  # why it cannot be used


def reach_trackers(names: Iterable[str], seconds: float = SECONDS) -> list[Reached]:
    """Try each tracker that is not turned off: its package, and a connection to its service; never raises.

    Args:
        names: As in `report_to`.
        seconds: How long to wait for all of them.
    """
    wanted = [name for name in dict.fromkeys(names) if name != "none"]
    if "all" in wanted:
        wanted = list(dict.fromkeys([*get_available_reporting_integrations(), *wanted]))
        wanted.remove("all")
    wanted = [name for name in wanted if turned_off_by(name) is None]  # a run leaves them out
    found: dict[str, Reached] = {}
    threads = []
    for name in wanted:
        address = find_address(name)
        if name in TRACKERS and not is_available(name):
            has_package = name != "kubeflow"
            problem = (
                "its package is not installed" if has_package else "KUBEFLOW_TRAINER_SERVER_URL is not set"
            )
            found[name] = Reached(name, address, problem)
            continue
        found[name] = Reached(name, address)
        if address:
            # a thread, since looking up a name has no time limit of its own
            threads.append(
                threading.Thread(target=_try_one, args=(name, address, found, seconds), daemon=True)
            )
            found[name] = Reached(name, address, f"no answer from {address} in {seconds:g} s")
            threads[-1].start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    return [found[name] for name in wanted]


def find_address(name: str) -> str:
    """The address that a tracker sends to; empty if it writes to the disk, or if nobody knows."""
    service = SERVICES.get(name)
    if service is None:
        return ""
    words = (os.environ.get(variable, "").lower() for variable in service.switches)
    if any(word in service.offline_words for word in words):
        return ""
    named = next((os.environ[name] for name in service.variables if os.environ.get(name)), service.address)
    client = sys.modules.get("mlflow")  # a script may have set the address by a call
    if name in ("mlflow", "dagshub") and client is not None:
        named = client.get_tracking_uri()
    return named if named is not None and named.startswith(("http://", "https://")) else ""


def _try_one(name: str, address: str, found: dict[str, Reached], seconds: float) -> None:
    """Connect to where the tracker sends, or to the proxy in front of it; note how it went."""
    try:
        host, port = _find_host(address)
        socket.create_connection((host, port), timeout=seconds).close()
    except Exception as error:  # a wrong address too
        found[name] = Reached(name, address, f"{address} does not answer: {error or type(error).__name__}")
    else:
        found[name] = Reached(name, address)


def _find_host(address: str) -> tuple[str, int]:
    """The host and port to connect to."""
    target = urlsplit(address)
    proxy = getproxies().get(target.scheme)
    if proxy and target.hostname and not proxy_bypass(target.hostname):
        target = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    if target.hostname is None:
        raise ValueError(f"{address!r} names no host")
    return target.hostname, target.port or (443 if target.scheme == "https" else 80)
