"""Folders are published whole or not at all, and what happens to them later is noticed."""

import builtins
import contextlib
import errno
import hashlib
import io
import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers

import tiny
from footplate.checkpoint.files import save_plain
from footplate.checkpoint.hashing import hash_file
from footplate.checkpoint.rotation import find_last_checkpoint, rotate_checkpoints
from footplate.checkpoint.seal import discard, is_whole, seal, staging_folder, verify_checkpoint
from footplate.checkpoint.stream import collecting_hashes
from footplate.checkpoint.tensors import save_tensors

OS_CALLS = [
    (builtins, "open"),
    *((os, name) for name in ("open", "fsync", "rename", "mkdir", "unlink", "rmdir")),
]


def contents(version):
    weights, optimizer = {"w": torch.full((64,), float(version))}, io.BytesIO()
    torch.save({"state": {0: {"exp_avg": weights["w"]}}}, optimizer)
    return {
        "model.safetensors": safetensors.torch.save(weights),
        "optimizer.pt": optimizer.getvalue(),
        "trainer_state.json": json.dumps({"version": version}).encode(),
        "adapters/first/notes.txt": b"",
        "adapters/second/adapter_model.safetensors": safetensors.torch.save(weights),
    }


CONTENTS = {version: contents(version) for version in range(3)}


def write(folder, version):
    for name, data in CONTENTS[version].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with open(folder / name, "wb") as file:
            file.write(data)


def save(final, version):
    """What a run does: write, seal, and clear up after an error."""
    staging = Path()
    try:
        staging = staging_folder(final)
        write(staging, version)
        seal(staging, final)
    except OSError:
        if staging.name:
            discard(staging)
        raise


def version_of(folder):
    assert verify_checkpoint(folder).is_intact, verify_checkpoint(folder)
    return json.loads(Path(folder, "trainer_state.json").read_text())["version"]


def hidden_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.fixture
def checkpoint(tmp_path):
    save(tmp_path / "checkpoint-1", 1)
    return tmp_path / "checkpoint-1"


# ---- sealing ----


def test_a_sealed_folder_holds_what_was_written_and_a_manifest_of_it(checkpoint):
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert manifest["files"] == {
        name: {"size": len(data), "hash": hash_file(io.BytesIO(data), manifest["algorithm"])}
        for name, data in CONTENTS[1].items()
    }
    assert {name: (checkpoint / name).read_bytes() for name in CONTENTS[1]} == CONTENTS[1]
    assert verify_checkpoint(checkpoint) == (True, "", True)
    assert is_whole(checkpoint)
    assert hidden_in(checkpoint.parent) == []


def test_a_file_larger_than_a_chunk_is_hashed_in_full(tmp_path):
    data = os.urandom((1 << 20) * 2 + 12345)
    staging = staging_folder(tmp_path / "checkpoint-1")
    (staging / "model.bin").write_bytes(data)
    seal(staging, tmp_path / "checkpoint-1")
    manifest = json.loads((tmp_path / "checkpoint-1" / "manifest.json").read_text())
    assert manifest["algorithm"] == "page-sums"
    assert manifest["files"]["model.bin"]["hash"] == hash_file(io.BytesIO(data))


def seal_as_earlier_versions(folder, algorithm="sha256"):
    """Write the manifest that versions before the fast hash wrote."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    files = {
        name: {
            "size": entry["size"],
            "hash": hashlib.new(algorithm, (folder / name).read_bytes()).hexdigest(),
        }
        for name, entry in manifest["files"].items()
    }
    path.write_text(json.dumps({"format": 1, "algorithm": algorithm, "files": files}, indent=1))


def test_a_manifest_of_an_earlier_version_verifies_as_before(checkpoint):
    seal_as_earlier_versions(checkpoint)
    assert verify_checkpoint(checkpoint) == (True, "", True)
    data = bytearray((checkpoint / "optimizer.pt").read_bytes())
    data[len(data) // 2] ^= 4
    (checkpoint / "optimizer.pt").write_bytes(data)
    assert verify_checkpoint(checkpoint).reason == "optimizer.pt has changed since it was written"
    assert find_last_checkpoint(checkpoint.parent) is None


def test_a_manifest_with_a_hash_that_nobody_knows_is_refused_with_those_known(checkpoint):
    seal_as_earlier_versions(checkpoint, "md5")
    reason = verify_checkpoint(checkpoint).reason
    assert "'md5'" in reason
    assert "'page-sums' or 'sha256'" in reason


def test_a_file_that_was_hashed_while_it_was_written_is_not_read_again(tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    with collecting_hashes() as hashes:
        save_tensors({"w": torch.ones(64)}, staging / "model.safetensors")
        save_plain({"a": torch.ones(64)}, staging / "optimizer.pt")
    (staging / "notes.txt").write_text("by somebody else")
    marked = {path: written._replace(hash=f"of {path.name}") for path, written in hashes.items()}
    seal(staging, tmp_path / "checkpoint-1", hashes=marked)
    files = json.loads((tmp_path / "checkpoint-1" / "manifest.json").read_text())["files"]
    assert files["model.safetensors"]["hash"] == "of model.safetensors"
    assert files["optimizer.pt"]["hash"] == "of optimizer.pt"
    assert files["notes.txt"]["hash"] == hash_file(io.BytesIO(b"by somebody else"))


@pytest.mark.parametrize("change", ["in place", "replaced", "longer"])
def test_a_file_that_somebody_changed_after_it_was_written_is_read(change, tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    path = staging / "model.safetensors"
    with collecting_hashes() as hashes:
        save_tensors({"w": torch.ones(64)}, path)
    if change == "in place":
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")
    elif change == "replaced":
        safetensors.torch.save_file({"w": torch.zeros(64)}, path)
    else:
        safetensors.torch.save_file({"w": torch.zeros(65)}, path)
    seal(staging, tmp_path / "checkpoint-1", hashes=hashes)
    assert verify_checkpoint(tmp_path / "checkpoint-1").is_intact


def test_the_staging_folder_has_the_final_name_in_a_hidden_folder_and_is_empty(tmp_path):
    staging = staging_folder(str(tmp_path / "run" / "checkpoint-12"))
    assert staging.name == "checkpoint-12"  # people test for it in `save_model`
    assert staging.parent.parent == tmp_path / "run"
    assert staging.parent.name.startswith(".checkpoint-12.")
    assert staging.parent.name.endswith(".writing")
    assert list(staging.iterdir()) == []
    discard(staging)
    discard(staging)  # nothing there any more: nothing to say
    assert list((tmp_path / "run").iterdir()) == []


def test_two_that_write_the_same_checkpoint_never_share_a_folder(tmp_path):
    first, second = (staging_folder(tmp_path / "checkpoint-1") for _ in range(2))

    def work():
        write(staging_folder(tmp_path / "checkpoint-1"), 1)

    write(first, 1)
    assert in_child(work) is None
    assert list(second.iterdir()) == []
    write(second, 2)
    assert len(hidden_in(tmp_path)) == 3
    seal(first, tmp_path / "checkpoint-1")
    seal(second, tmp_path / "checkpoint-1")
    assert version_of(tmp_path / "checkpoint-1") == 2
    rotate_checkpoints(tmp_path, 1)
    assert hidden_in(tmp_path) == []


def test_everything_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    staging, final = staging_folder(tmp_path / "checkpoint-1"), tmp_path / "checkpoint-1"
    write(staging, 1)
    flush, rename, events = os.fsync, os.rename, []

    def record_flush(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(os.path.relpath(path, staging.parent if staging in (path, *path.parents) else tmp_path))
        flush(descriptor)

    def record_rename(source, target):
        events.append(f"{source.name} -> {target.name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_flush)
    monkeypatch.setattr(os, "rename", record_rename)
    seal(staging, final)
    files, manifest = events[: len(CONTENTS[1])], events[len(CONTENTS[1])]
    folders, last = events[len(CONTENTS[1]) + 1 : -2], events[-2:]
    assert sorted(files) == sorted(f"{staging.name}/{name}" for name in CONTENTS[1])
    assert manifest == f"{staging.name}/manifest.json"
    inner = [f"{staging.name}/adapters/{name}" for name in ("first", "second")]
    assert sorted(folders[:2]) == inner
    assert folders[2:] == [f"{staging.name}/adapters", staging.name]
    assert last == [f"{staging.name} -> checkpoint-1", "."]


def test_a_folder_of_nothing_is_not_sealed(tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    with pytest.raises(ValueError, match="no files"):
        seal(staging, tmp_path / "checkpoint-1")


def test_a_step_saved_twice_is_the_second_one(checkpoint):
    save(checkpoint, 2)
    assert version_of(checkpoint) == 2
    assert [path.name for path in checkpoint.parent.iterdir()] == ["checkpoint-1"]


def test_a_damaged_checkpoint_is_replaced(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    save(checkpoint, 2)
    assert version_of(checkpoint) == 2


def test_sealing_again_after_an_error_works(tmp_path, monkeypatch):
    staging, final = staging_folder(tmp_path / "checkpoint-1"), tmp_path / "checkpoint-1"
    write(staging, 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", raise_full)
        with pytest.raises(OSError, match="full"):
            seal(staging, final)
    seal(staging, final)
    assert version_of(final) == 1
    assert "manifest.json" not in json.loads((final / "manifest.json").read_text())["files"]


# ---- errors and deaths at every call ----


def raise_full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "the disk is full")


@pytest.fixture
def without_waiting_for_the_disk(monkeypatch):
    """What only a loss of power could tell from the real thing, and thousands of flushes take their time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@contextlib.contextmanager
def act_at_call(number, act, when="before", and_after=False):
    """Call `act` at the call of that number to the operating system, before or after it is made."""
    count = 0

    def replace(original):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            hit = count == number or (and_after and count > number)
            if hit and when == "before":
                act()
            try:
                return original(*args, **kwargs)
            finally:
                if hit and when == "after":
                    act()

        return call

    with pytest.MonkeyPatch.context() as patched:
        for module, name in OS_CALLS:
            patched.setattr(module, name, replace(getattr(module, name)))
        yield lambda: count


@pytest.mark.usefixtures("without_waiting_for_the_disk")
@pytest.mark.parametrize("and_after", [False, True], ids=["one call fails", "all calls from there fail"])
@pytest.mark.parametrize("step", [1, 2], ids=["the same step again", "the next step"])
def test_an_error_at_any_call_leaves_an_intact_checkpoint(step, and_after, tmp_path):
    number, is_over, num_errors = 0, False, 0
    while not is_over:
        number += 1
        folder = tmp_path / str(number)
        save(folder / "checkpoint-1", 1)
        with act_at_call(number, raise_full, and_after=and_after) as num_calls:
            try:
                save(folder / f"checkpoint-{step}", 2)
                has_raised = False
            except OSError:
                has_raised = True
        is_over = num_calls() < number
        num_errors += has_raised
        found = find_last_checkpoint(folder)
        assert version_of(found) in ([1, 2] if has_raised else [2])
        if not and_after and has_raised:
            assert hidden_in(folder) in ([], [f".checkpoint-{step}.replaced"])
        save(folder / f"checkpoint-{step}", 2)
        rotate_checkpoints(folder, 1)
        assert version_of(find_last_checkpoint(folder)) == 2
        assert [path.name for path in folder.iterdir()] == [f"checkpoint-{step}"]
    assert num_errors >= 20
    print(f"{num_errors} errors raised")


def in_child(work):
    """Run `work` in a process of its own; the signal that ended it, or None."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("without_waiting_for_the_disk")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    [pytest.param(1, marks=pytest.mark.slow, id="the same step again"), pytest.param(2, id="the next step")],
)
def test_a_death_at_any_call_leaves_an_intact_checkpoint(step, when, tmp_path):
    number, num_deaths = 0, 0
    versions = []
    while True:
        number += 1
        folder = tmp_path / str(number)
        save(folder / "checkpoint-1", 1)

        def work(folder=folder, number=number):
            with act_at_call(number, die, when):
                save(folder / f"checkpoint-{step}", 2)

        if in_child(work) is None:
            break
        num_deaths += 1
        versions.append(version_of(find_last_checkpoint(folder)))
        save(folder / f"checkpoint-{step}", 2)  # the run that follows comes to the same step
        rotate_checkpoints(folder, 1)
        assert version_of(find_last_checkpoint(folder)) == 2
        assert [path.name for path in folder.iterdir()] == [f"checkpoint-{step}"]
    assert num_deaths >= 20
    assert versions == sorted(versions)  # the old one until the new one has its name, then the new one
    assert set(versions) == {1, 2}
    print(f"{num_deaths} deaths")


def test_an_error_in_the_middle_of_replacing_puts_the_old_one_back_at_once(checkpoint, monkeypatch):
    rename = os.rename

    def refuse_the_new_one(source, target):
        if source.parent.name.endswith(".writing"):
            raise_full()
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse_the_new_one)
    with pytest.raises(OSError, match="full"):
        save(checkpoint, 2)
    assert [path.name for path in checkpoint.parent.iterdir()] == ["checkpoint-1"]
    assert version_of(checkpoint) == 1


def test_a_checkpoint_moved_aside_is_found_again(checkpoint):
    checkpoint.rename(checkpoint.with_name(".checkpoint-1.replaced"))
    assert find_last_checkpoint(checkpoint.parent) == str(checkpoint)
    assert version_of(checkpoint) == 1


def test_a_checkpoint_moved_aside_is_replaced_by_one_that_nobody_looked_for(checkpoint):
    checkpoint.rename(checkpoint.with_name(".checkpoint-1.replaced"))
    save(checkpoint, 2)
    assert version_of(checkpoint) == 2
    assert hidden_in(checkpoint.parent) == []


def test_a_file_size_limit_leaves_the_older_one_and_nothing_half_written(checkpoint):
    folder = checkpoint.parent

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        with pytest.raises(OSError, match="too large") as raised:
            save(folder / "checkpoint-2", 2)
        assert raised.value.errno == errno.EFBIG

    assert in_child(work) is None
    assert [path.name for path in folder.iterdir()] == ["checkpoint-1"]
    assert version_of(checkpoint) == 1


def test_a_full_disk_under_the_manifest_leaves_the_older_one(checkpoint):
    staging = staging_folder(checkpoint)
    write(staging, 2)

    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(OSError) as raised:
            seal(staging, checkpoint)
        assert raised.value.errno == errno.EFBIG

    assert in_child(work) is None
    discard(staging)
    assert version_of(checkpoint) == 1
    assert hidden_in(checkpoint.parent) == []


def test_a_link_in_place_of_the_manifest_is_not_followed(tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    write(staging, 1)
    (tmp_path / "precious").write_text("mine")
    (staging / "manifest.json").symlink_to(tmp_path / "precious")
    seal(staging, tmp_path / "checkpoint-1")
    assert (tmp_path / "precious").read_text() == "mine"
    assert version_of(tmp_path / "checkpoint-1") == 1


def test_a_run_folder_that_vanishes_is_an_error_and_no_more(tmp_path):
    staging = staging_folder(tmp_path / "run" / "checkpoint-1")
    write(staging, 1)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises((OSError, ValueError)):
        seal(staging, tmp_path / "run" / "checkpoint-1")
    discard(staging)
    save(tmp_path / "run" / "checkpoint-2", 2)
    assert version_of(find_last_checkpoint(tmp_path / "run")) == 2


# ---- a sealed folder holds a model ----

BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "generation_config.json")


@pytest.mark.parametrize(
    "more", [(), BESIDE, ("adapter_config.json", "README.md"), ("optimizer_0/part.distcp",)]
)
def test_a_folder_without_weights_is_not_sealed_and_never_intact(more, tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    write(staging, 1)
    for name in more:
        (staging / name).parent.mkdir(exist_ok=True)
        (staging / name).write_text("{}")
    seal(staging, tmp_path / "checkpoint-1")
    folder = tmp_path / "checkpoint-1"
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in (
        "model.safetensors",
        "adapters/second/adapter_model.safetensors",
        "adapters/first/notes.txt",
    ):
        (folder / name).unlink()
        del manifest["files"][name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert verify_checkpoint(folder) == (False, "it has no weights", True)
    assert not is_whole(folder)
    with pytest.raises(ValueError, match=r"holds no weights, so it is not sealed\. It has .*optimizer\.pt"):
        seal(folder, tmp_path / "checkpoint-2")


@pytest.mark.parametrize(
    "name", ["weights.npz", "mine/part-0", "adapter_model.bin", "ema.json", "pytorch_model.bin"]
)
def test_a_save_of_somebodys_own_may_name_the_model_as_it_likes(name, tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    (staging / "trainer_state.json").write_text("{}")
    (staging / name).parent.mkdir(exist_ok=True)
    (staging / name).write_bytes(b"whatever")
    seal(staging, tmp_path / "checkpoint-1")
    assert verify_checkpoint(tmp_path / "checkpoint-1").is_intact


def test_weights_that_are_cut_short_or_miss_a_shard_are_not_sealed(tmp_path):
    staging = staging_folder(tmp_path / "checkpoint-1")
    write(staging, 1)
    (staging / "model.safetensors").write_bytes(CONTENTS[1]["model.safetensors"][:-1])
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        seal(staging, tmp_path / "checkpoint-1")
    (staging / "model.safetensors").unlink()
    (staging / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model-1.safetensors"}}')
    with pytest.raises(
        ValueError, match=r"model-1\.safetensors of model\.safetensors\.index\.json is missing"
    ):
        seal(staging, tmp_path / "checkpoint-1")
    assert not (tmp_path / "checkpoint-1").exists()


@pytest.mark.parametrize(("umask", "rights"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_sealed_files_have_the_rights_that_the_umask_leaves(umask, rights, tmp_path):
    before = os.umask(umask)
    try:
        staging = staging_folder(tmp_path / "checkpoint-1")
        write(staging, 1)
        safetensors.torch.save_file({"w": torch.ones(2)}, staging / "model.safetensors")
        seal(staging, tmp_path / "checkpoint-1")
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "checkpoint-1").rglob("*") if path.is_file()]
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {
        path.name: oct(rights) for path in files
    }
    assert len(files) == len(CONTENTS[1]) + 1


# ---- verifying ----

FILES = [name for name, data in CONTENTS[1].items() if data]


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_file_cut_short_grown_or_gone_is_noticed_without_reading(name, checkpoint):
    path = checkpoint / name
    data = path.read_bytes()
    for changed in (b"", data[: len(data) // 2], data[:-1], data + b"\0"):
        path.write_bytes(changed)
        verdict = verify_checkpoint(checkpoint)
        assert not verdict.is_intact
        assert verdict.has_manifest
        assert name in verdict.reason
        assert not is_whole(checkpoint)
    path.unlink()
    if name != "manifest.json":
        assert verify_checkpoint(checkpoint) == (False, f"{name} is missing", True)
        path.mkdir()
        assert not is_whole(checkpoint)


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_byte_is_noticed(name, checkpoint):
    data = bytearray((checkpoint / name).read_bytes())
    for position in (0, len(data) // 3, len(data) - 1):
        flipped = bytearray(data)
        flipped[position] ^= 1
        (checkpoint / name).write_bytes(flipped)
        assert verify_checkpoint(checkpoint) == (False, f"{name} has changed since it was written", True)
    (checkpoint / name).write_bytes(data)
    assert verify_checkpoint(checkpoint).is_intact


def test_a_manifest_cut_anywhere_is_noticed(checkpoint):
    data = (checkpoint / "manifest.json").read_bytes()
    for length in range(len(data)):
        (checkpoint / "manifest.json").write_bytes(data[:length])
        assert not is_whole(checkpoint), length


def test_a_flipped_byte_anywhere_in_the_manifest_is_noticed(checkpoint):
    data = (checkpoint / "manifest.json").read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        (checkpoint / "manifest.json").write_bytes(flipped)
        verdict = verify_checkpoint(checkpoint)
        if verdict.is_intact:  # then it says the same, laid out another way
            assert json.loads(bytes(flipped)) == json.loads(data), position


def test_files_beyond_the_manifest_are_allowed(checkpoint):
    (checkpoint / "README.md").write_text("added later")
    (checkpoint / "more").mkdir()
    assert verify_checkpoint(checkpoint).is_intact


@pytest.mark.parametrize(
    "hostile",
    [
        [],
        {},
        {"format": 2, "algorithm": "sha256", "files": {"a": {"size": 1, "hash": ""}}},
        {"format": 1, "algorithm": "md5", "files": {"a": {"size": 1, "hash": ""}}},
        {"format": 1, "algorithm": "sha256", "files": {}},
        {"format": 1, "algorithm": "sha256", "files": ["model.safetensors"]},
        {"format": 1, "algorithm": "sha256", "files": {"model.safetensors": 5}},
        {"format": 1, "algorithm": "sha256", "files": {"model.safetensors": {}}},
        {"format": 1, "algorithm": "sha256", "files": {"../outside": {"size": 0, "hash": ""}}},
        {"format": 1, "algorithm": "sha256", "files": {"/dev/zero": {"size": 0, "hash": ""}}},
        {"format": 1, "algorithm": "sha256", "files": {"": {"size": 0, "hash": ""}}},
        {"format": 1, "algorithm": "sha256", "files": {"a\0b": {"size": 0, "hash": ""}}},
        {"format": 1, "algorithm": "sha256", "files": {"model.safetensors": {"size": None, "hash": []}}},
    ],
)
def test_a_manifest_that_seal_did_not_write_is_refused(hostile, checkpoint):
    (checkpoint / "manifest.json").write_text(json.dumps(hostile))
    verdict = verify_checkpoint(checkpoint)
    assert not verdict.is_intact
    assert verdict.reason


def test_a_manifest_nested_beyond_reason_is_refused(checkpoint):
    (checkpoint / "manifest.json").write_text("[" * 100_000)
    assert not verify_checkpoint(checkpoint).is_intact


def edit_manifest(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest["files"])
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_manifest_that_leaves_out_what_a_resume_reads_is_refused(checkpoint):
    edit_manifest(checkpoint, lambda files: files.pop("optimizer.pt"))
    assert verify_checkpoint(checkpoint).reason == "manifest.json leaves out optimizer.pt"
    assert not is_whole(checkpoint)
    (checkpoint / "optimizer.pt").unlink()
    assert verify_checkpoint(checkpoint).is_intact
    torch.save({}, checkpoint / "rng_state_1.pth")
    assert verify_checkpoint(checkpoint).reason == "manifest.json leaves out rng_state_1.pth"


def test_a_manifest_that_says_two_things_is_refused(checkpoint):
    path = checkpoint / "manifest.json"
    text = path.read_text()
    doubled = text.replace('"optimizer.pt": {', '"optimizer.pt": {"size": 1, "hash": "x"}, "optimizer.pt": {')
    for changed in (doubled, text.replace('"format": 1', '"format": 2, "format": 1')):
        assert changed != text
        path.write_text(changed)
        assert "twice" in verify_checkpoint(checkpoint).reason


@pytest.mark.parametrize(
    "entry", [{"size": True, "hash": "a"}, {"size": "5", "hash": "a"}, {"size": 5, "hash": 5}]
)
def test_an_entry_of_other_types_is_refused(entry, checkpoint):
    edit_manifest(checkpoint, lambda files: files.update({"optimizer.pt": entry}))
    assert verify_checkpoint(checkpoint).reason == "manifest.json is damaged at 'optimizer.pt'"


@pytest.mark.parametrize("name", ["manifest.json", "trainer_state.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "sparse"])
def test_what_is_no_json_file_is_refused_at_once(name, kind, checkpoint):
    if name == "trainer_state.json":
        (checkpoint / "manifest.json").unlink()
    path = checkpoint / name
    path.unlink()
    if kind == "sparse":
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    else:
        make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}
        make[kind](path)
    verdict = verify_checkpoint(checkpoint)
    assert not verdict.is_intact
    assert name in verdict.reason
    assert not is_whole(checkpoint)


def test_a_pipe_in_place_of_a_file_does_not_hang_the_check(checkpoint):
    (checkpoint / "optimizer.pt").unlink()
    os.mkfifo(checkpoint / "optimizer.pt")
    assert verify_checkpoint(checkpoint).reason == "optimizer.pt is missing"


# ---- folders that the original wrote ----


@pytest.fixture(scope="module")
def written_by_the_original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    settings = {"max_steps": 1, "save_steps": 1, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    arguments = transformers.TrainingArguments(str(folder), **settings)
    data = tiny.regression_data(8)
    transformers.Trainer(tiny.Regression(), arguments, train_dataset=data).train()
    return folder / "checkpoint-1"


@pytest.fixture
def foreign(written_by_the_original, tmp_path):
    return Path(shutil.copytree(written_by_the_original, tmp_path / "checkpoint-1"))


def test_what_the_original_writes_is_intact_without_a_manifest(foreign):
    assert verify_checkpoint(foreign) == (True, "", False)
    assert is_whole(foreign)


@pytest.mark.parametrize(
    "name",
    [
        *("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"),
        *("training_args.bin", "trainer_state.json"),
    ],
)
def test_a_file_of_the_original_cut_short_is_noticed(name, foreign):
    data = (foreign / name).read_bytes().rstrip()
    for length in (0, len(data) // 2, len(data) - 1):
        (foreign / name).write_bytes(data[:length])
        verdict = verify_checkpoint(foreign)
        assert not verdict.is_intact, length
        assert not verdict.has_manifest
        assert verdict.reason
        assert not is_whole(foreign)


def test_a_folder_without_state_or_without_weights_is_no_checkpoint(foreign):
    (foreign / "model.safetensors").unlink()
    assert verify_checkpoint(foreign).reason == "it has no weights"
    (foreign / "trainer_state.json").unlink()
    assert verify_checkpoint(foreign).reason == "trainer_state.json is missing"
    assert verify_checkpoint(foreign / "nowhere") == (False, "it is not a folder", False)


def test_every_shard_that_an_index_names_must_be_there(foreign):
    (foreign / "model.safetensors").rename(foreign / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (foreign / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert verify_checkpoint(foreign).reason.startswith("model-00002-of-00002.safetensors")
    shutil.copy(foreign / shards["a"], foreign / shards["b"])
    assert verify_checkpoint(foreign).is_intact
    (foreign / "model.safetensors.index.json").write_text(json.dumps({"weight_map": [1]}))
    assert not verify_checkpoint(foreign).is_intact


def test_weights_in_older_kinds_of_files_count(foreign):
    torch.save({"w": torch.ones(3)}, foreign / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    (foreign / "model.safetensors").unlink()
    assert verify_checkpoint(foreign).is_intact


# ---- room ----
