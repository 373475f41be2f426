"""Whatever a run draws random numbers in, any update of it is made again with the same rows and bits."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import footplate
from footplate import SaveStrategy
from footplate.replaying.folder import read_run
from test_exact_resume import LOADERS, Recorder, Setup, build, setups


def check_update(setup: Setup, share: float) -> None:
    """Train with checkpoints, then make the update again that is this share of the way."""

    def build_saving(folder: str) -> Recorder:
        trainer = build(folder, setup)
        args = trainer.args
        args.save_strategy, args.save_steps, args.logging_steps = SaveStrategy.STEPS, 3, 1
        return trainer

    with tempfile.TemporaryDirectory() as folder:
        trainer = build_saving(folder)
        trainer.train()
        step = 1 + int(share * (read_run(folder).last_step - 1))
        replayed = []

        def build_again() -> Recorder:
            replayed.append(build_saving(folder))
            return replayed[-1]

        found = footplate.replay(Path(folder), step, build_again)
        assert found.is_same
        assert step in found.compared_steps
        assert replayed[0].under_way == trainer.seen[step - 1]
        numbers = [row.number for row in found.rows]
        has_numbers = "stream" not in setup.kind and setup.sampler not in LOADERS
        assert numbers == (trainer.seen[step - 1] if has_numbers else [None] * len(numbers))


shares = st.floats(min_value=0.0, max_value=1.0)


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(setups, shares)
def test_any_update_of_a_run_is_made_again(setup, share):
    check_update(setup, share)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(setups, shares)
def test_many_updates_of_many_runs_are_made_again(setup, share):
    check_update(setup, share)
