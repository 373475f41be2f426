"""What a tracker has got already, on disk, so that a restart sends nothing twice."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

LEDGER_FOLDER = "trackers"
_BLOCK = 512  # an entry fills whole blocks, so that the next one covers it to the last byte


@dataclass
class Entry:
    """How far a run has come with one tracker: its id there, its logs that were sent, its end, its close."""

    run_id: str
    service_id: str | None
    num_sent: int
    is_ended: bool = False
    is_closed: bool = False  # until then, a client may have taken what it has not passed on


class Ledger:
    """One small file per tracker in `output_dir/trackers`.

    Args:
        output_dir: The run's folder.
        tracker: The tracker's name.
    """

    def __init__(self, output_dir: str | os.PathLike[str], tracker: str) -> None:
        self.path = Path(output_dir, LEDGER_FOLDER, f"{tracker}.json")

    def find(self, run_id: str) -> Entry | None:
        """What is noted about `run_id`, if anything."""
        try:
            entry = Entry(**json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return entry if entry.run_id == run_id else None

    def note(
        self,
        run_id: str,
        service_id: str | None,
        num_sent: int,
        is_ended: bool = False,
        is_closed: bool = False,
    ) -> None:
        """Write down how far the tracker has come; costs some ten microseconds."""
        entry = Entry(run_id, service_id, num_sent, is_ended, is_closed)
        data = json.dumps(asdict(entry)).encode()
        data = data.ljust(-(-len(data) // _BLOCK) * _BLOCK)
        try:
            descriptor = os.open(self.path, os.O_WRONLY)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._replace(data)
            return
        try:
            if os.fstat(descriptor).st_size == len(data):
                os.pwrite(descriptor, data, 0)  # one write over the old entry: a kill leaves either
            else:
                self._replace(data)
        finally:
            os.close(descriptor)

    def _replace(self, data: bytes) -> None:
        temporary = self.path.with_suffix(".new")
        temporary.write_bytes(data)
        os.replace(temporary, self.path)
