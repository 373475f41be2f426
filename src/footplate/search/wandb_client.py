"""The client of Weights & Biases, as a search needs it: there, online, and never waiting without end."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from footplate.words import read_flag

CONNECT_SECONDS, FINISH_SECONDS = 10.0, 120.0


def import_wandb() -> Any:
    """The package; without it, an error that says what to do."""
    try:
        import wandb
    except ImportError as error:
        raise ImportError(
            "backend='wandb' needs a package: pip install 'footplate[wandb]'. backend='random' and "
            "backend='grid' need none."
        ) from error
    return wandb


def check_online(client: Any) -> str:
    """The address of the service; refuses a client that does not talk to it, or has a run open."""
    settings = client.setup().settings
    mode = os.getenv("WANDB_MODE") or settings.mode
    if read_flag("WANDB_DISABLED") or mode not in ("online", "run", "shared"):
        given = "WANDB_DISABLED" if read_flag("WANDB_DISABLED") else f"WANDB_MODE={mode}"
        raise ValueError(
            f"backend='wandb' asks the service of W&B for the values of each trial, and {given} keeps the "
            "client away from it. Set WANDB_MODE=online, or use backend='random' or 'optuna'."
        )
    if client.run is not None:
        raise ValueError(
            f"Run {client.run.id} of W&B is open, and a sweep begins a run for each trial. Call "
            "wandb.finish() before the search."
        )
    url = str(settings.base_url)
    check_reachable(url)
    return url


def check_reachable(url: str) -> None:
    """Raise if nothing answers at the address: the client itself would try again and again."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if getproxies().get(parts.scheme) and not proxy_bypass(host):
        return  # only the proxy can tell
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"The service of W&B does not answer at WANDB_BASE_URL={url} ({error}), and a sweep needs it. "
            "Set WANDB_BASE_URL, or use backend='random' or 'optuna'."
        ) from error


def bound_finish(client: Any) -> Any:
    """Settings with which the end of a run waits for the service for a while only, or as long as is set."""
    fields = getattr(client.Settings, "model_fields", {})
    if not {"finish_timeout", "finish_timeout_raises"} <= set(fields):  # an older client
        return None
    seconds = client.setup().settings.finish_timeout or FINISH_SECONDS
    return client.Settings(finish_timeout=seconds, finish_timeout_raises=True)


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread, by which the agent ends in good order."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
        )


def describe(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
