"""Datasets whose samples are their own index, for tests of what comes when."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from footplate import rng
from footplate.arguments import AcceleratorConfig
from footplate.batch import find_length

FIELDS = {
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": True,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "dataloader_drop_last": False,
    "dataloader_multiprocessing_context": None,
    "dataloader_in_order": True,
    "dataloader_prefetch_to_device": None,
    "process_index": 0,
    "world_size": 1,
    "accelerator_config": AcceleratorConfig(),
    "auto_find_batch_size": False,
    "per_device_train_tokens": None,
    "seed": 42,
    "data_seed": None,
    "disable_tqdm": True,
}


def settings(**changes: Any) -> Any:
    """The part of the arguments that loaders are built from."""
    return SimpleNamespace(**{**FIELDS, **changes})


class Numbers(Dataset):
    """Samples that are their own index, and a list of those that were read."""

    def __init__(self, num_samples: int = 23) -> None:
        self.num_samples = num_samples
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return {"x": index}


class ManyAtOnce(Numbers):
    """Samples that come by the batch."""

    def __getitems__(self, indices: list[int]) -> Any:
        assert isinstance(indices, list)
        return [{"x": index} for index in indices]


def noise() -> list[float]:
    """A draw from each of the three generators in use, normal numbers among them."""
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.randn(()).item()]


class Noisy(Numbers):
    """Samples with augmentation that is drawn when they are read."""

    def __getitem__(self, index: int) -> Any:
        return {"x": index, "noise": torch.tensor(noise())}


class NoisyAtOnce(Noisy):
    """The same, by the batch."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Stream(IterableDataset):
    """A stream without a length that may be told its epoch; workers take turns sample by sample."""

    def __init__(self, num_samples: int = 23) -> None:
        self.num_samples = num_samples
        self.epoch: int | None = None
        self.num_read = 0

    def __iter__(self) -> Any:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, self.num_samples, step):
            self.num_read += 1
            yield {"x": index}

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class SizedStream(Stream):
    """A stream with a length."""

    def __len__(self) -> int:
        return self.num_samples


def ids(batches: Any) -> list[list[int]]:
    return [torch.as_tensor(batch["x"]).tolist() for batch in batches]


def flat_ids(batches: Any) -> list[int]:
    return list(chain.from_iterable(ids(batches)))


def contents(batches: Any) -> list[dict[str, Any]]:
    """Batches as plain values, to compare all that is in them."""
    return [{key: torch.as_tensor(value).tolist() for key, value in batch.items()} for batch in batches]


def random_collate(samples: list[Any]) -> Any:
    """Draws from all generators, as masking collators do."""
    rows = {key: torch.as_tensor([torch.as_tensor(s[key]).tolist() for s in samples]) for key in samples[0]}
    return {**rows, "mask": torch.tensor([noise() for _ in samples])}


def generator_states() -> tuple[Any, ...]:
    """The states of all global generators, in values that compare."""
    kind, key, *rest = np.random.get_state()
    return random.getstate(), kind, key.tolist(), rest, torch.get_rng_state().tolist()


def restored(state: Any) -> Any:
    """A state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def run_interrupted(
    builds: Iterable[Callable[[], Any]], stops: list[int], num_epochs: int
) -> list[tuple[dict[str, Any], list[float]]]:
    """What a run sees, and draws after each batch, that is stopped after so many batches again and again.

    Each part has a loader of its own, in a process whose generators are anywhere. As by the Trainer, they are
    restored after the pass has started, which draws a number, and no batch is asked for after the last.
    """
    rng.seed_all(0)
    seen, state, states, epoch = [], None, None, 0
    for make, stop in zip(builds, [*stops, None], strict=False):
        loader = make()
        loader.keeps_unused = True
        if state is not None:
            loader.load_state_dict(restored(state))
        count = 0
        while epoch < num_epochs and count != stop:
            loader.set_epoch(epoch)
            batches = iter(loader)
            if state is not None and states is not None:
                rng.restore(states)
                is_over = state["num_samples"] == find_length(loader.batch_sampler.sampler)
                batches, states = iter(()) if is_over else batches, None
            for batch in batches:
                seen.append((contents([batch])[0], noise()))
                loader.settle()
                count += 1
                if count == stop:
                    break
            else:
                epoch += 1
        state, states = loader.state_dict(), rng.capture()
        rng.seed_all(99)
    return seen
