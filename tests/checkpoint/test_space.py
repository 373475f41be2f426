"""Room on the disk."""

from __future__ import annotations

import errno

import pytest
from safetensors import SafetensorError

from footplate.checkpoint import space
from footplate.checkpoint.space import check_free_space, is_out_of_space, is_refused_by_disk

# as torch 2.13 says it on a file system that is full
TORCH = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")


def test_too_little_room_is_said_before_anything_is_written(tmp_path):
    check_free_space(tmp_path / "not" / "yet" / "there", 1000)
    with pytest.raises(OSError, match=r"needs 1000000 TB and .*B are free.*save_total_limit") as raised:
        check_free_space(tmp_path / "not" / "yet" / "there", 10**18)
    assert raised.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EIO, "Input/output error"), False),
        (OSError(errno.EFBIG, "File too large"), False),
        (SafetensorError("I/O error: No space left on device (os error 28)"), True),
        (SafetensorError("I/O error: Input/output error (os error 5)"), False),
        (SafetensorError("header too large"), False),
        (TORCH, False),  # the disk has room, so something else was the reason
    ],
    ids=repr,
)
def test_a_full_disk_is_told_from_other_reasons(tmp_path, error, is_full):
    assert is_refused_by_disk(error)
    assert is_out_of_space(error, tmp_path) is is_full


def test_torch_does_not_say_why_so_the_disk_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(space, "FULL_BELOW", 1 << 62)
    assert is_out_of_space(TORCH, tmp_path)
    assert not is_out_of_space(RuntimeError("shapes differ"), tmp_path)


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("odd"), KeyError("x")])
def test_what_is_written_may_be_the_reason(tmp_path, error):
    assert not is_refused_by_disk(error)
    assert not is_out_of_space(error, tmp_path)
