"""What a failing process leaves behind."""

from __future__ import annotations

import subprocess
import sys
import time

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from footplate.distributed.endings import record_for_torchrun, remove_record


def test_torchrun_reads_the_record(tmp_path, monkeypatch):
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    record_for_torchrun("ValueError: no", "Traceback\nValueError: no", delay=1)
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=str(path))
    assert failure.message["extraInfo"]["py_callstack"] == "Traceback\nValueError: no"
    assert time.time() - 1 < failure.timestamp <= time.time() + 1
    remove_record()
    assert not path.exists()
    remove_record()


def test_a_folder_that_is_gone_raises_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "gone" / "error.json"))
    record_for_torchrun("ValueError: no", "")


def test_a_process_that_waits_at_its_end_is_ended():
    program = """
import time
from footplate.distributed import endings

class Group:
    def __del__(self):  # as a process group that waits for its peers
        time.sleep(60)

group = Group()
endings.EXIT_SECONDS = 0.5
endings.limit_exit()
raise ValueError("the reason")
"""
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("ValueError: the reason")
    assert time.monotonic() - start < 40
