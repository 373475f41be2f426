"""Generators that datasets, collators and samplers hold are found, captured, restored, or named."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

from footplate import DataCollatorForLanguageModeling, rng
from footplate.data.generators import NUM_OBJECTS, HeldGenerators

SHARED = np.random.default_rng(0)
KINDS = {
    "numpy": lambda: np.random.default_rng(3),
    "philox": lambda: np.random.Generator(np.random.Philox(3)),
    "mersenne": lambda: np.random.Generator(np.random.MT19937(3)),
    "old numpy": lambda: np.random.RandomState(3),
    "torch": lambda: torch.Generator().manual_seed(3),
    "python": lambda: random.Random(3),
}


def draw(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.randn(3, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(3)]
    return list(generator.normal(size=3))


class Holder:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def draw(self) -> None:
        """Nothing, but as a method."""


class Slotted:
    __slots__ = ("noise",)


class Uses:
    def __getitem__(self, index: int) -> float:
        return index + SHARED.random()


@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_generator_draws_the_same_again(kind, tmp_path):
    generator = KINDS[kind]()
    held = HeldGenerators(dataset=Holder(noise=generator))
    draw(generator)  # some keep a second number of a pair back
    with rng.holding(held):
        path = tmp_path / "states.pt"
        torch.save(rng.to_plain(rng.capture()), path)
        expected = draw(generator)
        draw(generator)
        rng.restore(torch.load(path, weights_only=True))
        assert draw(generator) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_seeding_depends_on_the_number_and_on_the_generators_own_seed(kind):
    first, same, other = KINDS[kind](), KINDS[kind](), KINDS[kind]()
    draw(other)  # stands for another seed
    held = [HeldGenerators(dataset=[generator]) for generator in (first, same, other)]
    for entry in held:
        entry.seed(5)
    drawn = [draw(generator) for generator in (first, same, other)]
    assert drawn[0] == drawn[1] != drawn[2]
    held[0].seed(6)
    assert draw(first) != drawn[0]
    held[0].seed(5)
    assert draw(first) == drawn[0]


def test_generators_are_found_wherever_data_can_reach_them():
    a, b, c, d, e, f, g = (np.random.default_rng(index) for index in range(7))
    slotted = Slotted()
    slotted.noise = a

    def collate(rows: Any, source: Any = b) -> Any:
        return c.random() + source.random()

    dataset = Holder(
        parts=[Holder(transforms={"crop": d})],
        slotted=slotted,
        bound=Holder(noise=e).draw,
        partial=functools.partial(len, noise=f),
        view=Uses(),
    )
    held = HeldGenerators(dataset=dataset, collate=collate, other=(g,))
    assert {id(value) for value in held.found.values()} == set(map(id, (a, b, c, d, e, f, g, SHARED)))
    assert held.found["dataset.parts[0].transforms['crop']"] is d


def test_the_global_generators_are_not_counted_twice():
    held = HeldGenerators(dataset=Holder(a=random._inst, b=np.random.mtrand._rand, c=torch.default_generator))
    assert not held
    assert "held" not in rng.capture()


def test_a_masking_collator_has_its_generator_before_the_first_batch():
    collator = DataCollatorForLanguageModeling.__new__(DataCollatorForLanguageModeling)
    vars(collator).update(seed=3, generator=None, return_tensors="pt")
    held = HeldGenerators(data_collator=collator)
    assert held.found == {"data_collator.generator": collator.generator}
    assert collator.generator.initial_seed() == 3


def test_what_cannot_be_stored_is_named(caplog):
    HeldGenerators(
        train_dataset=Holder(noise=random.SystemRandom(), order=itertools.cycle([1, 2]))
    ).name_lost()
    assert "train_dataset.noise (SystemRandom)" in caplog.text
    assert "train_dataset.order (cycle)" in caplog.text


def test_a_generator_that_is_made_late_is_named_once(caplog):
    dataset = Holder(noise=None)
    held = HeldGenerators(train_dataset=dataset)
    held.name_late()
    assert not caplog.text
    dataset.noise = np.random.default_rng()
    held.name_late()
    held.name_late()
    assert caplog.text.count("train_dataset.noise was made while the first batch was read") == 1


def test_states_of_generators_that_are_gone_are_named_once(caplog):
    held = HeldGenerators(train_dataset=Holder())
    for _ in range(2):
        held.restore({"train_dataset.noise": 1})
    assert caplog.text.count("that are not there now: train_dataset.noise") == 1


def test_large_data_is_not_walked_through():
    rows = [[index] for index in range(1_000_000)]
    nested: Any = rows
    for _ in range(2 * NUM_OBJECTS):
        nested = [nested]
    held = HeldGenerators(dataset=Holder(rows=rows, nested=nested, noise=random.Random(1)))
    assert list(held.found) == ["dataset.noise"]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("mersenne", lambda state: state["state"].update(pos=10**6)),
        ("old numpy", lambda state: state["state"].update(pos=-1)),
        ("philox", lambda state: state.update(buffer_pos=-(10**6))),
        ("numpy", lambda state: state.clear()),
    ],
)
def test_a_state_that_does_not_fit_is_refused(kind, change):
    held = HeldGenerators(train_dataset=[KINDS[kind]()])
    states = held.capture()
    change(states["train_dataset[0]"])
    with pytest.raises(ValueError, match=r"generator train_dataset\[0\] does not fit it"):
        held.restore(states)


class Touchy:
    """An object that does not like to be looked at."""

    @property
    def seed(self) -> int:
        raise RuntimeError("not now")


def test_an_object_that_cannot_be_looked_at_is_passed_over():
    noise = random.Random(1)
    assert list(HeldGenerators(dataset=[Touchy(), noise]).found.values()) == [noise]
