"""Keeps what a tracker's client does to the process away from training, as far as Python allows."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Iterator

from footplate import rng

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Leave the random generators and the working folder as they were, whatever a client does meanwhile.

    Both belong to the whole process, so this holds only while training itself stands still.
    """
    home = _find_working_folder()
    with rng.scoped():
        yield
    found = _find_working_folder()
    if home is not None and found != home:
        with contextlib.suppress(OSError):
            os.chdir(home)
            logger.info("A tracker changed the working folder to %s; it is %s again.", found, home)


def call_weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A function that calls the method if its object still exists, and does not keep it alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    return call


def _find_working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None
