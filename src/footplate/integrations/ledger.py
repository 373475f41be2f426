"""What a tracker has received, kept on disk, so that a restart sends nothing twice."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from footplate.disk import parse_json, read_bytes, replacing, set_aside_unless_file

LEDGER_FOLDER = "trackers"
MAX_BYTES = 1 << 16
_BLOCK = 512  # an entry fills whole blocks, so that the next one usually has the same size and covers it
# without O_BINARY, which only Windows has, bytes written there are changed on their way to the file;
# a pipe that nobody reads would make the run wait
_OVERWRITE = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)

logger = logging.getLogger(__name__)


@dataclass
class Entry:
    """How much of a run one tracker has received."""

    run_id: str
    service_id: str | None  # the run's id at the service
    num_sent: int  # logs
    is_ended: bool = False
    is_closed: bool = False  # before that, the client may hold logs that it has not sent yet


class Ledger:
    """One small file per tracker in `output_dir/trackers`.

    Args:
        output_dir: The run's folder.
        tracker: The tracker's name.
    """

    def __init__(self, output_dir: str | os.PathLike[str], tracker: str) -> None:
        self.path = Path(output_dir, LEDGER_FOLDER, f"{tracker}.json")

    def find(self, run_id: str) -> Entry | None:
        """The entry of `run_id`; None if there is none or, with a warning, if it cannot be read."""
        try:
            entry = _to_entry(parse_json(read_bytes(self.path, MAX_BYTES)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            logger.warning("%s cannot be read, so it is not used: %s.", self.path, error)
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
        """Write how much the tracker has received; takes about ten microseconds."""
        entry = Entry(run_id, service_id, num_sent, is_ended, is_closed)
        data = json.dumps(asdict(entry)).encode()
        data = data.ljust(-(-len(data) // _BLOCK) * _BLOCK)
        if not self._overwrite(data):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            set_aside_unless_file(self.path)
            with replacing(self.path) as file:
                file.write(data)

    def _overwrite(self, data: bytes) -> bool:
        """Write over an entry of the same size; False if there is none."""
        try:
            descriptor = os.open(self.path, _OVERWRITE)
        except OSError:
            return False
        try:
            is_same_size = os.fstat(descriptor).st_size == len(data)
            if is_same_size:
                os.write(descriptor, data)  # one write at the start of the file: a kill leaves either entry
            return is_same_size
        finally:
            os.close(descriptor)


def _to_entry(values: Any) -> Entry:
    """The entry in a file; raises TypeError or ValueError if `note` cannot have written it."""
    entry = Entry(**values)
    is_text = isinstance(entry.run_id, str) and isinstance(entry.service_id, (str, type(None)))
    if not is_text or type(entry.num_sent) is not int or entry.num_sent < 0:
        raise ValueError("it holds other values than a ledger does")
    entry.is_ended, entry.is_closed = bool(entry.is_ended), bool(entry.is_closed)
    return entry
