"""Peak memory and what is left on the disk, seen from outside of real processes."""

import mmap
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import torch

from footplate.evaluation.memory_limit import MemoryBudget
from footplate.evaluation.store import Store


def run(script, *arguments):
    """What a process of its own prints."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


MEASURE = """
    import gc, re, sys
    import numpy as np, torch
    from footplate.evaluation.collector import Collector

    def batches(num_rows, is_ragged):
        width = np.random.default_rng(0)
        for start in range(0, num_rows, 8):
            shape = (8, int(width.integers(4, 129)), 10) if is_ragged else (8, 512)
            yield torch.full(shape, float(start))

    def peak():
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

    def measure(num_rows, is_ragged, announced, limit):
        num_samples = num_rows if announced else None
        collector = Collector(num_samples, 8, memory_limit=limit, spill_folder=sys.argv[1])
        gc.collect()
        open("/proc/self/clear_refs", "w").write("5")  # the peak begins again
        before = peak()
        for batch in batches(num_rows, is_ragged):
            collector.add(predictions=batch, num_rows=8)
        array = collector.predictions
        return array.nbytes, peak() - before, type(array).__name__

    measure(80, False, True, None), measure(80, True, False, None)  # imports, caches
    for is_ragged in (False, True):
        for announced in (True, False):
            for limit in (None, 10_000_000):
                print(*measure(20_000, is_ragged, announced, limit))
"""


def test_the_peak_is_the_result_and_flat_past_the_limit(tmp_path):
    done = run(MEASURE, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 8
    for (size, peak, kind), has_limit in zip(lines, [False, True] * 4, strict=True):
        assert int(size) >= 20_000 * 512 * 4
        assert kind == ("memmap" if has_limit else "ndarray")
        assert int(peak) <= (1.1 * 10_000_000 if has_limit else 1.1 * int(size)), lines
    assert os.listdir(tmp_path) == []


def test_a_killed_process_leaves_nothing_behind(tmp_path):
    script = """
        import os, signal, sys
        import torch
        from footplate.evaluation.collector import Collector

        collector = Collector(1000, 8, memory_limit=1000, spill_folder=sys.argv[1])
        for _ in range(50):
            collector.add(predictions=torch.ones(8, 512), num_rows=8)
        held = os.popen(f"ls -l /proc/{os.getpid()}/fd").read()
        print(sys.argv[1] in held, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run(script, tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.strip() == "True"  # it was there
    assert os.listdir(tmp_path) == []


def test_memory_that_the_system_refuses_is_replaced_by_a_file(tmp_path):
    script = """
        import re, resource, sys
        import torch
        from footplate.evaluation.collector import Collector

        used = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1])
        resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000, used + 50_000_000))
        collector = Collector(100_000, 8, spill_folder=sys.argv[1])
        collector.add(predictions=torch.ones(8, 512), num_rows=8)
        print(type(collector.predictions).__name__, collector.predictions.sum())
    """
    done = run(script, tmp_path)
    assert done.stdout.split() == ["memmap", str(8.0 * 512)], done.stderr


class StubbornMap(mmap.mmap):
    """As on systems that cannot enlarge a map in place."""

    def resize(self, num_bytes):
        raise SystemError("mmap: resizing not available--no mremap()")


def test_where_maps_keep_their_size_bytes_are_copied(monkeypatch):
    monkeypatch.setattr(mmap, "mmap", StubbornMap)
    store = Store(MemoryBudget(), 0)
    tensors = torch.randn(100, 3000).unbind()
    for tensor in tensors:
        store.append(tensor)
    np.testing.assert_array_equal(store.finish().view(np.float32), torch.cat(tensors))


def test_a_store_that_is_looked_at_grows_elsewhere():
    store = Store(MemoryBudget(), 0)
    store.append(torch.ones(4))
    seen = store.read(0, np.dtype(np.float32), (4,))
    store.append(torch.zeros(100_000))
    assert seen.tolist() == [1, 1, 1, 1]
    assert store.finish().view(np.float32).sum() == 4
