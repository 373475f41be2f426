"""Files are written and hashed in one pass, whole or not at all."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import zipfile

import pytest
import torch

from footplate.checkpoint import stream as stream_module
from footplate.checkpoint.files import load_plain, save_plain
from footplate.checkpoint.hashing import hash_file
from footplate.checkpoint.stream import BUFFER_BYTES, Stream, collecting_hashes, writing

BLOCK = 1 << 20


def hash_of(path):
    with open(path, "rb") as file:
        return hash_file(file)


def write(path, pieces):
    with collecting_hashes() as hashes, writing(path) as stream:
        for piece in pieces:
            assert stream.write(piece) == len(piece)
    return hashes[path]


@pytest.mark.parametrize(
    "size", [0, 1, 4096, BLOCK - 1, BLOCK, BUFFER_BYTES - 1, BUFFER_BYTES, 2 * BUFFER_BYTES + BLOCK + 5]
)
@pytest.mark.parametrize("piece", [1_000_003, 5 * BLOCK])
def test_the_file_holds_the_bytes_and_the_hash_is_theirs(size, piece, tmp_path):
    data = os.urandom(size)
    written = write(tmp_path / "file", [data[at : at + piece] for at in range(0, size, piece)])
    assert (tmp_path / "file").read_bytes() == data
    assert written.hash == hash_of(tmp_path / "file")
    assert written.is_still((tmp_path / "file").stat())
    assert os.listdir(tmp_path) == ["file"]


def test_large_files_bypass_the_page_cache_and_their_ends_do_not(tmp_path, monkeypatch):
    sizes = {True: [], False: []}
    original = os.write

    def watched(descriptor, data):
        is_direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        sizes[is_direct].append(len(data))
        return original(descriptor, data)

    monkeypatch.setattr(os, "write", watched)
    write(tmp_path / "file", [bytes(2 * BUFFER_BYTES + 5)])
    if not sizes[True]:
        assert not can_be_direct(tmp_path)
        assert sizes[False] == [BUFFER_BYTES, BUFFER_BYTES, 5]
    else:
        assert sizes == {True: [BUFFER_BYTES, BUFFER_BYTES], False: [5]}


def can_be_direct(folder):
    try:
        os.close(os.open(folder / "probe", os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("refusal", ["flag", "write", "part"])
def test_a_file_system_without_direct_writes_gets_the_same_file(refusal, tmp_path, monkeypatch):
    data = os.urandom(2 * BUFFER_BYTES + 5)
    write_to, control = os.write, fcntl.fcntl

    def refused_write(descriptor, piece):
        if control(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            if refusal == "write":
                raise OSError(errno.EINVAL, "Invalid argument")
            # some bytes are written, and what is left is no whole page any more
            control(descriptor, fcntl.F_SETFL, control(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
            num_written = write_to(descriptor, piece[:1000])
            control(descriptor, fcntl.F_SETFL, control(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
            return num_written
        return write_to(descriptor, piece)

    def refused_flag(descriptor, command, *values):
        if command == fcntl.F_SETFL and values[0] & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return control(descriptor, command, *values)

    if refusal == "flag":
        monkeypatch.setattr(fcntl, "fcntl", refused_flag)
    else:
        monkeypatch.setattr(os, "write", refused_write)
    written = write(tmp_path / "file", [data])
    assert (tmp_path / "file").read_bytes() == data
    assert written.hash == hash_of(tmp_path / "file")


def test_a_system_that_does_not_know_direct_writes_gets_the_same_file(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_module, "_DIRECT", 0)
    data = os.urandom(BUFFER_BYTES + 5)
    assert write(tmp_path / "file", [data]).hash == hash_of(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == data


def test_nothing_is_hashed_unless_somebody_asks(tmp_path, monkeypatch):
    def start_hash():
        raise AssertionError("a hash was started")

    monkeypatch.setattr(stream_module, "start_hash", start_hash)
    with writing(tmp_path / "file") as stream:
        stream.write(b"12")
    assert (tmp_path / "file").read_bytes() == b"12"


def test_a_share_that_refuses_times_gets_the_file_and_no_hash(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "supports_fd", {*os.supports_fd, refuse})
    with collecting_hashes() as hashes, writing(tmp_path / "file") as stream:
        stream.write(b"12")
    assert (tmp_path / "file").read_bytes() == b"12"
    assert hashes == {}


def test_another_thread_does_not_add_to_the_hashes(tmp_path):
    with collecting_hashes() as hashes:
        thread = threading.Thread(target=save_plain, args=({"a": 1}, tmp_path / "other.pt"))
        thread.start()
        thread.join()
        save_plain({"a": 1}, tmp_path / "own.pt")
    assert set(hashes) == {tmp_path / "own.pt"}
    save_plain({"a": 2}, tmp_path / "later.pt")
    assert set(hashes) == {tmp_path / "own.pt"}


def test_a_change_that_follows_at_once_shows(tmp_path):
    for number in range(20):
        path = tmp_path / f"{number}"
        written = write(path, [b"0" * 5000])
        with open(path, "r+b") as file:
            file.write(b"1")
        assert not written.is_still(path.stat())


def test_torch_reads_what_it_wrote_through_a_stream_and_so_does_zip(tmp_path):
    path = tmp_path / "optimizer.pt"
    state = {"a": torch.randn(3_000_000), "b": torch.arange(7), "step": 3}
    with collecting_hashes() as hashes:
        save_plain(state, path)
    back = load_plain(path)
    assert torch.equal(back["a"], state["a"])
    assert torch.equal(back["b"], state["b"])
    assert back["step"] == 3
    assert hashes[path].hash == hash_of(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_the_earlier_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "file.pt"
    save_plain({"a": 1}, path)
    with pytest.raises(TypeError):
        write(path, [b"half", None])
    assert load_plain(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["file.pt"]


LIMITED = """
import resource, signal, sys, torch
from pathlib import Path
from footplate.checkpoint.files import save_plain
from footplate.checkpoint.tensors import save_tensors
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, 20_000_000))
path = Path(sys.argv[1])
save = save_plain if path.suffix == ".pt" else save_tensors
try:
    save({"a": torch.ones(3_000_000), "b": torch.ones(5_000_000)}, path)
except OSError as error:
    print(error.errno)
"""


@pytest.mark.parametrize("name", ["file.pt", "file.safetensors"])
def test_a_disk_that_takes_no_more_is_an_error_of_the_system_with_its_number(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / name)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == errno.EFBIG
    assert os.listdir(tmp_path) == []


def test_an_error_of_the_disk_is_raised_again_for_each_later_write(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        descriptor = os.open(tmp_path / "file", os.O_RDONLY)
        stream = Stream(descriptor, is_hashed=True)
        with pytest.raises(OSError, match="Bad file descriptor"):
            stream.write(bytes(BUFFER_BYTES))
        with pytest.raises(OSError, match="Bad file descriptor"):
            stream.write(b"end")
        os.close(descriptor)
        assert file.tell() == 0


KILLED = """
import os, signal, sys, torch
from pathlib import Path
from footplate.checkpoint.files import save_plain
write = os.write
def last(descriptor, data):
    num_written = write(descriptor, data[: len(data) // 2 // 4096 * 4096])
    os.kill(os.getpid(), signal.SIGKILL)
    return num_written
save_plain({"a": torch.ones(3)}, Path(sys.argv[1]))
os.write = last
save_plain({"a": torch.ones(9_000_000)}, Path(sys.argv[1]))
"""


def test_a_kill_in_the_middle_of_a_write_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "file.pt"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)])
    assert done.returncode == -signal.SIGKILL
    assert torch.equal(load_plain(path)["a"], torch.ones(3))
    assert len(os.listdir(tmp_path)) == 2  # the half of the new one has another name


def test_memory_stays_within_the_buffer(tmp_path):
    program = (
        "import resource, sys, numpy as np\nfrom pathlib import Path\n"
        "from footplate.checkpoint.stream import collecting_hashes, writing\n"
        "piece = np.ones(1 << 20, np.uint8)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with collecting_hashes(), writing(Path(sys.argv[1])) as stream:\n"
        "    for _ in range(100):\n        stream.write(piece.data)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) * 1024 < BUFFER_BYTES + (8 << 20)
