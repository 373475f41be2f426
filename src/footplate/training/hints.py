"""Says by which command an update can be made again, when its loss is not finite or far above the others."""

from __future__ import annotations

import logging
import math
import re
import shlex
import statistics
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

# A loss is a spike if it is this far above the logs before it. Six standard deviations alone would name the
# last digit of a loss that hardly moves, and half as much again alone the noise of small batches.
MOST_LOGS, FEWEST_LOGS = 50, 20
NUM_DEVIATIONS, LEAST_RISE = 6.0, 0.5
UNKNOWN_SCRIPT = "SCRIPT"
TASK_FILE = "run.yaml"

# Logs are read by others and uploaded. Of an option's words one of these makes its value a secret, but for
# the pieces of text that a tokenizer has names for.
_SECRET = {
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "key",
    "apikey",
    "credential",
    "credentials",
}
_OF_TEXT = {"bos", "eos", "pad", "unk", "sep", "cls", "mask", "start", "end", "image", "audio", "video"}
HIDDEN = "..."


class Hints:
    """Looks at the logs of one run; speaks at most once of each kind.

    Args:
        output_dir: The run's folder.
        num_ranks: How many processes train.
        speaks: Whether this process is the one that does.
    """

    def __init__(self, output_dir: str, num_ranks: int = 1, speaks: bool = True) -> None:
        self._output_dir, self._num_ranks = output_dir, num_ranks
        self._tells_nonfinite = self._tells_spike = speaks
        self._before: deque[float] | None = None  # the losses of the last logs

    def look(
        self,
        logs: Mapping[str, Any],
        history: Sequence[Mapping[str, Any]],
        step: int,
        first_nonfinite: int | None,
    ) -> None:
        """Look at a log before it joins the history.

        Args:
            logs: The log.
            history: Those before it.
            step: Its update.
            first_nonfinite: The first update since the last log that was not finite, if that is known.
        """
        if logs.get("nonfinite"):
            self.tell_nonfinite(first_nonfinite or step)
        if not self._tells_spike:
            return
        before, loss = self._before, float(logs["loss"])
        if before is None:
            self._before = before = deque(read_losses(history), MOST_LOGS)
        if not logs.get("nonfinite") and is_spike(loss, before):
            self._tells_spike = False
            logger.warning(
                "The loss logged at update %d is %.4g, far above the %d logs before it (mean %.4g, standard "
                "deviation %.2g). To look into it: %s",
                step,
                logs["loss"],
                len(before),
                statistics.fmean(before),
                statistics.pstdev(before),
                self.command(step),
            )
        if math.isfinite(loss):
            before.append(loss)

    def tell_nonfinite(self, step: int) -> None:
        """Name the command for the first update that was not finite."""
        if self._tells_nonfinite:
            self._tells_nonfinite = False
            logger.warning("To see where NaN or infinity began: %s", self.command(step))

    def command(self, step: int) -> str:
        """The command that makes an update again."""
        words = ["footplate", "replay", self._output_dir, "--step", str(step)]
        if self._num_ranks > 1:
            words = ["torchrun", "--nproc-per-node", str(self._num_ranks), "-m", *words]
        return shlex.join([*words, *hide_secrets(find_script(self._output_dir))])


def read_losses(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """The losses of the last logs, without those that are not finite."""
    logged = [float(entry["loss"]) for entry in history[-2 * MOST_LOGS :] if "loss" in entry]
    return [value for value in logged[-MOST_LOGS:] if math.isfinite(value)]


def is_spike(loss: float, before: Collection[float]) -> bool:
    """Whether a loss is far above those before it; False if there are too few to tell."""
    if len(before) < FEWEST_LOGS or not math.isfinite(loss):
        return False
    mean = sum(before) / len(before)
    if loss - mean <= LEAST_RISE * abs(mean):  # nearly always: the deviation takes 40 µs
        return False
    return loss - mean > NUM_DEVIATIONS * statistics.pstdev(before)


def find_script(output_dir: str) -> list[str]:
    """The words that start this program again, after those of the replay; none for a run of a task."""
    main: Any = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    is_ours = Path(sys.argv[0] or "").stem == "footplate" or (
        spec is not None and spec.name.startswith("footplate.")
    )
    if is_ours and Path(output_dir, TASK_FILE).is_file():
        return []
    if spec is not None and not is_ours:
        return ["-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]]
    if file is None or is_ours or not Path(sys.argv[0]).is_file():  # a notebook, or text given to Python
        return [UNKNOWN_SCRIPT]
    return [sys.argv[0], *sys.argv[1:]]


def hide_secrets(words: Sequence[str]) -> list[str]:
    """A command line with dots in the place of keys, tokens and passwords."""
    shown: list[str] = []
    is_next_secret = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_option = word.startswith("-") or bool(equals)
        if is_next_secret and not word.startswith("-"):
            shown.append(HIDDEN)
            is_next_secret = False
            continue
        is_secret = is_option and _names_secret(name)
        shown.append(f"{name}={HIDDEN}" if is_secret and equals else word)
        is_next_secret = is_secret and not equals
    return shown


def _names_secret(option: str) -> bool:
    """Whether an option is named as those that hold a secret."""
    parts = re.split(r"[^a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", option).lower())
    return not _SECRET.isdisjoint(parts) and _OF_TEXT.isdisjoint(parts)


@contextmanager
def silenced() -> Iterator[None]:
    """In the block, no command is named: it is such a command that runs."""
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was
