"""A process that runs trials for a search: `python -m footplate.search.worker`, started by `processes.py`."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from multiprocessing.connection import Connection

LOOK_SECONDS = 1.0


def main() -> None:
    """Read what to run from the pipe that was handed over, and run it with that pipe."""
    connection: Connection = Connection(int(sys.argv[1]))
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    sys.path[:] = connection.recv()
    function = pickle.loads(connection.recv_bytes())
    function(connection)


def end_with_parent(parent: int) -> None:
    """End this process when the search is killed: the next one would write into the same folder."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
