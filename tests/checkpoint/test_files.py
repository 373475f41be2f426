"""A file from elsewhere can be refused, and never runs code."""

import contextlib
import datetime
import os
import pickle
import struct
import subprocess
import sys
import threading
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import peft
import pytest
import torch
from torch import nn

from footplate.checkpoint.arguments import load_arguments
from footplate.checkpoint.files import check_loadable, load_plain, save_plain
from footplate.checkpoint.optimizer import load_optimizer, load_scaler, load_schedule
from footplate.checkpoint.rng import load_rng
from footplate.checkpoint.settings_file import read_settings
from footplate.checkpoint.weights import load_weights


class Hostile:
    """Makes a file when it is unpickled."""

    def __init__(self, trap):
        self.trap = trap

    def __reduce__(self):
        return (os.mkdir, (str(self.trap),))


def load_into_adapter(folder):
    load_weights(
        peft.get_peft_model(nn.Sequential(nn.Linear(2, 2)), peft.LoraConfig(target_modules=["0"])), folder
    )


def load_shards(folder):
    index = folder / "pytorch_model.bin.index.json"
    index.write_text('{"weight_map": {"weight": "shard.bin"}}')
    load_weights(nn.Linear(2, 2), folder)


SGD = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
READERS = {
    "pytorch_model.bin": lambda folder: load_weights(nn.Linear(2, 2), folder),
    "shard.bin": load_shards,
    "adapter_model.bin": load_into_adapter,
    "optimizer.pt": lambda folder: load_optimizer(SGD, folder),
    "scheduler.pt": lambda folder: load_schedule(torch.optim.lr_scheduler.StepLR(SGD, 1), folder),
    "scaler.pt": lambda folder: load_scaler(torch.amp.GradScaler("cpu"), folder),
    "rng_state.pth": load_rng,
    "training_args.bin": load_arguments,
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_hostile_file_is_refused_and_nothing_runs(name, write, tmp_path):
    trap = tmp_path / "trap"
    write({"weight": Hostile(trap)}, tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name} was not read"):
        READERS[name](tmp_path)
    assert not trap.exists()
    with contextlib.suppress(RuntimeError):
        torch.load(tmp_path / name, weights_only=False)  # the trap is a real one
    assert trap.exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_an_archive_whose_pickle_was_replaced_is_refused(tmp_path):
    path, trap = tmp_path / "good.pt", tmp_path / "trap"
    torch.save({"a": torch.ones(2)}, path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "bad.pt", "w") as changed:
        for name in archive.namelist():
            changed.writestr(
                name, pickle.dumps(Hostile(trap)) if name.endswith("data.pkl") else archive.read(name)
            )
    with pytest.raises(ValueError, match="was not read"):
        load_plain(tmp_path / "bad.pt")
    assert not trap.exists()


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_file_cut_short_is_reported_as_such(keep, tmp_path):
    path = tmp_path / "optimizer.pt"
    torch.save({"a": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"optimizer\.pt (cannot be read|was not read: it is damaged)"):
        load_plain(path)


def test_plain_values_come_back(tmp_path):
    values = {"a": [1, 2.5, None, "x"], "b": (torch.ones(2), {3: True}), "text": np.str_("x")}
    save_plain(values, tmp_path / "deep" / "file.pt")
    back = load_plain(tmp_path / "deep" / "file.pt")
    assert back["a"] == values["a"]
    assert torch.equal(back["b"][0], torch.ones(2))
    assert back["b"][1] == {3: True}
    assert type(back["text"]) is str


STORABLE = [
    np.arange(6.0).reshape(2, 3).T,
    np.zeros((0, 3)),
    np.array(3, dtype=np.uint8),
    np.arange(3, dtype=">i2"),
    np.array([True, False]),
    np.array([1 + 2j]),
    np.dtype("float32"),
    *(np.float16(0.5), np.float32(1.5), np.float64(0.1), np.int64(-3), np.bool_(True)),
    datetime.timedelta(days=-1, seconds=2, microseconds=3),
    deque([1, np.ones(2), (deque([torch.ones(1)], maxlen=1),)], maxlen=5),
    deque(),
    Counter("aab"),
    OrderedDict(b=np.float32(1), a=[np.ones(1)]),
]


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, (deque, list, tuple)):
        assert len(one) == len(other)
        assert getattr(one, "maxlen", None) == getattr(other, "maxlen", None)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, dict):
        assert_same(list(one.items()), list(other.items()))
    elif isinstance(one, (np.ndarray, np.generic)):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
        assert one.shape == other.shape
    else:
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("value", STORABLE, ids=lambda value: type(value).__name__)
def test_arrays_numbers_of_numpy_deques_and_durations_come_back_as_they_were(value, tmp_path):
    shared = [value]
    save_plain({"one": value, "more": (shared, {"in": value})}, tmp_path / "file.pt")
    check_loadable(tmp_path / "file.pt")
    back = load_plain(tmp_path / "file.pt")
    assert_same(back, {"one": value, "more": (shared, {"in": value})})
    if isinstance(back["one"], np.ndarray):
        back["one"][...] = 0  # it can be written to, as it could be in the run


def test_a_default_dictionary_becomes_a_plain_one(tmp_path):
    save_plain(defaultdict(list, a=[1]), tmp_path / "file.pt")
    assert_same(load_plain(tmp_path / "file.pt"), {"a": [1]})


@pytest.mark.parametrize(
    "value", [np.array([object()]), np.array(["x"]), np.zeros(2, "i4,f8"), np.matrix("1")]
)
def test_other_arrays_are_refused(value, tmp_path):
    torch.save({"a": value}, tmp_path / "file.pt")
    for read in (load_plain, check_loadable):
        with pytest.raises(ValueError, match=r"file\.pt was not read.*(arrays of numbers|numpy)"):
            read(tmp_path / "file.pt")


# ---- pickles that no program writes ----


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value)


def group(*parts):
    return b"(" + b"".join(parts) + b"t"


def call(function, *parts):
    return function + group(*parts) + b"R"


def write_pickle(body, path, compression=zipfile.ZIP_STORED):
    """A file of `torch.save` whose pickle is `body`."""
    torch.save({}, path)
    with zipfile.ZipFile(path) as archive:
        contents = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for entry, data in contents.items():
            archive.writestr(entry, b"\x80\x02" + body + b"." if entry.endswith("data.pkl") else data)


POINTERS = call(name("_codecs", "encode"), text("AAAAAAAA"), text("latin1"))
OBJECTS = call(name("numpy", "dtype"), text("O"))
BYTES_TYPE = call(name("numpy", "dtype"), text("i8"))
ARRAY = name("numpy", "ndarray")
EMPTY = call(name("numpy._core.multiarray", "_reconstruct"), ARRAY, group(number(0)), POINTERS)
CRAFTED = {
    "an array of objects over bytes": call(ARRAY, group(number(1)), OBJECTS, POINTERS),
    "an array beyond its bytes": call(ARRAY, group(number(9999)), BYTES_TYPE, POINTERS),
    "the array class made new": ARRAY + group(group(number(1)), OBJECTS, POINTERS) + b"\x81",
    "a state with objects": EMPTY + group(number(1), group(number(1)), OBJECTS, b"\x89", POINTERS) + b"b",
    "a state beyond its bytes": EMPTY
    + group(number(1), group(number(999)), BYTES_TYPE, b"\x89", POINTERS)
    + b"b",
    "a negative shape": EMPTY + group(number(1), group(number(-1)), BYTES_TYPE, b"\x89", POINTERS) + b"b",
    "numbers that never come": EMPTY,
    "a state of one part": EMPTY + number(1) + b"b",
    "a type that is changed to objects": call(name("numpy", "dtype"), text("i8"))
    + group(number(3), text("|"), b"N", b"N", group(text("O")), number(8), number(8), number(63))
    + b"b",
    "a structured type": call(name("numpy", "dtype"), text("i8,O")),
    "a scalar that is an object": call(name("numpy._core.multiarray", "scalar"), OBJECTS, POINTERS),
    "a function of numpy": call(name("numpy", "fromfile"), text("/etc/hostname")),
    "a deque of a number": call(name("collections", "deque"), number(1 << 30)),
    "a deque of a negative length": call(name("collections", "deque"), b"]", number(-1)),
    "a duration of text": call(name("datetime", "timedelta"), text("x"), text("y"), text("z")),
    "a wrapper without memory": call(
        name("torch._utils", "_rebuild_wrapper_subclass"), name("torch", "Tensor")
    ),
    "lists in lists": b"]" * 100_000 + EMPTY + b"a" * 100_000,
    "a build of a byte array": call(name("builtins", "bytearray"), number(1))
    + b"}"
    + text("a")
    + number(1)
    + b"sb",
    "an endless stack": b"t" * 10,
    "a name of the system": call(name("posix", "system"), text("true")),
}


@pytest.mark.parametrize("kind", CRAFTED)
def test_a_crafted_pickle_is_one_error_without_bad_advice(kind, tmp_path):
    write_pickle(CRAFTED[kind], tmp_path / "optimizer.pt")
    with pytest.raises(ValueError, match=r"optimizer\.pt (was not read|cannot be read)") as raised:
        load_plain(tmp_path / "optimizer.pt")
    assert "weights_only" not in str(raised.value)
    assert "safe_globals" not in str(raised.value)
    assert raised.value.__suppress_context__  # a traceback would print torch's advice


def test_an_array_over_chosen_pointers_does_not_end_the_process(tmp_path):
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    (folder / "trainer_state.json").write_text("{}")
    pairs = b"}" + text("metric_for_best_model") + CRAFTED["an array of objects over bytes"] + b"s"
    write_pickle(pairs, folder / "training_args.bin")
    command = [sys.executable, "-m", "footplate", "checkpoints", str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 1, finished.stderr  # -11: the file chose the memory
    assert "checkpoint-1" in finished.stdout


@pytest.mark.parametrize(
    "body", [*CRAFTED.values(), b"}}b", b"]]s", b"}]Ks", b"(" * 100_000, b"\x95", b"K\x01b"]
)
def test_settings_of_a_crafted_pickle_are_one_kind_of_error(body, tmp_path):
    write_pickle(body, tmp_path / "training_args.bin")
    with pytest.raises(ValueError, match=r"training_args\.bin"):
        read_settings(tmp_path)


def test_what_a_program_allows_torch_to_call_is_not_called_from_our_files(tmp_path):
    write_pickle(CRAFTED["an array of objects over bytes"], tmp_path / "file.pt")
    trusted = [np.ndarray, np.dtype, type(np.dtype(object))]
    with torch.serialization.safe_globals(trusted):
        with pytest.raises(ValueError, match="was not read"):
            load_plain(tmp_path / "file.pt")
        assert set(torch.serialization.get_safe_globals()) >= set(trusted)


def test_an_archive_that_grows_is_refused(tmp_path):
    write_pickle(text("a" * 10_000_000), tmp_path / "file.pt", zipfile.ZIP_DEFLATED)
    assert (tmp_path / "file.pt").stat().st_size < 100_000
    with pytest.raises(ValueError, match="would grow to 100"):
        load_plain(tmp_path / "file.pt")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "nothing"])
def test_what_is_no_file_is_refused_at_once(kind, tmp_path):
    path = tmp_path / "optimizer.pt"
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink("/dev/zero", path)}
    make.get(kind, lambda path: None)(path)
    with pytest.raises(ValueError, match=r"optimizer\.pt cannot be read"):
        load_plain(path)


def test_two_threads_read_at_the_same_time(tmp_path):
    save_plain({"a": [np.ones(3)] * 50, "d": [deque([1])] * 50}, tmp_path / "file.pt")
    errors = []

    def read():
        try:
            for _ in range(20):
                assert load_plain(tmp_path / "file.pt")["d"][-1] == deque([1])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_arrays_are_read_under_both_names_that_numpy_has_had(tmp_path):
    torch.save(np.arange(3, dtype=np.uint32), tmp_path / "new.pt")
    assert load_plain(tmp_path / "new.pt").tolist() == [0, 1, 2]
    with zipfile.ZipFile(tmp_path / "new.pt") as archive, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for name in archive.namelist():
            old.writestr(
                name, archive.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
            )
    assert load_plain(tmp_path / "old.pt").tolist() == [0, 1, 2]


def test_reading_leaves_what_torch_trusts_as_it_was(tmp_path):
    save_plain({"a": 1}, tmp_path / "file.pt")
    before = set(torch.serialization.get_safe_globals())
    load_plain(tmp_path / "file.pt")
    assert set(torch.serialization.get_safe_globals()) == before
