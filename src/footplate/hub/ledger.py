"""What of a run is on the Hub and what is not, kept on disk: after a kill, `footplate push` knows it too."""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from footplate.disk import read_json, replacing
from footplate.hub.contents import LAST_CHECKPOINT, LEDGER_NAME, MODEL

MAX_BYTES = 1 << 20

logger = logging.getLogger(__name__)


@dataclass
class HubLedger:
    """Where a run is sent, and what has arrived there.

    Args:
        repository: As it was named, or with its owner once the Hub has said it.
        revision: The branch.
        private: Whether a new repository is private.
        strategy: `hub_strategy`.
        waiting: What was to be sent and has not arrived, in the words of messages.
        sent: What has arrived, newest last.
    """

    repository: str
    revision: str | None = None
    private: bool | None = None
    strategy: str = "every_save"
    waiting: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def expect(self, names: list[str]) -> None:
        """Note what is about to be sent."""
        self.waiting = [*(name for name in self.waiting if name not in names), *names]

    def arrive(self, names: list[str]) -> None:
        """Note what has arrived; older ones that it takes the place of are not waited for any more."""
        kinds = tuple(
            kind for kind in (MODEL, LAST_CHECKPOINT) if any(name.startswith(kind) for name in names)
        )
        end = max((index + 1 for index, name in enumerate(self.waiting) if name in names), default=0)
        older = [name for name in self.waiting[:end] if not name.startswith(kinds) and name not in names]
        self.waiting = older + self.waiting[end:]
        self.sent = [*(name for name in self.sent if name not in names), *names][-1000:]

    def save(self, folder: Path) -> None:
        """Write it; a full disk must not stop anything."""
        with contextlib.suppress(OSError), replacing(folder / LEDGER_NAME) as file:
            file.write(json.dumps(asdict(self), indent=1).encode())


def load_ledger(folder: Path) -> HubLedger | None:
    """The ledger of a run; None if there is none, or if it cannot be read."""
    try:
        values: dict[str, Any] = read_json(folder / LEDGER_NAME, MAX_BYTES)
        ledger = HubLedger(**values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        logger.warning("%s cannot be read, so it is not used: %s", folder / LEDGER_NAME, error)
        return None
    is_sound = isinstance(ledger.repository, str) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names)
        for names in (ledger.waiting, ledger.sent)
    )
    return ledger if is_sound else None
