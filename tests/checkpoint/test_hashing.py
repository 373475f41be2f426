"""Hashes by the name that a manifest gives them."""

import hashlib
import io
import subprocess
import sys

import pytest

from footplate.checkpoint.hashing import HASH_NAME, HASH_NAMES, Written, hash_file, start_hash


def test_manifests_of_earlier_versions_name_a_hash_of_the_standard_library():
    data = b"weights" * 300_000
    assert hash_file(io.BytesIO(data), "sha256") == hashlib.sha256(data).hexdigest()
    assert set(HASH_NAMES) == {HASH_NAME, "sha256"}


@pytest.mark.parametrize("name", HASH_NAMES)
def test_a_file_is_hashed_from_where_it_stands(name):
    file = io.BytesIO(b"header" + b"rest" * 400_000)
    file.seek(6)
    digest = start_hash(name)
    digest.update(b"rest" * 400_000)
    assert hash_file(file, name) == digest.hexdigest()


def test_numpy_is_imported_for_the_hash_alone():
    program = (
        "import sys; from footplate.checkpoint import verify_checkpoint\n"
        "print('numpy' in sys.modules)\n"
        "from footplate.checkpoint.hashing import start_hash; start_hash()\n"
        "print('numpy' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_a_file_is_known_by_size_inode_and_time(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    found = path.stat()
    written = Written(found.st_size, found.st_ino, found.st_mtime_ns, "hash")
    assert written.is_still(found)
    assert not written._replace(size=4).is_still(found)
    assert not written._replace(inode=found.st_ino + 1).is_still(found)
    assert not written._replace(changed_ns=found.st_mtime_ns - 1).is_still(found)
