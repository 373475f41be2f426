"""A file from elsewhere can be refused, and never runs code."""

import contextlib
import os
import pickle
import zipfile

import numpy as np
import peft
import pytest
import torch
from torch import nn

from footplate.checkpoint import (
    load_arguments,
    load_optimizer,
    load_rng,
    load_scaler,
    load_schedule,
    load_weights,
)
from footplate.checkpoint.files import load_plain, save_plain


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


def test_plain_values_come_back_and_numpy_scalars_become_numbers(tmp_path):
    values = {"a": [1, 2.5, None, "x"], "b": (torch.ones(2), {3: True}), "lr": np.float64(0.1)}
    save_plain(values, tmp_path / "deep" / "file.pt")
    back = load_plain(tmp_path / "deep" / "file.pt")
    assert back["a"] == values["a"]
    assert torch.equal(back["b"][0], torch.ones(2))
    assert back["b"][1] == {3: True}
    assert type(back["lr"]) is float


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
