"""What a failing process leaves behind: a record for torchrun, and a limit on the time of its end."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import time

from footplate.disk import replacing

EXIT_SECONDS = 20.0


def record_for_torchrun(message: str, lines: str, delay: int = 0) -> None:
    """Leave an error where torchrun, if it started this process, looks for what to show in its summary."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    details = {"py_callstack": lines, "timestamp": str(int(time.time()) + delay)}
    record = {"message": {"message": message, "extraInfo": details}}
    with contextlib.suppress(OSError), replacing(path) as file:  # a full disk must not hide the error itself
        file.write(json.dumps(record).encode())


def remove_record() -> None:
    """Remove what an error that was caught has left for torchrun."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        with contextlib.suppress(OSError):
            os.unlink(path)


def limit_exit() -> None:
    """End this process in a limited time once its code is over: a process group may wait for its peers."""
    atexit.unregister(_start_limit)
    atexit.register(_start_limit)


def _start_limit() -> None:
    # a timer of Python stops when the interpreter ends; this one goes on and needs no lock
    faulthandler.dump_traceback_later(EXIT_SECONDS, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
