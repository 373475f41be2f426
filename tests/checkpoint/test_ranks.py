"""What differs from rank to rank is saved for each, and shared out anew if their number changes."""

from __future__ import annotations

import pytest
import torch

from footplate import rng
from footplate.checkpoint.ranks import RANKS_NAME, average, count_ranks, load_rank, save_ranks
from footplate.checkpoint.rng import RNG_NAME, load_rng, save_rng


def state_of(rank):
    """What one rank gives: a generator that it alone has, its place, its sums."""
    torch.manual_seed(rank)
    return {
        "rng": rng.to_plain(rng.capture()),
        "loader": {"position": 12, "stream": f"stream of {rank}"},
        "sums": {"loss": 2.0 + rank, "tokens": 3 + 2 * rank, "records": [[1.0, rank]], "own": {}},
    }


def test_each_rank_gets_back_what_it_gave(tmp_path):
    states = [state_of(rank) for rank in range(2)]
    save_ranks(tmp_path, states)
    assert {path.name for path in tmp_path.iterdir()} == {"rng_state_0.pth", "rng_state_1.pth", RANKS_NAME}
    for rank, state in enumerate(states):
        assert load_rank(tmp_path, rank, 2) == {name: state[name] for name in ("loader", "sums")}


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_another_number_of_ranks_gets_the_place_of_the_first_and_the_mean_of_the_sums(num_ranks, tmp_path):
    save_ranks(tmp_path, [state_of(rank) for rank in range(2)])
    for rank in range(num_ranks):
        assert load_rank(tmp_path, rank, num_ranks) == {
            "loader": {"position": 12, "stream": "stream of 0"},
            "sums": {"loss": 2.5, "tokens": 4, "records": [[1.0, 0]], "own": {}},
        }


def test_one_process_writes_no_such_file(tmp_path):
    assert load_rank(tmp_path, 0, 1) is None


def test_generators_of_several_ranks_are_read_by_one_process(tmp_path):
    save_ranks(tmp_path, [state_of(rank) for rank in range(2)])
    torch.manual_seed(99)
    assert load_rng(tmp_path)
    found = torch.rand(1)
    torch.manual_seed(0)  # that of the first rank
    assert found == torch.rand(1)


def test_what_only_some_ranks_have_is_the_mean_of_theirs():
    assert average([{"loss": 1.0}, {"loss": 3.0, "late": 4.0}]) == {"loss": 2.0, "late": 4.0}
    assert average([(1, 2), (4, 2)]) == [2, 2]  # whole numbers stay whole


def test_ranks_are_counted_by_their_generators(tmp_path):
    assert count_ranks(tmp_path) is None
    save_ranks(tmp_path, [state_of(rank) for rank in range(3)])
    assert count_ranks(tmp_path) == 3
    alone = tmp_path / "alone"
    alone.mkdir()
    save_rng(alone)
    assert (alone / RNG_NAME).is_file()
    assert count_ranks(alone) == 1
