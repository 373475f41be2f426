"""Seeds reach every generator as the original's do."""

from __future__ import annotations

import inspect
import os
import random

import numpy as np
import pytest
import torch
from transformers import trainer_utils as original

from footplate import rng
from footplate.training import seed as seeding


def draw():
    """One number of each generator."""
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """Leave generators, environment and torch's switches to the other tests as they were."""
    for name in ("CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG", "FLASH_ATTENTION_DETERMINISTIC"):
        monkeypatch.setenv(name, "before")
    deterministic, benchmark = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    with rng.scoped():
        yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, benchmark


@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_the_same_seed_draws_what_the_original_draws(seed):
    original.set_seed(seed)
    expected = draw()
    seeding.set_seed(seed)
    assert draw() == expected
    seeding.seed_run(seed, full_determinism=False)
    assert draw() == expected
    assert draw() != expected


@pytest.mark.parametrize("name", ["set_seed", "enable_full_determinism"])
def test_parameters_are_the_originals(name):
    ours, theirs = (inspect.signature(getattr(module, name)).parameters for module in (seeding, original))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_deterministic_kernels_are_chosen_where_asked():
    seeding.set_seed(1)
    assert not torch.are_deterministic_algorithms_enabled()
    seeding.set_seed(1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()


def switches():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        *(os.environ[name] for name in ("CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG")),
        os.environ["FLASH_ATTENTION_DETERMINISTIC"],
    )


@pytest.mark.parametrize("warn_only", [False, True])
def test_full_determinism_sets_the_switches_of_the_original(warn_only, monkeypatch):
    for name in ("ASCEND_LAUNCH_BLOCKING", "HCCL_DETERMINISTIC"):  # set by the original alone
        monkeypatch.setenv(name, "before")
    original.enable_full_determinism(5, warn_only)
    expected = switches(), draw()
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = False, True
    seeding.enable_full_determinism(5, warn_only)
    assert (switches(), draw()) == expected


def test_a_run_is_seeded_with_determinism_where_its_arguments_ask_for_it():
    seeding.seed_run(3, full_determinism=True)
    assert torch.are_deterministic_algorithms_enabled()
    first = draw()
    seeding.set_seed(3)
    assert draw() == first


def test_scoped_generators_go_on_as_if_nothing_had_been_drawn():
    seeding.set_seed(9)
    expected = draw()
    seeding.set_seed(9)
    with rng.scoped():
        draw()
    assert draw() == expected


def test_scoped_generators_are_restored_after_an_error():
    seeding.set_seed(9)
    expected = draw()
    seeding.set_seed(9)

    def fail():
        with rng.scoped():
            raise KeyError(draw())

    with pytest.raises(KeyError):
        fail()
    assert draw() == expected
